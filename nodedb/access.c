//go:build cgo && lmdb

/* access.c: reads of a session, inside and outside transactions.
 *
 * Outside a transaction a session keeps a reference to the last LMDB snapshot that it read. While
 * the store's version is unchanged and no changes are pending, reads use that snapshot without a
 * lock.
 */
#include "core.h"

int ndb_session_enter(ndb_session *s) {
	if (NDB_UNLIKELY(s->held != NULL)) {
		ndb_entry_unref(s->held);
		s->held = NULL;
	}
	if (!s->store) return NDB_OK;
	uint32_t now = atomic_load_explicit(&s->store->superseded, memory_order_acquire);
	if (NDB_UNLIKELY(now != s->superseded)) {
		s->superseded = now;
		if (s->level) ndb_transaction_free(s);
		return ndb_fail(NDB_E_SUPERSEDED,
		    "this process was suspended for so long that another took over; changes that were not durable are lost, and an "
		    "open transaction is rolled back");
	}
	return NDB_OK;
}

int ndb_no_store(void) {
	return ndb_fail(NDB_E_ARGUMENT, "the session has no store: use names without ^");
}

void ndb_idle(ndb_session *s) {
	if (s->level) return;
	ndb_entry_unref(s->held);
	s->held = NULL;
	if (s->store) pthread_mutex_lock(&s->store->lock); /* the releaser may release the view, too */
	ndb_view_release(&s->view);
	s->clean = 0;
	s->version = UINT64_MAX;
	if (s->store) pthread_mutex_unlock(&s->store->lock);
	s->stamp++;
}

/* Sets the session's base to the store's base. Lock: held. */
static void follow_base(ndb_session *s) {
	ndb_store *store = s->store;
	if (s->view.base != store->base) {
		ndb_snapshot_unref(s->view.base);
		s->view.base = ndb_snapshot_ref(store->base);
	}
	s->stamp++;
	s->number = store->base->number;
	ndb_store_held(store);
	atomic_store_explicit(&s->version, atomic_load_explicit(&store->version, memory_order_relaxed),
	    memory_order_relaxed);
	s->clean = ndb_layer_empty(&store->pending) && ndb_layer_empty(&store->frozen);
	ndb_session_waiting(s);
}

static inline int is_current(const ndb_session *s) {
	return s->clean &&
	       atomic_load_explicit(&s->version, memory_order_relaxed) ==
	           atomic_load_explicit(&s->store->version, memory_order_acquire) &&
	       *s->store->last_commit == s->number;
}

/* Sets base to the last commit, unless this process has uncommitted changes, while which no other
 * process commits. Lock: not held; held on return, unless it fails. */
static int lock_read(ndb_store *store) {
	pthread_mutex_lock(&store->lock);
	ndb_unit_settle(store);
	if ((!store->base || *store->last_commit != store->base->number) &&
	    ndb_layer_empty(&store->frozen) && ndb_layer_empty(&store->pending)) {
		int error = ndb_store_refresh(store);
		if (error < 0) {
			pthread_mutex_unlock(&store->lock);
			return error;
		}
	}
	return NDB_OK;
}

static void pending_view(const ndb_store *store, ndb_view *out) {
	out->base = store->base, out->count = 0;
	out->now = atomic_load_explicit(&store->clock, memory_order_relaxed);
	ndb_roots pending = ndb_layer_roots(&store->pending);
	pending.index = NULL; /* it changes, and the view may be kept */
	ndb_view_add(out, pending);
	ndb_view_add(out, ndb_layer_roots(&store->frozen));
}

/* Lock: held in a delta. */
static void own_view(const ndb_session *s, ndb_view *out) {
	out->base = s->view.base, out->now = s->clock, out->count = 0;
	ndb_view_add(out, ndb_layer_roots(&s->own));
	for (uint32_t i = 0; i < s->above; i++) out->layers[out->count++] = s->view.layers[i];
	if (NDB_UNLIKELY(s->delta)) ndb_view_add(out, ndb_layer_roots(&s->store->pending));
	for (uint32_t i = s->above; i < s->view.count; i++)
		out->layers[out->count++] = s->view.layers[i];
}

static void local_view(const ndb_session *s, ndb_view *out) {
	out->base = NULL, out->now = s->clock, out->count = 0;
	ndb_view_add(out, (ndb_roots){.entries = s->local.root});
}

/* In a delta: makes frozen and base those of the store, which belong to its pending. Lock: held. */
static void follow_unit(ndb_session *s) {
	ndb_store *store = s->store;
	if (s->unit_moved == store->moved) return;
	ndb_view below = {.base = s->view.base, .count = s->view.count - s->above};
	memcpy(below.layers, s->view.layers + s->above, below.count * sizeof *below.layers);
	s->view.base = store->base, s->view.count = s->above;
	ndb_view_add(&s->view, ndb_layer_roots(&store->frozen));
	ndb_snapshot_ref(s->view.base);
	for (uint32_t i = s->above; i < s->view.count; i++) ndb_roots_ref(&s->view.layers[i]);
	s->unit_moved = store->moved;
	s->stamp++;
	ndb_view_release(&below);
}

int ndb_session_view(ndb_session *s, int stored, ndb_view *out, int *state) {
	*state = 0;
	if (!stored) {
		local_view(s, out);
		return NDB_OK;
	}
	if (!s->store) return ndb_no_store();
	if (s->level) {
		if (NDB_UNLIKELY(s->delta)) {
			*state = NDB_VIEW_LOCKED;
			ndb_unit_lock(s->store);
			follow_unit(s);
		}
		own_view(s, out);
		return NDB_OK;
	}
	ndb_read_begin(s);
	if (!is_current(s)) {
		int error = lock_read(s->store);
		if (error < 0) {
			ndb_read_end(s);
			return error;
		}
		follow_base(s);
		if (!s->clean) {
			*state = NDB_VIEW_LOCKED | NDB_VIEW_READING;
			pending_view(s->store, out);
			return NDB_OK;
		}
		pthread_mutex_unlock(&s->store->lock);
	}
	*state = NDB_VIEW_READING;
	out->base = s->view.base, out->count = 0;
	out->now = atomic_load_explicit(&s->store->clock, memory_order_relaxed);
	return NDB_OK;
}

static void unlock_view(ndb_session *s, int state) {
	if (state & NDB_VIEW_LOCKED) pthread_mutex_unlock(&s->store->lock);
}

void ndb_session_view_end(ndb_session *s, int state) {
	unlock_view(s, state);
	if (state & NDB_VIEW_READING) ndb_read_end(s);
}

int ndb_session_capture(ndb_session *s, int stored, ndb_view *out, uint64_t *version) {
	out->base = NULL, out->count = 0;
	if (!stored) {
		local_view(s, out);
		ndb_tree_snapshot(&s->local);
		*version = ndb_session_version(s, stored);
		return NDB_OK;
	}
	if (!s->store) return ndb_no_store();
	if (s->level) {
		/* Pending changes in place: its roots only keep their memory. */
		if (NDB_UNLIKELY(s->delta)) follow_unit(s);
		own_view(s, out);
		ndb_view_hold(out);
		ndb_tree_seal(&s->own.entries);
		ndb_tree_seal(&s->own.kills);
		*version = ndb_session_version(s, stored);
		return NDB_OK;
	}
	ndb_read_begin(s);
	int current = is_current(s);
	if (current) {
		*version = atomic_load_explicit(&s->version, memory_order_relaxed);
		out->base = ndb_snapshot_ref(s->view.base);
		out->now = atomic_load_explicit(&s->store->clock, memory_order_relaxed);
	}
	ndb_read_end(s);
	if (current) return NDB_OK;
	int error = lock_read(s->store);
	if (error < 0) return error;
	follow_base(s);
	pending_view(s->store, out);
	ndb_view_hold(out);
	ndb_tree_seal(&s->store->pending.entries);
	ndb_tree_seal(&s->store->pending.kills);
	*version = s->version;
	pthread_mutex_unlock(&s->store->lock);
	return NDB_OK;
}

uint64_t ndb_session_version(const ndb_session *s, int stored) {
	uint64_t inside = (uint64_t)1 << 63 | s->changes;
	if (NDB_UNLIKELY(ndb_session_holds(s, stored)))
		return inside + atomic_load_explicit(&s->store->version, memory_order_acquire);
	if (!stored || !s->store || s->level) return inside;
	uint64_t version = atomic_load_explicit(&s->store->version, memory_order_acquire);
	/* The session has not read since the last change, or another process has committed, which none
	 * does while this one has uncommitted changes: no earlier result is current. */
	if (atomic_load_explicit(&s->version, memory_order_relaxed) != version ||
	    (s->clean && *s->store->last_commit != s->number))
		return UINT64_MAX;
	return version;
}

static inline void cache_found(ndb_session *s, uint64_t hash, const char *key, size_t len,
    const ndb_scalar *value, ndb_entry *entry) {
	const char *stays = entry ? entry->data : value->bytes - 1 - len;
	if (entry || (value->len < 512 && len < 512 && memcmp(stays, key, len) == 0))
		ndb_cache_put(s, hash, stays, len, value, entry);
}

/* Looks in the cache, then in the view. Results stay valid until the stamp changes. */
static int cached_get(ndb_session *s, const ndb_view *view, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry) {
	uint64_t hash = ndb_hash(key, len);
	const ndb_cached *c = ndb_cache_find(s, hash, key, len);
	if (c) {
		*out = c->value;
		*expiry = 0;
		return NDB_OK;
	}
	if (ndb_session_records(s)) ndb_reads_point(&s->reads, key, len);
	ndb_entry *entry;
	int result = ndb_view_find(s->store, view, key, len, out, expiry, &entry);
	if (result != NDB_OK || *expiry) return result;
	cache_found(s, hash, key, len, out, entry);
	return NDB_OK;
}

/* Copies the text of a value from LMDB, since the releaser may release its page after the call. */
static int copy_value(ndb_session *s, ndb_scalar *value) {
	if ((value->type != NDB_STRING && value->type != NDB_DIGITS) || !value->len) return NDB_OK;
	if (value->len <= sizeof s->value) {
		ndb_copy(s->value, value->bytes, value->len);
		value->bytes = s->value;
		return NDB_OK;
	}
	s->held = ndb_entry_new("", 0, value, 0);
	if (!s->held) return ndb_fail(NDB_E_MEMORY, "out of memory");
	ndb_entry_scalar(s->held, value);
	return NDB_OK;
}

/* A lookup in a delta. Lock: not held. */
static int delta_get(
    ndb_session *s, const char *key, size_t len, ndb_scalar *out, uint64_t *expiry) {
	uint64_t hash = ndb_hash(key, len);
	const ndb_cached *c = ndb_cache_find(s, hash, key, len);
	if (c) {
		*out = c->value;
		*expiry = 0;
		return NDB_OK;
	}
	ndb_entry *entry = NULL;
	ndb_roots own = ndb_layer_roots(&s->own);
	int result = ndb_layers_find(&own, 1, s->clock, hash, key, len, out, expiry, &entry);
	if (result == NDB_MORE)
		result = ndb_layers_find(
		    s->view.layers, s->above, s->clock, hash, key, len, out, expiry, &entry);
	if (result == NDB_MORE) {
		ndb_unit_lock(s->store);
		follow_unit(s);
		ndb_roots pending = ndb_layer_roots(&s->store->pending);
		result = ndb_layers_find(&pending, 1, s->clock, hash, key, len, out, expiry, &entry);
		if (result == NDB_OK && out->type >= NDB_DIGITS && out->len) s->held = ndb_entry_ref(entry);
		pthread_mutex_unlock(&s->store->lock);
		if (result != NDB_MORE) return result; /* not cached: it may change */
		result = ndb_layers_find(s->view.layers + s->above, s->view.count - s->above, s->clock,
		    hash, key, len, out, expiry, &entry);
	}
	if (result == NDB_MORE)
		result = ndb_base_find(s->store, s->view.base, s->clock, key, len, out, expiry);
	if (result == NDB_OK && !*expiry) cache_found(s, hash, key, len, out, entry);
	return result;
}

int ndb_get(ndb_session *s, const char *key, size_t len, ndb_scalar *out) {
	uint64_t expiry = 0;
	int result = ndb_session_enter(s);
	if (NDB_UNLIKELY(result < 0)) return result;
	if (!ndb_is_stored(key, len)) {
		ndb_view local;
		local_view(s, &local);
		return ndb_view_get(s->store, &local, key, len, out, &expiry);
	}
	if (NDB_UNLIKELY(s->delta)) return delta_get(s, key, len, out, &expiry);
	ndb_view view;
	int state;
	if ((result = ndb_session_view(s, 1, &view, &state)) < 0) return result;
	if (!(state & NDB_VIEW_LOCKED)) {
		result = cached_get(s, &view, key, len, out, &expiry);
		if (!(state & NDB_VIEW_READING)) return result; /* a transaction keeps its snapshot */
		if (result == NDB_OK) result = copy_value(s, out);
		ndb_session_view_end(s, state);
		return result;
	}
	ndb_entry *entry;
	result = ndb_layers_find(view.layers, view.count, view.now, 0, key, len, out, &expiry, &entry);
	if (result == NDB_OK && out->type >= NDB_DIGITS && out->len) s->held = ndb_entry_ref(entry);
	unlock_view(s, state);
	if (result == NDB_MORE) { /* LMDB is read without the lock */
		result = ndb_base_find(s->store, s->view.base, view.now, key, len, out, &expiry);
		if (result == NDB_OK) result = copy_value(s, out);
	}
	ndb_read_end(s);
	return result;
}

int ndb_change_look(
    ndb_session *s, const char *key, size_t len, ndb_scalar *out, uint64_t *expiry) {
	ndb_view view;
	if (!ndb_is_stored(key, len)) {
		local_view(s, &view);
	} else if (NDB_UNLIKELY(s->delta)) {
		return delta_get(s, key, len, out, expiry);
	} else if (s->level) {
		own_view(s, &view);
		return cached_get(s, &view, key, len, out, expiry);
	} else {
		pending_view(s->store, &view);
	}
	return ndb_view_get(s->store, &view, key, len, out, expiry);
}
