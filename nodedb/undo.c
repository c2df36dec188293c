//go:build cgo && lmdb

/* undo.c: rollback of changes, and the end of a transaction.
 *
 * While there is a mark, each change of the own layer is recorded with the entry that it replaced or
 * removed. Undo takes the changes back in reverse order.
 */
#include <stdlib.h>

#include "core.h"

enum {
	LOCAL_STATES_MAX = 1024 /* trees in memory that a session can restore */
};

static int memory(void) { return ndb_fail(NDB_E_MEMORY, "out of memory"); }

/* ---- trees in memory ---- */

/* True if one of the first count states saves the tree with that name ("": all trees) at the level.
 * The oldest state of a level is the one to restore. */
static int is_saved(const ndb_session *s, const char *name, uint32_t count, int level) {
	for (uint32_t i = 0; i < count; i++) {
		const ndb_local_state *l = &s->local_states[i];
		if (l->level == level && (!l->name_len || strcmp(l->name, name) == 0)) return 1;
	}
	return 0;
}

int ndb_locals_save(ndb_session *s, const char *name, size_t name_len) {
	if (is_saved(s, name, s->local_state_count, s->level)) return NDB_OK;
	if (s->local_state_count == LOCAL_STATES_MAX)
		return ndb_fail(NDB_E_ARGUMENT,
		    "a transaction restores at most %d trees in memory by name: use * to restore all trees",
		    LOCAL_STATES_MAX);
	if (s->local_state_count == s->local_state_cap) {
		uint32_t cap = s->local_state_cap ? s->local_state_cap * 2 : 4;
		ndb_local_state *grown = realloc(s->local_states, cap * sizeof *grown);
		if (!grown) return memory();
		s->local_states = grown, s->local_state_cap = cap;
	}
	ndb_local_state *l = &s->local_states[s->local_state_count++];
	l->level = s->level;
	l->name_len = name_len;
	memcpy(l->name, name, sizeof l->name);
	ndb_tree_fork(&s->local, &l->tree);
	l->shed = ndb_session_shed(s, 0);
	return NDB_OK;
}

/* Restores the tree with one name. */
static int restore_name(ndb_session *s, const ndb_local_state *l) {
	char end[NDB_NAME_MAX + 3];
	ndb_key_end(end, l->name, l->name_len);
	int error = ndb_tree_cut(&s->local, l->name, l->name_len, end, l->name_len + 1);
	ndb_tree_cursor c;
	for (ndb_entry *e = ndb_cursor_seek(&c, l->tree.root, l->name, l->name_len);
	     e && error == NDB_OK && ndb_key_within(e->data, e->key_len, l->name, l->name_len);
	     e = ndb_cursor_next(&c))
		error = ndb_tree_put(&s->local, ndb_entry_ref(e));
	return error;
}

int ndb_locals_restore(ndb_session *s, int level) {
	int error = NDB_OK;
	while (s->local_state_count && s->local_states[s->local_state_count - 1].level >= level) {
		ndb_local_state *l = &s->local_states[--s->local_state_count];
		if (l->name_len) {
			int result = restore_name(s, l);
			if (result < 0) error = result;
			ndb_root_unref(l->tree.root);
		} else {
			s->shed_local += s->local.shed + s->local.bytes;
			ndb_root_unref(s->local.root);
			s->local = l->tree;
		}
	}
	return error;
}

void ndb_locals_keep(ndb_session *s, int level) {
	uint32_t first = s->local_state_count, kept;
	while (first > 0 && s->local_states[first - 1].level >= level) first--;
	kept = first;
	for (uint32_t i = first; i < s->local_state_count; i++) {
		ndb_local_state *l = &s->local_states[i];
		if (level == 1 || is_saved(s, l->name, kept, level - 1)) {
			ndb_root_unref(l->tree.root);
			continue;
		}
		l->level = level - 1;
		if (kept != i) s->local_states[kept] = *l;
		kept++;
	}
	s->local_state_count = kept;
}

int ndb_kill_local(ndb_session *s) {
	while (s->local_state_count) ndb_root_unref(s->local_states[--s->local_state_count].tree.root);
	if (!s->local.root) return NDB_OK;
	s->shed_local += s->local.shed + s->local.bytes;
	ndb_root_unref(s->local.root);
	ndb_tree_init(&s->local);
	s->changes++;
	return NDB_OK;
}

/* ---- the undo log ---- */

int ndb_undo_reserve(ndb_session *s, uint32_t count) {
	if (count <= s->undo_cap - s->undo_count) return NDB_OK;
	uint64_t cap = s->undo_cap ? s->undo_cap * (uint64_t)2 : 64;
	while (cap < (uint64_t)s->undo_count + count) cap *= 2;
	ndb_undo_record *grown = cap <= UINT32_MAX ? realloc(s->undo, cap * sizeof *grown) : NULL;
	if (!grown) return memory();
	s->undo = grown, s->undo_cap = (uint32_t)cap;
	return NDB_OK;
}

void ndb_undo_add(ndb_session *s, ndb_entry *added, ndb_entry *removed, int kill) {
	s->undo[s->undo_count++] = (ndb_undo_record){added, removed, kill};
	if (removed) s->undo_bytes += ndb_entry_size(removed);
}

static int undo_record(ndb_session *s, const ndb_undo_record *r) {
	ndb_tree *tree = r->kill ? &s->own.kills : &s->own.entries;
	if (r->removed) return ndb_tree_put(tree, ndb_entry_ref(r->removed));
	char end[NDB_KEY_MAX + 1]; /* the key followed by 00 is the first key after it */
	memcpy(end, r->added->data, r->added->key_len);
	end[r->added->key_len] = 0;
	return ndb_tree_cut(tree, r->added->data, r->added->key_len, end, r->added->key_len + 1u);
}

void ndb_undo_to(ndb_session *s, uint32_t count) {
	while (s->undo_count > count) {
		ndb_undo_record *r = &s->undo[--s->undo_count];
		int error = s->broken ? NDB_OK : undo_record(s, r);
		if (error < 0) s->broken = error;
		if (!r->removed) continue;
		s->undo_bytes -= ndb_entry_size(r->removed);
		ndb_entry_unref(r->removed);
	}
	/* an earlier mark may need the entries that were put back */
	ndb_tree_seal(&s->own.entries);
}

static void drop_log(ndb_session *s) {
	for (; s->undo_count; s->undo_count--) ndb_entry_unref(s->undo[s->undo_count - 1].removed);
	s->undo_bytes = 0;
}

/* ---- marks ---- */

int ndb_mark_push(ndb_session *s) {
	if (s->mark_count == s->mark_cap) {
		uint32_t cap = s->mark_cap ? s->mark_cap * 2 : 8;
		ndb_mark_state *grown = realloc(s->marks, cap * sizeof *grown);
		if (!grown) return memory();
		s->marks = grown, s->mark_cap = cap;
	}
	ndb_tree_seal(&s->own.entries); /* no change in place of an entry that the mark needs */
	s->marks[s->mark_count++] = (ndb_mark_state){s->undo_count, s->killed_count, s->edits};
	return NDB_OK;
}

void ndb_mark_pop(ndb_session *s, uint32_t count) {
	if (s->mark_count > count) s->mark_count = count;
	if (!s->mark_count) drop_log(s);
}

/* Removes kills from the given number on. */
static void drop_kills(ndb_session *s, uint32_t count) {
	while (s->killed_count > count) {
		ndb_entry *e = s->killed[--s->killed_count];
		s->killed_bytes -= ndb_entry_size(e);
		ndb_entry_unref(e);
	}
}

/* Counts all bytes of own as shed, before its tree is replaced. */
static void shed_own(ndb_session *s) {
	s->shed_stored += s->own.entries.shed + s->own.kills.shed + ndb_session_own_bytes(s);
	s->own.entries.shed = s->own.kills.shed = 0;
}

void ndb_mark_undo(ndb_session *s, uint32_t mark) {
	s->mark_count = mark + 1;
	const ndb_mark_state *m = &s->marks[mark];
	ndb_undo_to(s, m->undo);
	drop_kills(s, m->killed);
	s->edits = m->edits;
	s->changes++;
	s->stamp++;
}

/* ---- the end of a transaction ---- */

void ndb_changes_drop(ndb_session *s) {
	ndb_mark_pop(s, 0);
	ndb_layer_clear(&s->own);
	drop_kills(s, 0);
	ndb_root_unref(s->begin_entries);
	ndb_root_unref(s->begin_kills);
	s->begin_entries = s->begin_kills = NULL;
	for (uint32_t i = 0; i < s->view.count; i++) ndb_roots_unref(&s->view.layers[i]);
	s->view.count = s->above = 0;
	ndb_reads_reset(&s->reads);
	s->edits = 0;
	s->broken = 0;
	s->changes++;
	s->stamp++;
}

void ndb_exclusive_release(ndb_session *s) {
	if (s->store->exclusive != s) return;
	s->store->exclusive = NULL;
	pthread_cond_broadcast(&s->store->done);
}

void ndb_transaction_leave(ndb_session *s) {
	if (s->store) shed_own(s);
	s->level = s->in_transaction = s->view_level = 0;
	s->clock = 0;
	s->version = UINT64_MAX;
	if (!s->store) return;
	ndb_store_held(s->store);
	s->store->transactions--;
	ndb_store_trim_log(s->store);
}

void ndb_transaction_free(ndb_session *s) {
	if (s->store) {
		pthread_mutex_lock(&s->store->lock);
		ndb_transaction_leave(s);
		ndb_exclusive_release(s);
		pthread_mutex_unlock(&s->store->lock);
	} else {
		ndb_transaction_leave(s);
	}
	ndb_locals_restore(s, 1);
	ndb_changes_drop(s);
	s->conflicts = 0;
}
