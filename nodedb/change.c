//go:build cgo && lmdb

/* change.c: changes of nodes: in a transaction to its own layer, outside to pending. */
#include <stdlib.h>

#include "core.h"

static uint64_t transaction_bytes(const ndb_session *s) {
	return s->store ? s->store->options.transaction_bytes : 256u << 20;
}

/* Deletes may use twice the limit, so that a full transaction can still be made smaller. */
static uint64_t transaction_limit(const ndb_session *s, const ndb_entry *e) {
	return e->type == NDB_ABSENT ? 2 * transaction_bytes(s) : transaction_bytes(s);
}

static int too_large(const ndb_session *s) {
	return ndb_fail(NDB_E_FULL,
	    "the changes of the transaction are larger than %llu bytes: commit more often, or raise transaction_bytes",
	    (unsigned long long)transaction_bytes(s));
}

int ndb_change_allowed(const ndb_session *s) {
	if (!s->store) return ndb_no_store();
	if (s->read_only || s->store->options.read_only)
		return ndb_fail(
		    NDB_E_ARGUMENT, "the store was opened read-only: open it for writing to change nodes");
	if (s->store->unit && !s->delta)
		return ndb_fail(NDB_E_ARGUMENT,
		    "the folder is the state of a pipeline: only its script may change nodes");
	if (s->view_level)
		return ndb_fail(
		    NDB_E_ARGUMENT, "the transaction is read-only: begin one that may change nodes");
	return NDB_OK;
}

int ndb_change_begin(ndb_session *s, const char *key, size_t len) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (len < 2 || len > NDB_KEY_MAX)
		return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes: use 2 to %d bytes", len, NDB_KEY_MAX);
	if (!ndb_is_stored(key, len)) return NDB_OK;
	if ((error = ndb_change_allowed(s)) < 0) return error;
	if (s->level)
		return s->broken
		           ? ndb_fail(s->broken,
		                 "an earlier change of this transaction failed half way: roll it back")
		           : NDB_OK;
	return ndb_store_lock_write(s->store, s);
}

int ndb_change_end(ndb_session *s, const char *key, int result) {
	if (ndb_is_stored(key, 1) && !s->level) pthread_mutex_unlock(&s->store->lock);
	return result;
}

/* Sets a node in the open transaction. Takes ownership of e, also on failure. */
static inline int put_own(ndb_session *s, ndb_entry *e) {
	s->edits++;
	if (!s->mark_count) return ndb_tree_put(&s->own.entries, e);
	ndb_entry *old;
	int error = ndb_undo_reserve(s, 1);
	if (error < 0) ndb_entry_unref(e);
	else if ((error = ndb_tree_replace(&s->own.entries, e, &old)) == NDB_OK)
		ndb_undo_add(s, e, old, 0);
	return error;
}

int ndb_change_put(ndb_session *s, ndb_entry *e) {
	if (!e) return ndb_fail(NDB_E_MEMORY, "out of memory");
	int stored = ndb_is_stored(e->data, 1);
	if (!stored || s->level) {
		ndb_tree *tree = stored ? &s->own.entries : &s->local;
		uint64_t bytes = stored ? ndb_session_own_bytes(s) + s->killed_bytes : tree->bytes;
		if (NDB_UNLIKELY(bytes + ndb_entry_size(e) > transaction_limit(s, e))) {
			ndb_entry_unref(e);
			return too_large(s);
		}
		s->changes++;
		if (!stored) return ndb_tree_put(tree, e);
		uint64_t hash = s->cache ? ndb_hash(e->data, e->key_len) : 0, count = tree->count;
		ndb_cache_drop(s, hash, e->data, e->key_len); /* before its entry is freed */
		int error = put_own(s, e);
		if (error < 0 || tree->count != count || e->type == NDB_ABSENT || e->expiry) return error;
		/* A node changed twice may be changed often. */
		if (!s->cache) hash = ndb_hash(e->data, e->key_len);
		ndb_scalar value;
		ndb_entry_scalar(e, &value);
		ndb_cache_put(s, hash, e->data, e->key_len, &value, e);
		return NDB_OK;
	}
	ndb_store_log(s->store, e, 0);
	ndb_session_gave(s, ndb_entry_size(e));
	int error = ndb_tree_put(&s->store->pending.entries, e);
	ndb_store_changed(s->store);
	return error;
}

int ndb_change_in_place(ndb_session *s, const char *key, size_t len, const ndb_scalar *value) {
	if (!s->level || !s->cache || !ndb_is_stored(key, len)) return 0;
	ndb_cached *c = ndb_cache_find(s, ndb_hash(key, len), key, len);
	if (!c || !c->entry || !ndb_tree_owns(&s->own.entries, c->entry)) return 0;
	ndb_entry *e = c->entry;
	int text = value->type == NDB_STRING || value->type == NDB_DIGITS;
	if (text && value->len > e->value_cap) return 0;
	s->changes++;
	e->type = (uint8_t)value->type;
	e->number = value->type == NDB_NUMBER ? value->number + 0.0 : 0; /* turns -0 into 0 */
	e->value_len = text ? value->len : 0;
	if (text && value->len) memmove(e->data + e->key_len, value->bytes, value->len);
	ndb_entry_scalar(e, &c->value);
	return 1;
}

/* Kills in a copy, which replaces the layer on success. */
static int kill_in_layer(ndb_layer *l, const char *key, size_t len) {
	ndb_layer copy;
	ndb_layer_fork(l, &copy);
	int error = ndb_layer_kill(&copy, key, len, 1);
	ndb_layer *drop = error < 0 ? &copy : l;
	ndb_layer_clear(drop);
	if (error == NDB_OK) *l = copy;
	return error;
}

int ndb_change_cut(
    ndb_session *s, const char *low, size_t low_len, const char *high, size_t high_len) {
	ndb_tree copy;
	ndb_tree_fork(&s->local, &copy);
	int error = ndb_tree_cut(&copy, low, low_len, high, high_len);
	s->changes++;
	if (error < 0) {
		ndb_tree_clear(&copy);
		return error;
	}
	s->shed_local += s->local.shed;
	ndb_tree_clear(&s->local);
	s->local = copy;
	return NDB_OK;
}

/* Records the removal of the entries within key. */
static int record_within(ndb_session *s, const ndb_tree *t, const char *key, size_t len, int kill) {
	ndb_tree_cursor c;
	int error = NDB_OK;
	for (ndb_entry *e = ndb_cursor_seek(&c, t->root, key, len);
	     e && error == NDB_OK && ndb_key_within(e->data, e->key_len, key, len);
	     e = ndb_cursor_next(&c))
		if ((error = ndb_undo_reserve(s, 1)) == NDB_OK)
			ndb_undo_add(s, NULL, ndb_entry_ref(e), kill);
	return error;
}

/* ndb_layer_kill for own, with records for its undo. */
static int kill_recorded(ndb_session *s, ndb_entry *kill) {
	const char *key = kill->data;
	size_t len = kill->key_len;
	char end[NDB_KEY_MAX + 1];
	ndb_key_end(end, key, len);
	int error = record_within(s, &s->own.entries, key, len, 0);
	if (error == NDB_OK) error = ndb_tree_cut(&s->own.entries, key, len, end, len + 1);
	if (error < 0 || ndb_kill_of(s->own.kills.root, key, len)) return error;
	if ((error = record_within(s, &s->own.kills, key, len, 1)) < 0) return error;
	if ((error = ndb_tree_cut(&s->own.kills, key, len, end, len + 1)) < 0) return error;
	if ((error = ndb_undo_reserve(s, 1)) < 0) return error;
	if ((error = ndb_tree_put(&s->own.kills, ndb_entry_ref(kill))) < 0) return error;
	ndb_undo_add(s, kill, NULL, 1);
	return NDB_OK;
}

/* Kills in the open transaction. Takes ownership of e, which has the key. */
static int kill_own(ndb_session *s, ndb_entry *e) {
	int error = NDB_OK;
	if (ndb_session_own_bytes(s) + s->killed_bytes + 2 * ndb_entry_size(e) >
	    transaction_limit(s, e))
		error = too_large(s);
	if (error == NDB_OK && s->killed_count == s->killed_cap) {
		uint32_t cap = s->killed_cap ? s->killed_cap * 2 : 16;
		ndb_entry **grown = realloc(s->killed, cap * sizeof *grown);
		if (grown) s->killed = grown, s->killed_cap = cap;
		else error = ndb_fail(NDB_E_MEMORY, "out of memory");
	}
	s->changes++;
	s->stamp++;
	uint32_t records = s->undo_count;
	if (error == NDB_OK && (error = kill_recorded(s, e)) < 0) ndb_undo_to(s, records);
	if (error < 0) {
		ndb_entry_unref(e);
		return error;
	}
	s->edits++;
	s->killed_bytes += ndb_entry_size(e);
	s->killed[s->killed_count++] = e;
	if (!s->mark_count) ndb_mark_pop(s, 0); /* no mark needs the records */
	return NDB_OK;
}

int ndb_change_kill(ndb_session *s, const char *key, size_t len) {
	if (!ndb_is_stored(key, len)) {
		char end[NDB_KEY_MAX + 1];
		ndb_key_end(end, key, len);
		return ndb_change_cut(s, key, len, end, len + 1);
	}
	ndb_scalar none = {.type = NDB_ABSENT};
	ndb_entry *e = ndb_entry_new(key, len, &none, 0);
	if (!e) return ndb_fail(NDB_E_MEMORY, "out of memory");
	if (s->level) return kill_own(s, e);
	ndb_store_log(s->store, e, 1);
	ndb_session_gave(s, ndb_entry_size(e));
	int error = kill_in_layer(&s->store->pending, key, len);
	ndb_store_changed(s->store);
	ndb_entry_unref(e);
	return error;
}
