//go:build cgo && lmdb

/* release.c: releases snapshots that are not in use.
 *
 * LMDB does not reuse a page while a snapshot may need it. If a process reads something and then
 * stays idle, the file would grow with every commit of other processes. So a thread of the store,
 * the releaser, checks every few milliseconds what sessions and their iterators hold outside
 * transactions, and the store's base. It releases what was not used since its last check; the next
 * read takes a new snapshot. The releaser sleeps while nothing is held.
 *
 * A session reads its snapshot without a lock. reads_now counts the current reads in its low 16
 * bits, and finished reads above. A read first increments it, then compares the session's version
 * with the store's. The releaser first invalidates the session's version, then executes a barrier
 * for all threads of the process, then checks reads_now. So either the releaser sees the read and
 * leaves the session alone, or the read sees that its snapshot is not current, and takes a new one
 * under the store's lock. Results returned outside a transaction are copies.
 *
 * A transaction keeps its snapshot until it ends.
 */
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

enum {
	LOOK_MS = 5,    /* between checks while something is held */
	SLEEP_MS = 1000 /* otherwise */
};

static long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

static void prepare_barrier(void) {
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) ndb_read_fences = 1;
}

/* After it, a concurrent read of a session either is visible in reads_now, or sees that the
 * session's version was invalidated. */
static void barrier(void) {
	atomic_thread_fence(memory_order_seq_cst);
	if (!ndb_read_fences) membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

/* True if the session holds something outside a transaction. Sets s->releasing if some of it was
 * not used since the last check. Lock: held. */
static int look_at(ndb_session *s) {
	s->releasing = 0;
	if (s->in_transaction) return 0;
	uint64_t reads = atomic_load_explicit(&s->reads_now, memory_order_relaxed);
	int idle = s->view.base && reads == s->reads_seen && !(reads & 0xFFFF);
	s->reads_seen = reads;
	int hold = ndb_iters_hold(s, &s->releasing);
	s->releasing |= idle;
	return hold || s->view.base;
}

/* Releases what sessions have not used since the last check. True if they still hold something.
 * Lock: held. */
static int release_sessions(ndb_store *store) {
	int held = 0, some = 0;
	for (ndb_session *s = store->sessions; s; s = s->next) {
		held |= look_at(s);
		some |= s->releasing;
		if (s->releasing) atomic_store_explicit(&s->version, UINT64_MAX, memory_order_relaxed);
	}
	if (!some) return held;
	barrier();
	for (ndb_session *s = store->sessions; s; s = s->next) {
		if (!s->releasing || (atomic_load_explicit(&s->reads_now, memory_order_acquire) & 0xFFFF))
			continue;
		ndb_iters_release(s);
		ndb_snapshot_unref(s->view.base);
		s->view.base = NULL;
	}
	return 1;
}

/* Releases an unused base. Not with the lease: pending changes need the base. Lock: held. */
static int release_base(ndb_store *store) {
	if (!store->base) return 0;
	if (store->lease || store->acquiring || store->committing ||
	    !ndb_layer_empty(&store->pending) || !ndb_layer_empty(&store->frozen))
		return 1;
	if (atomic_load_explicit(&store->base->refs, memory_order_acquire) > 1) return 1;
	store->base_released = store->base->number;
	ndb_snapshot_unref(store->base);
	store->base = NULL;
	return 0;
}

static void *releaser(void *argument) {
	ndb_store *store = argument;
	pthread_mutex_lock(&store->lock);
	while (!store->releaser_stops) {
		int held = release_sessions(store);
		held |= release_base(store);
		store->releaser_sleeps = !held;
		ndb_wait_until(
		    &store->held, &store->lock, ndb_monotonic_ms() + (held ? LOOK_MS : SLEEP_MS));
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ndb_releaser_start(ndb_store *store) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, prepare_barrier);
	int rc = pthread_create(&store->releaser, NULL, releaser, store);
	if (rc) return ndb_lmdb_error(rc, "start the thread that releases snapshots");
	store->releaser_runs = 1;
	return NDB_OK;
}

void ndb_releaser_stop(ndb_store *store) {
	if (!store->releaser_runs) return;
	pthread_mutex_lock(&store->lock);
	store->releaser_stops = 1;
	pthread_cond_signal(&store->held);
	pthread_mutex_unlock(&store->lock);
	pthread_join(store->releaser, NULL);
	store->releaser_runs = 0;
}
