//go:build cgo && lmdb

/* unit.c: the state of a pipeline, as numbered deltas over a store that this process owns.
 *
 * A delta is a session's transaction whose own layer starts empty. Frozen deltas stay layers above
 * pending until their commit merges them into it. Pending is not forked for each delta: it changes
 * in place, under the lock, and deltas read it under the lock. While a delta is merged in steps,
 * later deltas keep reading it as their own layer, so the partial merge is invisible to them; other
 * sessions wait for its end.
 *
 * The committer freezes pending when it is old or large. It writes it, in transactions of bounded
 * size, once the last delta in it is some seconds old, so that a home which loses its last second
 * is not behind the file; a sync, a close and a lack of memory do not wait for that. The meta
 * sub-database has a record of the unit, which each of them writes: all deltas up to `applied` are
 * complete in the file, and none after `begun` is there in part. A delta holds after-images, so
 * applying those between the two again, in order, completes a write that was cut off. Until that is
 * done the unit cannot be read.
 *
 * Time is that of the deltas: nodes expire, and are deleted, by the clock of the last one committed.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core.h"

enum {
	SLICES_OF_SWEEP = 64,       /* transactions that only delete expired nodes, after a write */
	MERGE_STEP = NDB_ADOPT_MAX, /* nodes merged before other threads get the lock */
	MERGE_YIELDS = 1000,        /* how often a merge yields to them */
	SETTLE_MS = 5000,           /* age of the youngest delta in the file */
	RELEASE_MS = 10,     /* how often the committer looks whether sessions use what it can free */
	FREE_STEP = 4096,    /* entries freed at once */
	FREE_PAUSE_US = 500, /* between two such steps */
	RETRY_MS = 50,       /* delay after a failed write, doubled each time */
	RETRY_MAX_MS = 1000
};

struct ndb_delta {
	ndb_store *store;
	ndb_session *session; /* NULL: frozen */
	ndb_layer layer;      /* once frozen */
	uint64_t clock;
};

struct ndb_unit {
	/* Guarded by the store's lock: */
	ndb_delta *deltas[NDB_DELTAS_MAX]; /* in flight, the oldest first */
	uint32_t count;
	uint64_t needed;     /* number up to which deltas must be applied before the unit can be read */
	uint64_t begun;      /* number of the last delta that the file may have parts of */
	uint64_t begun_mark; /* mark of the delta with that number, once it was applied */
	int loading;         /* a snapshot is being loaded, see snapshot.c */
	uint64_t latest;     /* the clock of the latest delta */
	/* marks of the last committed delta, of the last one in frozen, of the last durable one */
	uint64_t mark, frozen_mark, durable_mark;
	int writing; /* frozen is being written, and may be empty */
	uint64_t frozen_clock;
	uint64_t settled;   /* monotonic ms from which frozen may be written */
	ndb_layer written;  /* was frozen, and is in the file; sessions may still read it */
	ndb_session *spare; /* a session for the next delta */
	/* Only the committer uses them: */
	ndb_layer_place place; /* in frozen */
	uint64_t retry, wait;
};

/* ---- deltas ---- */

static int not_a_unit(void) {
	return ndb_fail(NDB_E_ARGUMENT, "the store was not opened as the state of a pipeline");
}

/* Lock: held. */
static int check_complete(const ndb_store *store) {
	if (store->unit->loading)
		return ndb_fail(NDB_E_INCOMPLETE,
		    "a snapshot is being loaded into %s: load its other chunks first", store->folder);
	if (store->number >= store->unit->needed) return NDB_OK;
	return ndb_fail(NDB_E_INCOMPLETE,
	    "the folder may have parts of the deltas up to %llu, and only those up to %llu are applied: apply the others first",
	    (unsigned long long)store->unit->needed, (unsigned long long)store->number);
}

/* Lock: held. */
static int check_next(const ndb_store *store) {
	const ndb_unit *u = store->unit;
	int error = check_complete(store);
	if (error < 0) return error;
	if (u->count && u->deltas[u->count - 1]->session)
		return ndb_fail(NDB_E_LEVEL, "a delta is open: freeze it before the next one");
	if (u->count == NDB_DELTAS_MAX)
		return ndb_fail(
		    NDB_E_LEVEL, "%d deltas are in flight: commit the oldest first", NDB_DELTAS_MAX);
	return NDB_OK;
}

/* Puts the session in the delta's transaction. Lock: held. */
static void enter(ndb_session *s, ndb_store *store, uint64_t clock) {
	const ndb_unit *u = store->unit;
	s->view.base = store->base, s->view.count = 0;
	for (uint32_t i = u->count; i-- > 0;)
		ndb_view_add(&s->view, ndb_layer_roots(&u->deltas[i]->layer));
	s->above = s->view.count;
	ndb_view_add(&s->view, ndb_layer_roots(&store->frozen));
	ndb_view_hold(&s->view);
	s->unit_moved = store->moved;
	s->begin_bytes = 0;
	s->begin_number = store->number;
	s->version = UINT64_MAX;
	s->clean = 0;
	s->clock = clock;
	s->level = s->in_transaction = s->delta = 1;
	s->changes++;
	s->stamp++;
	store->transactions++;
}

int ndb_delta_begin(ndb_store *store, uint64_t clock, ndb_delta **out) {
	*out = NULL;
	if (!store->unit) return not_a_unit();
	ndb_unit *u = store->unit;
	ndb_delta *d = calloc(1, sizeof *d);
	if (!d) return ndb_fail(NDB_E_MEMORY, "out of memory");
	ndb_session *s = NULL;
	int error = NDB_OK;
	pthread_mutex_lock(&store->lock);
	if (!u->spare) {
		pthread_mutex_unlock(&store->lock);
		error = ndb_session_open(store, &s);
		pthread_mutex_lock(&store->lock);
	}
	if (error == NDB_OK) error = check_next(store);
	if (error == NDB_OK) {
		if (!s) s = u->spare, u->spare = NULL;
		if (clock < u->latest) clock = u->latest;
		u->latest = clock;
		*d = (ndb_delta){.store = store, .session = s, .clock = clock};
		ndb_layer_init(&d->layer);
		enter(s, store, clock);
		u->deltas[u->count++] = d;
		s = NULL;
	}
	pthread_mutex_unlock(&store->lock);
	ndb_session_close(s);
	if (error < 0) free(d);
	else *out = d;
	return error;
}

ndb_session *ndb_delta_session(const ndb_delta *d) { return d->session; }
uint64_t ndb_delta_clock(const ndb_delta *d) { return d->clock; }

static uint64_t layer_memory(const ndb_layer *l) {
	return ndb_layer_bytes(l) + ndb_filter_bytes(l->filter) + ndb_index_bytes(l->index);
}

uint64_t ndb_delta_bytes(const ndb_delta *d) {
	return d->session ? ndb_session_bytes(d->session) : layer_memory(&d->layer);
}

/* Ends the transaction of the delta's session, without its changes. Lock: not held. */
static void leave(ndb_delta *d) {
	ndb_session *s = d->session;
	ndb_store *store = d->store;
	while (s->iterators) ndb_iter_close(s->iterators);
	ndb_transaction_free(s);
	s->delta = 0;
	ndb_tree_clear(&s->local);
	ndb_idle(s);
	pthread_mutex_lock(&store->lock);
	d->session = NULL;
	if (!store->unit->spare) store->unit->spare = s, s = NULL;
	pthread_mutex_unlock(&store->lock);
	ndb_session_close(s);
}

int ndb_delta_freeze(ndb_delta *d) {
	ndb_session *s = d->session;
	if (!s) return ndb_fail(NDB_E_LEVEL, "the delta is frozen");
	if (s->level != 1)
		return ndb_fail(NDB_E_LEVEL, "a transaction in the delta is open: end it first");
	if (s->broken)
		return ndb_fail(s->broken, "a change of the delta failed half way: drop the delta");
	ndb_mark_pop(s, 0);
	d->layer = s->own;
	ndb_layer_init(&s->own);
	ndb_filter_build(&d->layer);
	leave(d);
	return NDB_OK;
}

static int check_frozen(const ndb_delta *d) {
	return d->session ? ndb_fail(NDB_E_LEVEL, "the delta is open: freeze it first") : NDB_OK;
}

int ndb_delta_encoded(const ndb_delta *d, size_t *len) {
	int error = check_frozen(d);
	if (error == NDB_OK) *len = ndb_layer_encoded(&d->layer, d->clock);
	return error;
}

void ndb_delta_encode(const ndb_delta *d, char *out) { ndb_layer_encode(&d->layer, d->clock, out); }

/* ---- commits ---- */

static uint64_t waiting_bytes(const ndb_store *store) {
	return layer_memory(&store->pending) + layer_memory(&store->frozen);
}

/* Waits until pending has room, or fails like the disk does. Lock: held, dropped while it waits. */
static int wait_for_room(ndb_store *store) {
	while (!store->options.never_wait && waiting_bytes(store) >= store->options.pending_bytes) {
		if (store->failure) return ndb_fail(store->failure, "%s", store->failure_text);
		store->sync_to = store->number;
		pthread_cond_signal(&store->work);
		ndb_wait_until(&store->done, &store->lock, ndb_monotonic_ms() + 1000);
	}
	return NDB_OK;
}

/* Lets other threads have the lock. Lock: held, dropped meanwhile. */
static void pause_merge(ndb_store *store) {
	pthread_mutex_unlock(&store->lock);
	for (int i = 0; i < MERGE_YIELDS && atomic_load(&store->readers); i++) sched_yield();
	pthread_mutex_lock(&store->lock);
	/* cursors in pending end here */
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
}

/* Merges a layer into pending. It may be repeated after an error. Lock: held, dropped in between. */
static int merge(ndb_store *store, const ndb_layer *l) {
	ndb_tree_cursor at;
	uint32_t kills = 0;
	int error = NDB_OK;
	store->merging = 1;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	for (ndb_entry *e = ndb_cursor_first(&at, l->kills.root); e && error == NDB_OK;
	     e = ndb_cursor_next(&at)) {
		error = ndb_layer_kill(&store->pending, e->data, e->key_len, 1);
		if (++kills % MERGE_STEP == 0) pause_merge(store);
	}
	ndb_entry *step[MERGE_STEP];
	for (ndb_entry *e = ndb_cursor_first(&at, l->entries.root); e && error == NDB_OK;) {
		uint32_t count = 0;
		for (; e && count < MERGE_STEP; e = ndb_cursor_next(&at)) step[count++] = e;
		error = ndb_layer_adopt(&store->pending, step, count);
		pause_merge(store);
	}
	store->merging = 0;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	pthread_cond_broadcast(&store->done);
	return error;
}

/* Commits a layer under the next number. Lock: held, dropped in between. */
static int commit_layer(
    ndb_store *store, const ndb_layer *l, uint64_t clock, uint64_t number, uint64_t mark) {
	if (store->unit->loading) return check_complete(store);
	if (number != store->number + 1)
		return ndb_fail(NDB_E_ARGUMENT, "the next delta has number %llu, not %llu",
		    (unsigned long long)store->number + 1, (unsigned long long)number);
	int error = wait_for_room(store);
	if (error == NDB_OK) error = merge(store, l);
	if (error < 0) return error;
	store->number = number;
	store->unit->mark = mark;
	if (number == store->unit->begun) store->unit->begun_mark = mark;
	if (clock > atomic_load(&store->clock)) atomic_store(&store->clock, clock);
	if (clock > store->unit->latest) store->unit->latest = clock;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	if (!store->dirty_since) store->dirty_since = ndb_monotonic_ms();
	pthread_cond_signal(&store->work);
	return NDB_OK;
}

static void free_delta(ndb_delta *d) {
	ndb_layer_clear(&d->layer);
	free(d);
}

int ndb_delta_commit(ndb_delta *d, uint64_t number, uint64_t mark) {
	ndb_store *store = d->store;
	ndb_unit *u = store->unit;
	int error = check_frozen(d);
	if (error < 0) return error;
	pthread_mutex_lock(&store->lock);
	if (u->deltas[0] != d)
		error = ndb_fail(NDB_E_LEVEL, "an older delta is in flight: commit it first");
	if (error == NDB_OK) error = commit_layer(store, &d->layer, d->clock, number, mark);
	if (error == NDB_OK) memmove(u->deltas, u->deltas + 1, --u->count * sizeof *u->deltas);
	pthread_mutex_unlock(&store->lock);
	if (error == NDB_OK) free_delta(d);
	return error;
}

int ndb_unit_apply(ndb_store *store, uint64_t number, uint64_t mark, const char *data, size_t len) {
	if (!store->unit) return not_a_unit();
	ndb_layer layer;
	uint64_t clock;
	ndb_layer_init(&layer);
	int error = ndb_layer_decode(data, len, &layer, &clock);
	if (error < 0) return error;
	pthread_mutex_lock(&store->lock);
	if (store->unit->count)
		error = ndb_fail(NDB_E_LEVEL, "deltas are in flight: commit or drop them first");
	if (error == NDB_OK) error = commit_layer(store, &layer, clock, number, mark);
	pthread_mutex_unlock(&store->lock);
	ndb_layer_clear(&layer);
	return error;
}

int ndb_delta_discard(ndb_delta *d) {
	ndb_store *store = d->store;
	ndb_unit *u = store->unit;
	pthread_mutex_lock(&store->lock);
	int last = u->count && u->deltas[u->count - 1] == d;
	pthread_mutex_unlock(&store->lock);
	if (!last) return ndb_fail(NDB_E_LEVEL, "a later delta reads the delta: drop them together");
	if (d->session) leave(d);
	pthread_mutex_lock(&store->lock);
	u->count--;
	u->latest = u->count ? u->deltas[u->count - 1]->clock : atomic_load(&store->clock);
	pthread_mutex_unlock(&store->lock);
	free_delta(d);
	return NDB_OK;
}

void ndb_unit_drop(ndb_store *store) {
	ndb_unit *u = store->unit;
	if (!u) return;
	pthread_mutex_lock(&store->lock);
	while (u->count) {
		ndb_delta *d = u->deltas[--u->count];
		pthread_mutex_unlock(&store->lock);
		if (d->session) leave(d);
		free_delta(d);
		pthread_mutex_lock(&store->lock);
	}
	u->latest = atomic_load(&store->clock);
	pthread_mutex_unlock(&store->lock);
}

int ndb_unit_status(ndb_store *store, ndb_unit_statistics *out) {
	*out = (ndb_unit_statistics){0};
	const ndb_unit *u = store->unit;
	if (!u) return not_a_unit();
	pthread_mutex_lock(&store->lock);
	out->number = store->number, out->applied = store->durable, out->begun = u->begun;
	out->applied_mark = u->durable_mark;
	out->clock = atomic_load(&store->clock);
	out->waiting_nodes = store->pending.entries.count + store->frozen.entries.count;
	out->waiting_bytes = waiting_bytes(store);
	out->in_flight = u->count;
	for (uint32_t i = 0; i < u->count; i++)
		if (!u->deltas[i]->session) out->in_flight_bytes += ndb_delta_bytes(u->deltas[i]);
	int error = NDB_OK;
	if (store->failure) error = ndb_fail(store->failure, "%s", store->failure_text);
	pthread_mutex_unlock(&store->lock);
	return error;
}

int ndb_begin_committed(ndb_session *s) {
	ndb_store *store = s->store;
	if (!store->unit) return not_a_unit();
	pthread_mutex_lock(&store->lock);
	int error = check_complete(store);
	pthread_mutex_unlock(&store->lock);
	return error < 0 ? error : ndb_begin_view(s);
}

int ndb_unit_begun(ndb_store *store, uint64_t *begun, uint64_t *mark) {
	if (!store->unit) return not_a_unit();
	pthread_mutex_lock(&store->lock);
	int error = check_complete(store);
	*begun = store->unit->begun, *mark = store->unit->begun_mark;
	pthread_mutex_unlock(&store->lock);
	return error;
}

int ndb_unit_is_loading(ndb_store *store) {
	if (!store->unit) return not_a_unit();
	pthread_mutex_lock(&store->lock);
	int loading = store->unit->loading;
	pthread_mutex_unlock(&store->lock);
	return loading;
}

int ndb_unit_claim_load(ndb_store *store, int found) {
	if (!store->unit) return not_a_unit();
	int error = NDB_OK;
	pthread_mutex_lock(&store->lock);
	if (!found && (store->number || store->unit->begun || store->base->nodes || store->unit->count))
		error = ndb_fail(
		    NDB_E_ARGUMENT, "%s has nodes: load the snapshot into a new folder", store->folder);
	if (error == NDB_OK) store->unit->loading = 1;
	pthread_mutex_unlock(&store->lock);
	return error;
}

/* ---- the committer ---- */

/* Writes a slice of frozen in one transaction; *done: it was the last one. Lock: not held. */
static int write_slice(
    ndb_store *store, ndb_unit_record record, int after_failure, uint32_t *sweeps, int *done) {
	ndb_unit *u = store->unit;
	const uint64_t durable = record.applied, durable_mark = u->durable_mark;
	ndb_layer_place place;
	int rc;
	pthread_mutex_lock(&store->map_lock);
	for (;;) {
		MDB_txn *txn;
		place = u->place;
		*done = 0;
		if (after_failure) lmdb_forgive(store->env);
		if ((rc = mdb_txn_begin(store->env, NULL, 0, &txn)) == 0) {
			rc = ndb_layer_write(store, txn, &store->frozen, &place, store->options.slice_nodes);
			int written = !place.kill && !place.entry;
			uint32_t left = store->options.slice_nodes;
			if (rc == 0 && written) rc = ndb_sweep(store, txn, record.clock, &left);
			*done = written && (left || *sweeps == SLICES_OF_SWEEP);
			record.applied = written ? store->frozen_number : durable;
			record.mark = written ? u->frozen_mark : durable_mark;
			if (rc == 0) rc = ndb_unit_write(store, txn, record);
			if (rc == 0) rc = mdb_txn_commit(txn);
			else mdb_txn_abort(txn);
			*sweeps += rc == 0 && written;
		}
		if (rc != MDB_MAP_RESIZED && rc != MDB_MAP_FULL) break;
		if ((rc = ndb_store_remap_locked(
		         store, rc == MDB_MAP_RESIZED ? 0 : lmdb_map_size(store->env) * 2)) != 0)
			break;
	}
	pthread_mutex_unlock(&store->map_lock);
	if (rc) return ndb_lmdb_error(rc, "write the unit");
	u->place = place;
	return NDB_OK;
}

/* Makes pending frozen. Lock: held. */
static void freeze_pending(ndb_store *store) {
	ndb_unit *u = store->unit;
	uint64_t age = (uint64_t)store->options.flush_ms;
	u->settled = ndb_monotonic_ms() + (age < SETTLE_MS ? age : SETTLE_MS);
	store->frozen = store->pending;
	ndb_layer_init(&store->pending);
	store->frozen_number = store->number;
	/* It stays above that until all deltas with parts in the file were applied again. */
	if (store->number >= u->begun) u->begun = store->number, u->begun_mark = u->mark;
	u->frozen_clock = atomic_load(&store->clock);
	u->frozen_mark = u->mark;
	store->dirty_since = 0;
	store->moved++;
	u->place = (ndb_layer_place){.started = 0};
	u->writing = 1;
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
}

static void note_failure(ndb_store *store, int error) {
	ndb_unit *u = store->unit;
	store->failure = error;
	store->attempts++;
	snprintf(store->failure_text, sizeof store->failure_text, "%s", ndb_message());
	u->retry = ndb_monotonic_ms() + u->wait;
	u->wait = u->wait * 2 < RETRY_MAX_MS ? u->wait * 2 : RETRY_MAX_MS;
	pthread_cond_broadcast(&store->done);
}

/* True if somebody waits for the disk. Lock: held. */
static int is_awaited(const ndb_store *store) {
	return store->stop || store->sync_to > store->durable;
}

/* Frees a tree that nobody else uses, in steps. glibc sorts freed memory when the thread that had
 * allocated it asks for more: after a million entries at once, the script would sort them within one
 * event. Lock: not held. */
static void free_in_steps(ndb_store *store, ndb_tree *t) {
	int awaited = 0;
	while (t->root && !awaited) {
		ndb_tree_cursor at;
		const ndb_entry *first = ndb_cursor_first(&at, t->root), *end = first;
		for (int i = 0; end && i < FREE_STEP; i++) end = ndb_cursor_next(&at);
		if (!end || ndb_tree_cut(t, first->data, first->key_len, end->data, end->key_len) < 0)
			break;
		usleep(FREE_PAUSE_US);
		pthread_mutex_lock(&store->lock);
		awaited = is_awaited(store);
		pthread_mutex_unlock(&store->lock);
	}
	ndb_tree_clear(t);
}

/* Frees the written layer. It may have millions of nodes, which takes longer than an event may: the
 * committer does it without the lock, once no session would do it by ending its view. Lock: held,
 * dropped meanwhile. */
static void free_written(ndb_store *store) {
	ndb_layer written = store->unit->written;
	ndb_layer_init(&store->unit->written);
	pthread_mutex_unlock(&store->lock);
	if (!ndb_layer_is_shared(&written)) free_in_steps(store, &written.entries);
	ndb_layer_clear(&written);
	pthread_mutex_lock(&store->lock);
}

/* Writes frozen, in slices. Lock: held, dropped while it writes and frees. */
static void write_frozen(ndb_store *store) {
	ndb_unit *u = store->unit;
	uint32_t sweeps = 0;
	free_written(store);
	for (int done = 0; !done;) {
		ndb_unit_record record = {store->durable, u->begun, u->frozen_clock, 0};
		int after_failure = store->failure != 0;
		ndb_snapshot *fresh = NULL, *before;
		store->committing = 1;
		pthread_mutex_unlock(&store->lock);
		int error = write_slice(store, record, after_failure, &sweeps, &done);
		if (error == NDB_OK) error = ndb_snapshot_open(store, &fresh);
		pthread_mutex_lock(&store->lock);
		store->committing = 0;
		if (error < 0) {
			note_failure(store, error);
			return;
		}
		before = store->base;
		store->base = fresh;
		store->commits++;
		store->moved++;
		store->failure = 0, u->wait = RETRY_MS;
		if (done) {
			u->written = store->frozen;
			ndb_layer_init(&store->frozen);
			store->durable = store->frozen_number;
			u->durable_mark = u->frozen_mark;
			u->writing = 0;
			pthread_cond_broadcast(&store->done);
		}
		atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
		ndb_store_held(store);
		pthread_mutex_unlock(&store->lock);
		ndb_snapshot_unref(before);
		pthread_mutex_lock(&store->lock);
	}
}

/* When the committer must freeze pending, or write frozen; 0: now, UINT64_MAX: neither. A write begins
 * at three quarters of the memory, and a freeze before, so that a large layer has time to settle. Lock:
 * held. */
static uint64_t due(const ndb_store *store) {
	const ndb_unit *u = store->unit;
	const uint64_t limit = store->options.pending_bytes;
	if (u->writing)
		return is_awaited(store) || waiting_bytes(store) >= limit / 4 * 3 || u->settled < u->retry
		           ? u->retry
		           : u->settled;
	if (!store->dirty_since || store->merging) return UINT64_MAX;
	if (is_awaited(store) || layer_memory(&store->pending) >= limit / 8 * 5) return 0;
	return store->dirty_since + (uint64_t)store->options.flush_ms;
}

/* Frees the written layer and replaced maps that sessions do not use any more. Returns whether some are
 * left. Lock: held, dropped meanwhile. */
static int free_unused(ndb_store *store) {
	const ndb_layer *written = &store->unit->written;
	if (!ndb_layer_empty(written) && !ndb_layer_is_shared(written)) free_written(store);
	pthread_mutex_unlock(&store->lock);
	int left = ndb_store_unmap(store, 0);
	pthread_mutex_lock(&store->lock);
	return left || !ndb_layer_empty(written);
}

/* Lock: held, dropped while it writes or waits. */
static void *committer(void *argument) {
	ndb_store *store = argument;
	pthread_mutex_lock(&store->lock);
	for (;;) {
		int left = free_unused(store);
		uint64_t at = due(store), now = ndb_monotonic_ms();
		if (left && at > now + RELEASE_MS) at = now + RELEASE_MS;
		if (at <= now) {
			if (store->unit->writing) write_frozen(store);
			else freeze_pending(store);
			continue;
		}
		if (store->stop && (due(store) == UINT64_MAX || store->failure)) break;
		if (at == UINT64_MAX) pthread_cond_wait(&store->work, &store->lock);
		else ndb_wait_until(&store->work, &store->lock, at);
	}
	store->committer_runs = 0;
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* ---- opening ---- */

int ndb_unit_start(ndb_store *store) {
	ndb_unit_record record;
	ndb_unit_loading loading;
	int error = ndb_unit_read(store, store->base->txn, &record);
	if (error < 0) return error;
	int load = ndb_loading_read(store, store->base->txn, &loading);
	if (load < 0) return load;
	if (record.begun < record.applied)
		return ndb_fail(NDB_E_CORRUPT, "the unit's record is damaged");
	ndb_unit *u = calloc(1, sizeof *u);
	if (!u) return ndb_fail(NDB_E_MEMORY, "out of memory");
	u->needed = u->begun = record.begun;
	u->mark = u->frozen_mark = u->durable_mark = u->begun_mark = record.mark;
	u->latest = record.clock ? record.clock : 1;
	u->wait = RETRY_MS;
	u->loading = load == NDB_OK;
	ndb_layer_init(&u->written);
	atomic_store(&store->clock, u->latest);
	store->number = store->durable = store->frozen_number = record.applied;
	store->unit = u;
	int rc = pthread_create(&store->committer, NULL, committer, store);
	if (rc) return ndb_lmdb_error(rc, "start the committer");
	store->committer_runs = 1;
	return NDB_OK;
}

void ndb_unit_free(ndb_store *store) {
	if (!store->unit) return;
	ndb_layer_clear(&store->unit->written);
	ndb_store_unmap(store, 1);
	free(store->unit);
	store->unit = NULL;
}

void ndb_unit_retire(ndb_store *store) {
	if (!store->unit) return;
	ndb_unit_drop(store);
	pthread_mutex_lock(&store->lock);
	ndb_session *s = store->unit->spare;
	store->unit->spare = NULL;
	pthread_mutex_unlock(&store->lock);
	ndb_session_close(s);
}
