//go:build cgo && lmdb

/* lease.c: the right to write, which one of the processes that share a folder has at a time.
 *
 * A process may have changes that are not committed only while it has the lease; so what it
 * reads before it changes something is the latest, and sums are exact. It gives the lease
 * back when nothing waits to be committed, and hands it over after a commit when another
 * process asks, once it has had it for HOLD_MS (commit.c).
 *
 * If the owner has died, the lease is free at once. If it shows no sign of life for STALE_MS
 * (it was stopped, or its machine hung), it is taken over. Who takes it over commits something
 * first. That is the fence: an owner commits only if no other commit came after its last one,
 * which it sees inside LMDB's write transaction; else its changes are dropped. After a death
 * the same commit lets LMDB finish what the dead process had begun.
 *
 * While an owner writes it announces a longer time, for a slow disk; a process that is stopped
 * just then also has LMDB's own mutex, and nobody writes until it goes on or dies.
 */
#include "core.h"

enum {
	STALE_MS = 3000,    /* without a sign of life, after which the lease is taken over */
	POLL_MS = 20,       /* between looks at a lease that another has */
	YIELD_MS = 2,       /* for which another process may take a lease that was given back */
	PATIENCE_MS = 60000 /* to wait for the lease */
};

void ndb_lease_beat(ndb_store *store, uint64_t ahead_ms) {
	atomic_store_explicit(
	    &store->shared->file->lease.heartbeat_ms, ndb_clock_ms() + ahead_ms, memory_order_relaxed);
}

static int claim_owner(ndb_store *store, ndb_owner from) {
	ndb_cell *cell = &store->shared->file->lease;
	if (!atomic_compare_exchange_strong(&cell->owner, &from, store->shared->me)) return 0;
	ndb_lease_beat(store, 0);
	atomic_store_explicit(&cell->since_ms, ndb_clock_ms(), memory_order_relaxed);
	atomic_store_explicit(&cell->requests, 0, memory_order_relaxed);
	atomic_fetch_add(&cell->epoch, 1);
	atomic_fetch_add(&cell->moved, 1);
	return 1;
}

static void clear_owner(ndb_store *store) {
	ndb_cell *cell = &store->shared->file->lease;
	ndb_owner me = store->shared->me;
	if (!atomic_compare_exchange_strong(&cell->owner, &me, 0)) return;
	atomic_fetch_add(&cell->moved, 1);
	if (atomic_load(&cell->requests)) ndb_wake_word(&cell->moved);
}

/* Commits the number of takeovers. This process has the lease. Lock: not held. */
static int commit_fence(ndb_store *store) {
	int rc;
	pthread_mutex_lock(&store->map_lock);
	for (;;) {
		MDB_txn *txn;
		MDB_val key = {9, "takeovers"}, value;
		uint64_t count = 0;
		ndb_lease_beat(store, STALE_MS * 10);
		if ((rc = mdb_txn_begin(store->env, NULL, 0, &txn)) == 0) {
			if (mdb_get(txn, store->meta, &key, &value) == 0 && value.mv_size == sizeof count)
				memcpy(&count, value.mv_data, sizeof count);
			count++;
			value = (MDB_val){sizeof count, &count};
			rc = mdb_put(txn, store->meta, &key, &value, 0);
			if (rc == 0) rc = mdb_txn_commit(txn);
			else mdb_txn_abort(txn);
		}
		if (rc != MDB_MAP_RESIZED && rc != MDB_MAP_FULL) break;
		if ((rc = ndb_store_remap_locked(
		         store, rc == MDB_MAP_RESIZED ? 0 : lmdb_map_size(store->env) * 2)) != 0)
			break;
	}
	pthread_mutex_unlock(&store->map_lock);
	ndb_lease_beat(store, 0);
	return rc ? ndb_lmdb_error(rc, "take over the right to write") : NDB_OK;
}

/* The lease was taken; with a fence if its owner may have left something behind. Lock: held, dropped
 * while it commits the fence. */
static int start_writing(ndb_store *store, int fence) {
	int error = NDB_OK;
	if (fence) {
		pthread_mutex_unlock(&store->lock);
		error = commit_fence(store);
		pthread_mutex_lock(&store->lock);
	}
	if (error == NDB_OK && ndb_lease_lost(store)) return NDB_MORE; /* stopped meanwhile */
	if (error == NDB_OK) error = ndb_store_refresh(store);
	if (error < 0) {
		/* The next owner must commit the fence, too: leave the lease as if its owner had died. */
		if (!fence) clear_owner(store);
		return error;
	}
	store->expected = store->base->number;
	store->lease = 1;
	pthread_cond_signal(&store->work); /* to give it back in time */
	return NDB_OK;
}

static int stopped(void) {
	return ndb_fail(NDB_E_TIMEOUT, "the call was stopped while it waited for the right to write");
}

int ndb_lease_acquire(ndb_store *store, const ndb_session *s) {
	ndb_shared *shared = store->shared;
	ndb_cell *cell = &shared->file->lease;
	if (shared->fd < 0) return ndb_shared_refuse_child();
	if (s->stop && *s->stop) return stopped();
	if (store->acquiring) { /* who does so looks for an end of its own wait only */
		ndb_wait_until(&store->done, &store->lock, ndb_monotonic_ms() + POLL_MS);
		return NDB_OK;
	}
	store->acquiring = 1;
	uint64_t start = ndb_clock_ms();
	int result = NDB_MORE;
	while (result == NDB_MORE) {
		uint32_t moved = atomic_load(&cell->moved);
		ndb_owner owner = atomic_load(&cell->owner);
		int fence = 0, free = owner == 0;
		if (owner == shared->me) { /* a fence that could not be committed */
			result = start_writing(store, 1);
			continue;
		}
		if (!free) {
			int stale = atomic_load(&cell->heartbeat_ms) + STALE_MS < ndb_clock_ms();
			free = fence = stale || !ndb_shared_alive(shared, owner);
		}
		if (free && claim_owner(store, owner)) {
			result = start_writing(store, fence);
			continue;
		}
		if (s->stop && *s->stop) {
			result = stopped();
			break;
		}
		uint64_t waited = ndb_clock_ms() - start;
		if (waited > PATIENCE_MS) {
			result = ndb_fail(NDB_E_TIMEOUT,
			    "process %u has the right to write and has not given it up for %llu s: see whether its disk is full",
			    ndb_shared_pid(shared, owner), (unsigned long long)waited / 1000);
			break;
		}
		atomic_store(&cell->requests, 1);
		pthread_mutex_unlock(&store->lock);
		ndb_wait_word(&cell->moved, moved, POLL_MS);
		pthread_mutex_lock(&store->lock);
	}
	store->acquiring = 0;
	pthread_cond_broadcast(&store->done);
	return result;
}

int ndb_lease_try(ndb_store *store) {
	if (store->lease) return 1;
	if (store->acquiring || !claim_owner(store, 0)) return 0;
	return start_writing(store, 0) == NDB_OK;
}

void ndb_lease_release(ndb_store *store) {
	ndb_cell *cell = &store->shared->file->lease;
	store->lease = 0;
	int wanted = ndb_lease_wanted(store);
	clear_owner(store);
	if (!wanted) return;
	/* Let another process have it before this one asks again. */
	uint32_t moved = atomic_load(&cell->moved);
	pthread_mutex_unlock(&store->lock);
	if (atomic_load(&cell->owner) == 0) ndb_wait_word(&cell->moved, moved, YIELD_MS);
	pthread_mutex_lock(&store->lock);
}

void ndb_lease_superseded(ndb_store *store) {
	ndb_layer frozen = store->frozen, pending = store->pending;
	ndb_layer_init(&store->frozen);
	ndb_layer_init(&store->pending);
	store->lease = 0;
	store->dirty_since = 0;
	store->failure = 0;
	if (store->number > store->durable) {
		store->lost_from = store->durable;
		store->lost_to = store->number;
		store->durable = ++store->number; /* what comes now is not lost */
		atomic_fetch_add(&store->superseded, 1);
	}
	store->exclusive = NULL;
	store->foreign++;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	pthread_cond_broadcast(&store->done);
	ndb_layer_clear(&frozen);
	ndb_layer_clear(&pending);
}
