//go:build cgo && lmdb

/* lease.c: the right to write, which one process of a folder has at a time.
 *
 * A process may have uncommitted changes only while it has the lease. So a change always starts
 * from the latest state, and increments are exact. A process gives the lease back when nothing is
 * pending. When another process asks for it, the owner hands it over after a commit, once it has
 * had it for HOLD_MS (commit.c).
 *
 * If the owner has died, the lease is free at once. If it sends no heartbeat for STALE_MS (it was
 * stopped, or its machine hung), another process takes the lease over, and commits a fence before
 * anything else. An owner commits only if no other commit followed its own last one, which it
 * checks inside LMDB's write transaction; otherwise it drops its changes. After a crash, the fence
 * commit also lets LMDB recover from the dead process's unfinished write.
 *
 * During a commit the owner's heartbeat reaches further ahead, for slow disks. A process that is
 * stopped during a commit also holds LMDB's own mutex, so no process can write until it continues
 * or dies.
 */
#include "core.h"

enum {
	STALE_MS = 3000,    /* without a heartbeat until the lease is taken over */
	POLL_MS = 20,       /* between checks of a lease that another process has */
	YIELD_MS = 2,       /* how long other processes get to take a lease that was given back */
	PATIENCE_MS = 60000 /* longest wait for the lease */
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

/* Commits the fence: a count of takeovers. This process has the lease. Lock: not held. */
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

/* Starts to use a lease just claimed. fence: its owner may have left an unfinished write. Lock:
 * held, dropped while it commits the fence. */
static int start_writing(ndb_store *store, int fence) {
	int error = NDB_OK;
	if (fence) {
		pthread_mutex_unlock(&store->lock);
		error = commit_fence(store);
		pthread_mutex_lock(&store->lock);
	}
	if (error == NDB_OK && ndb_lease_lost(store)) return NDB_MORE; /* suspended meanwhile */
	if (error == NDB_OK) error = ndb_store_refresh(store);
	if (error < 0) {
		/* The next owner must commit the fence, too: leave the cell as if this owner had died. */
		if (!fence) clear_owner(store);
		return error;
	}
	store->expected = store->base->number;
	store->lease = 1;
	pthread_cond_signal(&store->work); /* the committer will give it back */
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
	if (store
	        ->acquiring) { /* that thread checks only its own stop flag: return to check this one's */
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
		if (owner == shared->me) { /* an earlier attempt could not commit its fence */
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
			    "process %u has the right to write and has not released it for %llu s: check whether its disk is full",
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
	/* Let another process take it before this one asks again. */
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
		store->durable = ++store->number; /* later changes are not lost */
		atomic_fetch_add(&store->superseded, 1);
	}
	store->exclusive = NULL;
	store->foreign++;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	pthread_cond_broadcast(&store->done);
	ndb_layer_clear(&frozen);
	ndb_layer_clear(&pending);
}
