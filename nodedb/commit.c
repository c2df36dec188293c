//go:build cgo && lmdb

/* commit.c: pending changes, and the committer, which writes them to LMDB.
 *
 * The committer is one thread per store. It takes all pending changes (pending becomes frozen),
 * writes them in one LMDB transaction, syncs, and moves readers to the new snapshot. Meanwhile new
 * changes gather in pending for the next commit. After a failure frozen stays, and the committer
 * retries with growing delays; reads continue, and writes continue until pending is full. The
 * committer also deletes expired nodes, sends heartbeats while it has the lease, and hands the
 * lease over.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

enum {
	STOP_MS = 10,       /* how often a waiting call checks whether it has to stop */
	SLICE_MS = 20,      /* between heartbeats of a process with the lease */
	HOLD_MS = 5,        /* how long a process keeps the lease although another wants it */
	COMMIT_MS = 30000,  /* how far a heartbeat reaches ahead during a commit */
	SWEEP_MS = 1000,    /* between checks for expired nodes */
	SWEEP_SOON_MS = 10, /* the same, if some are left */
	SWEEP_NODES = 1000, /* expired nodes deleted per commit */
	RETRY_MS = 50,      /* delay after a failed commit, doubled each time */
	RETRY_MAX_MS = 1000,
	LOG_MAX = 1 << 18, /* changes logged for open transactions */
	LOG_BYTES_MAX = 64 << 20,
	EXCLUSIVE_MS = 10000 /* how long a transaction may run alone */
};

static void *committer(void *argument);

/* ---- changes ---- */

void ndb_store_log(ndb_store *store, ndb_entry *e, int kill) {
	if (!store->transactions || !e) return;
	uint64_t count = store->log_end - store->log_start;
	if (count == store->log_cap) {
		size_t cap = store->log_cap ? store->log_cap * 2 : 64;
		void *grown = cap <= LOG_MAX && store->log_bytes < LOG_BYTES_MAX
		                  ? realloc(store->log, cap * sizeof *store->log)
		                  : NULL;
		if (!grown) { /* drop the log: older transactions that have read anything will conflict */
			for (uint64_t i = 0; i < count; i++) ndb_entry_unref(store->log[i].entry);
			store->log_start = ++store->log_end;
			store->log_bytes = 0;
			return;
		}
		store->log = grown, store->log_cap = cap;
	}
	store->log[count].entry = ndb_entry_ref(e);
	store->log[count].kill = kill;
	store->log_end++;
	store->log_bytes += ndb_entry_size(e);
}

void ndb_store_trim_log(ndb_store *store) {
	if (store->transactions) return;
	for (uint64_t i = 0; i < store->log_end - store->log_start; i++)
		ndb_entry_unref(store->log[i].entry);
	store->log_start = store->log_end;
	store->log_bytes = 0;
}

uint64_t ndb_session_waiting(ndb_session *s) {
	const ndb_store *store = s->store;
	int all = store->durable >= store->number;
	if (store->durable >= s->given_mark_number || all) {
		s->given_durable = all ? s->given : s->given_mark;
		s->given_mark = s->given;
		s->given_mark_number = store->number;
	}
	return s->given - s->given_durable;
}

void ndb_session_gave(ndb_session *s, uint64_t bytes) {
	ndb_session_waiting(s); /* first counts the earlier bytes that are durable by now */
	s->given += bytes;
}

void ndb_store_changed(ndb_store *store) {
	store->number++;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	if (NDB_UNLIKELY(!store->dirty_since)) {
		store->dirty_since = ndb_monotonic_ms();
		pthread_cond_signal(&store->work);
	} else if (NDB_UNLIKELY(ndb_layer_bytes(&store->pending) >= store->options.pending_bytes)) {
		pthread_cond_signal(&store->work);
	}
}

int ndb_committer_start(ndb_store *store) {
	if (store->committer_runs) return NDB_OK;
	int rc = pthread_create(&store->committer, NULL, committer, store);
	if (rc) return ndb_lmdb_error(rc, "start the committer");
	store->committer_runs = 1;
	return NDB_OK;
}

/* Lock: held. */
static int report_failure(ndb_store *store) {
	return ndb_fail(store->failure, "%s", store->failure_text);
}

/* Waits for the committer, until ms at most. NDB_E_TIMEOUT if the session's calls must stop.
 * Lock: held, dropped during the wait. */
static int wait_for_committer(ndb_store *store, const ndb_session *s, uint64_t ms) {
	if (s->stop && *s->stop)
		return ndb_fail(NDB_E_TIMEOUT, "the call was stopped while it waited to change nodes");
	uint64_t soon = ndb_monotonic_ms() + STOP_MS;
	ndb_wait_until(&store->done, &store->lock, s->stop && soon < ms ? soon : ms);
	return NDB_OK;
}

/* True if pending is too full for a change of the session. Lock: held. */
static int has_no_room(ndb_store *store, ndb_session *s) {
	if (ndb_layer_bytes(&store->pending) >= store->options.pending_bytes) return 1;
	return s->pending_limit && s->given - s->given_durable >= s->pending_limit &&
	       ndb_session_waiting(s) >= s->pending_limit;
}

/* Waits while another transaction runs alone. A waiter that times out ends that privilege and
 * fails: the owner is suspended, or its function waits for this very call. Lock: held, dropped
 * during the wait. */
static int wait_for_exclusive(ndb_store *store, const ndb_session *s) {
	uint64_t end = store->exclusive_since + EXCLUSIVE_MS;
	if (ndb_monotonic_ms() < end) return wait_for_committer(store, s, end);
	store->exclusive = NULL;
	pthread_cond_broadcast(&store->done);
	return ndb_fail(NDB_E_TIMEOUT,
	    "another transaction, which met conflicts, has run alone for %d s: if its function makes this change, make it in that "
	    "transaction, or in one nested in it",
	    EXCLUSIVE_MS / 1000);
}

int ndb_store_lock_write(ndb_store *store, ndb_session *s) {
	int error = NDB_OK;
	pthread_mutex_lock(&store->lock);
	for (;;) {
		if (NDB_UNLIKELY(store->exclusive && store->exclusive != s)) {
			if ((error = wait_for_exclusive(store, s)) < 0) break;
			continue;
		}
		if (NDB_UNLIKELY(has_no_room(store, s))) {
			if (store->failure) {
				error = report_failure(store);
				break;
			}
			store->sync_to = store->number;
			pthread_cond_signal(&store->work);
			if ((error = wait_for_committer(store, s, ndb_monotonic_ms() + 1000)) < 0) break;
			continue;
		}
		if (NDB_UNLIKELY(!store->committer_runs) && (error = ndb_committer_start(store)) < 0) break;
		if (NDB_UNLIKELY(store->draining)) {
			if ((error = wait_for_committer(store, s, ndb_monotonic_ms() + 1000)) < 0) break;
			continue;
		}
		if (NDB_UNLIKELY(!store->lease)) {
			if ((error = ndb_lease_acquire(store, s)) < 0) break;
			continue;
		}
		if (NDB_UNLIKELY(ndb_lease_lost(store))) {
			/* the committer will notice */
			if (store->committing)
				ndb_wait_until(&store->done, &store->lock, ndb_monotonic_ms() + 1000);
			else ndb_lease_superseded(store);
			continue;
		}
		break;
	}
	if (error < 0) pthread_mutex_unlock(&store->lock);
	return error;
}

int ndb_store_flush(ndb_store *store, uint64_t number) {
	int result = NDB_OK;
	pthread_mutex_lock(&store->lock);
	if (number > store->number) number = store->number;
	uint64_t attempts = store->attempts;
	for (;;) {
		if (NDB_UNLIKELY(store->lost_from < number && number <= store->lost_to)) {
			result = ndb_fail(NDB_E_SUPERSEDED,
			    "the changes were dropped: this process was suspended for so long that another took over");
			break;
		}
		if (store->durable >= number) break;
		if (store->failure && store->attempts != attempts) {
			result = ndb_fail(store->failure,
			    "%s; the changes stay visible in this process, which retries the write until it ends",
			    store->failure_text);
			break;
		}
		if (store->sync_to < number) store->sync_to = number;
		pthread_cond_signal(&store->work);
		pthread_cond_wait(&store->done, &store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return result;
}

int ndb_sync(ndb_store *store) {
	pthread_mutex_lock(&store->lock);
	uint64_t number = store->number;
	pthread_mutex_unlock(&store->lock);
	return ndb_store_flush(store, number);
}

/* ---- the committer ---- */

/* Deletes the nodes that the kill hides, up to *limit, which it counts down. */
static int write_kill(MDB_cursor *c, const ndb_entry *kill, uint64_t *limit) {
	MDB_val k = {kill->key_len, (void *)(uintptr_t)kill->data}, data;
	int rc = mdb_cursor_get(c, &k, &data, MDB_SET_RANGE);
	while (*limit && rc == 0 && ndb_key_within(k.mv_data, k.mv_size, kill->data, kill->key_len)) {
		--*limit;
		if ((rc = mdb_cursor_del(c, 0)) == 0) rc = mdb_cursor_get(c, &k, &data, MDB_NEXT);
	}
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static int write_entry(
    ndb_store *store, MDB_txn *txn, MDB_cursor *c, const ndb_entry *e, int append) {
	MDB_val k = {e->key_len, (void *)(uintptr_t)e->data}, data;
	int rc;
	if (e->type == NDB_ABSENT) {
		if (append) return 0;
		rc = mdb_cursor_get(c, &k, &data, MDB_SET);
		if (rc == 0) rc = mdb_cursor_del(c, 0);
		return rc == MDB_NOTFOUND ? 0 : rc;
	}
	data.mv_size = ndb_stored_size(e, store->sums);
	if ((rc = mdb_cursor_put(c, &k, &data, MDB_RESERVE | (append ? MDB_APPEND : 0))) != 0)
		return rc;
	ndb_stored_write(e, store->sums, data.mv_data);
	if (!e->expiry) return 0;
	char index[8 + NDB_KEY_MAX];
	for (int i = 0; i < 8; i++) index[i] = (char)(e->expiry >> (56 - 8 * i));
	memcpy(index + 8, e->data, e->key_len);
	MDB_val at = {8 + (size_t)e->key_len, index}, none = {0, index};
	return mdb_put(txn, store->expiry, &at, &none, 0);
}

static int write_entries(
    ndb_store *store, MDB_txn *txn, MDB_cursor *c, ndb_layer_place *at, uint64_t limit) {
	MDB_val last, data;
	int append = 0, rc = mdb_cursor_get(c, &last, &data, MDB_LAST);
	if (rc == MDB_NOTFOUND) append = 1, rc = 0;
	char bound[NDB_KEY_MAX + 64];
	size_t bound_len = 0;
	if (!append && rc == 0) {
		bound_len = last.mv_size < sizeof bound ? last.mv_size : sizeof bound;
		memcpy(bound, last.mv_data, bound_len);
	}
	for (; at->entry && rc == 0 && limit; limit--) {
		const ndb_entry *e = at->entry;
		if (!append && ndb_key_compare(e->data, e->key_len, bound, bound_len) > 0) append = 1;
		if ((rc = write_entry(store, txn, c, e, append)) == 0)
			at->entry = ndb_cursor_next(&at->entries);
	}
	return rc;
}

int ndb_layer_write(
    ndb_store *store, MDB_txn *txn, const ndb_layer *l, ndb_layer_place *at, uint64_t limit) {
	MDB_cursor *c;
	int rc = mdb_cursor_open(txn, store->nodes, &c);
	if (rc) return rc;
	if (!at->started) {
		at->kill = ndb_cursor_first(&at->kills, l->kills.root);
		at->entry = ndb_cursor_first(&at->entries, l->entries.root);
		at->started = 1;
	}
	while (at->kill && rc == 0 && limit)
		if ((rc = write_kill(c, at->kill, &limit)) == 0 && limit)
			at->kill = ndb_cursor_next(&at->kills);
	if (!at->kill && at->entry && rc == 0 && limit) rc = write_entries(store, txn, c, at, limit);
	mdb_cursor_close(c);
	return rc;
}

/* Writes and syncs the layer in one transaction. NDB_OK, or an NDB_E code with a message. Lock: not
 * held. */
static int commit_layer(ndb_store *store, const ndb_layer *l, int after_failure) {
	ndb_lease_beat(store, COMMIT_MS);
	pthread_mutex_lock(&store->map_lock);
	int rc, error = NDB_OK;
	for (;;) {
		MDB_txn *txn;
		if (after_failure) lmdb_forgive(store->env);
		rc = mdb_txn_begin(store->env, NULL, 0, &txn);
		if (rc == 0) {
			size_t number = mdb_txn_id(txn);
			if (number != store->expected + 1) { /* another process took over and committed */
				mdb_txn_abort(txn);
				error = ndb_fail(NDB_E_SUPERSEDED, "another process took over the right to write");
				break;
			}
			ndb_layer_place start = {.started = 0};
			uint32_t expired = SWEEP_NODES;
			rc = ndb_layer_write(store, txn, l, &start, UINT64_MAX);
			if (rc == 0) rc = ndb_sweep(store, txn, ndb_now_ms(), &expired);
			int changed = lmdb_is_changed(txn);
			if (rc == 0) rc = mdb_txn_commit(txn);
			else mdb_txn_abort(txn);
			if (rc == 0 && changed) store->expected = number;
		}
		if (rc != MDB_MAP_RESIZED && rc != MDB_MAP_FULL) break;
		/* Enlarge the map and apply the layer again. */
		size_t size = rc == MDB_MAP_RESIZED ? 0 : lmdb_map_size(store->env) * 2;
		if (size && size < lmdb_map_size(store->env) + 2 * ndb_layer_bytes(l))
			size = lmdb_map_size(store->env) + 2 * ndb_layer_bytes(l);
		if ((rc = ndb_store_remap_locked(store, size)) != 0) break;
	}
	pthread_mutex_unlock(&store->map_lock);
	ndb_lease_beat(store, 0);
	if (rc) error = ndb_lmdb_error(rc, "commit");
	return error;
}

/* Freezes pending, if frozen is empty, and commits frozen. Lock: held, dropped while it writes and
 * while it frees the written layer. */
static void commit_pending(ndb_store *store) {
	if (ndb_lease_lost(store)) {
		ndb_lease_superseded(store);
		return;
	}
	if (ndb_lease_wanted(store) && !store->exclusive) {
		uint64_t since =
		    atomic_load_explicit(&store->shared->file->lease.since_ms, memory_order_relaxed);
		store->draining = ndb_clock_ms() >= since + HOLD_MS;
	}
	if (ndb_layer_empty(&store->frozen)) {
		store->frozen = store->pending;
		ndb_layer_init(&store->pending);
		store->frozen_number = store->number;
		store->dirty_since = 0;
		atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	}
	int after_failure = store->failure != 0;
	store->committing = 1;
	pthread_mutex_unlock(&store->lock);
	ndb_snapshot *fresh = NULL;
	int error = commit_layer(store, &store->frozen, after_failure);
	if (error == NDB_OK) error = ndb_snapshot_open(store, &fresh);
	pthread_mutex_lock(&store->lock);
	store->committing = 0;
	if (error == NDB_E_SUPERSEDED) {
		store->draining = 0;
		ndb_lease_superseded(store);
		return;
	}
	if (error < 0) {
		store->draining = 0; /* writers continue while there is space */
		store->failure = error;
		store->attempts++;
		snprintf(store->failure_text, sizeof store->failure_text, "%s", ndb_message());
		pthread_cond_broadcast(&store->done);
		return;
	}
	ndb_layer written = store->frozen;
	ndb_snapshot *before = store->base;
	ndb_layer_init(&store->frozen);
	store->base = fresh;
	store->sweeps = fresh->expiring != 0;
	ndb_store_held(store);
	store->durable = store->frozen_number;
	store->commits++;
	store->failure = 0;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	pthread_cond_broadcast(&store->done);
	pthread_mutex_unlock(&store->lock);
	ndb_layer_clear(&written); /* without the lock: it may be large */
	ndb_snapshot_unref(before);
	if (store->commits % 1024 == 0) mdb_reader_check(store->env, NULL);
	pthread_mutex_lock(&store->lock);
}

/* When the next commit is due; 0: now, UINT64_MAX: nothing to commit. Lock: held. */
static uint64_t due(const ndb_store *store, uint64_t retry) {
	if (!ndb_layer_empty(&store->frozen)) return retry;
	if (!store->dirty_since) return UINT64_MAX;
	if (store->stop || store->sync_to > store->durable ||
	    ndb_layer_bytes(&store->pending) >= store->options.pending_bytes)
		return 0;
	uint64_t at = store->dirty_since + (uint64_t)store->options.flush_ms;
	if (!ndb_lease_wanted(store) || store->exclusive) return at;
	uint64_t held =
	    atomic_load_explicit(&store->shared->file->lease.since_ms, memory_order_relaxed) + HOLD_MS;
	return held < at ? held : at;
}

/* True if a transaction runs alone. It keeps the lease even without pending changes. Lock: held. */
static int is_exclusive(ndb_store *store) {
	return store->exclusive && ndb_monotonic_ms() < store->exclusive_since + EXCLUSIVE_MS;
}

/* Deletes expired nodes if a check is due and no other process has the lease. Lock: held, dropped
 * while it commits. */
static void sweep(ndb_store *store, uint64_t now) {
	if (!store->sweeps || now < store->next_sweep || !ndb_layer_empty(&store->frozen)) return;
	store->next_sweep = now + SWEEP_MS;
	if (!store->base && ndb_store_refresh(store) < 0) return;
	if (!ndb_sweep_due(store, store->base) || !ndb_lease_try(store)) return;
	mdb_reader_check(store->env, NULL);
	commit_pending(store);
	if (ndb_sweep_due(store, store->base)) store->next_sweep = now + SWEEP_SOON_MS;
}

/* Lock: held, dropped while it writes or waits. */
static void *committer(void *argument) {
	ndb_store *store = argument;
	uint64_t retry = 0, wait = RETRY_MS;
	pthread_mutex_lock(&store->lock);
	for (;;) {
		uint64_t now = ndb_monotonic_ms();
		if (!store->failure && !store->stop) sweep(store, now);
		if (store->lease && !store->dirty_since && ndb_layer_empty(&store->frozen) &&
		    !is_exclusive(store)) {
			ndb_lease_release(store);
			store->draining = 0;
			pthread_cond_broadcast(&store->done);
			continue;
		}
		uint64_t at = due(store, retry);
		if (at > now) {
			if (store->stop && (at == UINT64_MAX || store->failure)) break;
			if (store->lease) ndb_lease_beat(store, 0);
			if (store->lease && at > now + SLICE_MS) at = now + SLICE_MS;
			if (store->sweeps && at > store->next_sweep)
				at = store->next_sweep > now ? store->next_sweep : now + 1;
			if (at == UINT64_MAX) pthread_cond_wait(&store->work, &store->lock);
			else ndb_wait_until(&store->work, &store->lock, at);
			continue;
		}
		commit_pending(store);
		if (store->failure) {
			retry = ndb_monotonic_ms() + wait;
			wait = wait * 2 < RETRY_MAX_MS ? wait * 2 : RETRY_MAX_MS;
		} else {
			wait = RETRY_MS;
		}
	}
	store->committer_runs = 0;
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

void ndb_committer_stop(ndb_store *store) {
	pthread_mutex_lock(&store->lock);
	int runs = store->committer_runs;
	store->stop = 1;
	pthread_cond_signal(&store->work);
	pthread_mutex_unlock(&store->lock);
	if (runs) pthread_join(store->committer, NULL);
	store->stop = 0;
}
