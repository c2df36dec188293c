//go:build cgo && lmdb

/* release.c: lets go of snapshots that nobody uses.
 *
 * LMDB does not use a page again as long as a snapshot may need it. A process that has read
 * something and then does nothing would make the file grow with each commit of the others. So
 * a thread of the store, the releaser, looks every few milliseconds at what is held outside
 * transactions: by sessions, by their iterators, by the store as its base. What was not used since
 * it looked last is released; the next read takes a new snapshot. It sleeps while nothing is held.
 *
 * A session reads its snapshot without a lock. reads_now counts in its low 16 bits the reads
 * that are under way, above them those that have ended. A read first raises it, then compares
 * the session's version with the store's. The releaser first takes the session's version away, then looks
 * at reads_now, with a barrier for all threads of the process between: either it sees the read and leaves
 * the session alone, or the read sees that its snapshot is not current, and waits for the store's
 * lock to take another. What a read has returned outside a transaction is a copy.
 *
 * A transaction keeps its snapshot: it sees one state.
 */
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

enum {
	LOOK_MS = 5,    /* between looks while something is held */
	SLEEP_MS = 1000 /* while nothing is */
};

static long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

static void prepare_barrier(void) {
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) ndb_read_fences = 1;
}

/* Of a session that reads now, either its reads_now is seen from here on, or it sees the version that
 * was taken away before. */
static void barrier(void) {
	atomic_thread_fence(memory_order_seq_cst);
	if (!ndb_read_fences) membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

/* Tells whether the session holds something outside a transaction, and notes whether it has not used
 * some of it since the last look. Lock: held. */
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

/* Releases what sessions have not used since the last look. Returns whether they hold something
 * still. Lock: held. */
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

/* Changes that wait are looked at through the base, and only a process with the lease has any.
 * Lock: held. */
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
