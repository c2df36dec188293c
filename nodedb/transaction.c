//go:build cgo && lmdb

/* transaction.c: transactions as trees that share their unchanged nodes.
 *
 * A transaction forks pending at begin, and reads and changes its fork without a lock. It commits
 * in memory by replacing pending with the fork. If pending has changed meanwhile, it compares the
 * keys of the other commits with its own reads. Without a conflict it applies its changes, the
 * difference between its fork now and at begin, to the current pending. undo.c implements marks.
 */
#include <stdlib.h>

#include "core.h"

enum {
	CONFLICTS_MAX = 2 /* consecutive conflicts after which a transaction runs alone */
};

/* ---- trees in memory ---- */

int ndb_restore_local(ndb_session *s, const char *name, size_t len) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (!s->level)
		return ndb_fail(
		    NDB_E_LEVEL, "no transaction is open: begin one, then name the trees to restore");
	int all = len == 1 && *name == '*';
	if (!all && (len == 0 || len > NDB_NAME_MAX || *name == '^'))
		return ndb_fail(
		    NDB_E_ARGUMENT, "invalid name: use that of a tree in memory, without ^, or * for all");
	char own_name[NDB_NAME_MAX + 2] = {0};
	if (!all) memcpy(own_name, name, len);
	return ndb_locals_save(s, own_name, all ? 0 : len + 1);
}

/* ---- marks ---- */

static int in_transaction(ndb_session *s) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (!s->level) return ndb_fail(NDB_E_LEVEL, "no transaction is open");
	return NDB_OK;
}

uint64_t ndb_mark(ndb_session *s) {
	if (!s->level) return 0;
	const ndb_mark_state *last = s->mark_count ? &s->marks[s->mark_count - 1] : NULL;
	/* Reuse the last mark if nothing has changed since, but not the mark of a level. */
	if (last && last->undo == s->undo_count && last->edits == s->edits &&
	    s->level_mark[s->level] < s->mark_count - (s->level > 1 ? 1u : 0u))
		return s->mark_count;
	return ndb_mark_push(s) < 0 ? 0 : s->mark_count;
}

int ndb_undo(ndb_session *s, uint64_t mark) {
	int error = in_transaction(s);
	if (error < 0) return error;
	uint32_t least = s->level > 1 ? s->level_mark[s->level] + 1 : 0;
	if (mark <= least || mark > s->mark_count)
		return ndb_fail(NDB_E_LEVEL, "mark %llu does not belong to the innermost transaction",
		    (unsigned long long)mark);
	ndb_mark_undo(s, (uint32_t)mark - 1);
	return NDB_OK;
}

/* Refuses to end a delta by a call on its session. */
static int refuse_to_end(const ndb_session *s) {
	return ndb_fail(NDB_E_LEVEL,
	    "the transaction at level %d is the delivery's, which commits or drops it: begin one inside it",
	    s->level);
}

/* ---- begin ---- */

/* Captures the state that the transaction starts from. Lock: not held. */
static int start(ndb_session *s) {
	ndb_store *store = s->store;
	if (!store) {
		s->level = 1;
		s->clock = ndb_now_ms();
		return NDB_OK;
	}
	int error = NDB_OK;
	int alone = s->conflicts >= CONFLICTS_MAX && !s->read_only && !store->options.read_only;
	if (alone) {
		/* With the right to write, no other session or process can commit. */
		if ((error = ndb_store_lock_write(store, s)) < 0) return error;
		store->exclusive = s;
		store->exclusive_since = ndb_monotonic_ms();
	} else {
		pthread_mutex_lock(&store->lock);
		ndb_unit_settle(store);
		if (ndb_layer_empty(&store->pending) && ndb_layer_empty(&store->frozen))
			error = ndb_store_refresh(store);
		if (error < 0) {
			pthread_mutex_unlock(&store->lock);
			return error;
		}
	}
	if (s->view.base != store->base) {
		ndb_snapshot_unref(s->view.base);
		s->view.base = ndb_snapshot_ref(store->base);
	}
	ndb_view_add(&s->view, ndb_layer_roots(&store->frozen));
	for (uint32_t i = 0; i < s->view.count; i++) ndb_roots_ref(&s->view.layers[i]);
	ndb_layer_fork(&store->pending, &s->own);
	s->begin_entries = ndb_root_ref(s->own.entries.root);
	s->begin_kills = ndb_root_ref(s->own.kills.root);
	s->begin_bytes = ndb_layer_bytes(&s->own);
	s->begin_foreign = store->foreign;
	s->begin_log = store->log_end;
	s->begin_number = store->number;
	s->version = atomic_load(&store->version);
	s->clean = 0;
	uint64_t clock = atomic_load_explicit(&store->clock, memory_order_relaxed);
	s->clock = clock ? clock : ndb_now_ms();
	s->level = s->in_transaction = 1;
	s->changes++;
	s->stamp++;
	store->transactions++;
	pthread_mutex_unlock(&store->lock);
	return NDB_OK;
}

int ndb_begin_view(ndb_session *s) {
	int error = ndb_begin(s);
	if (error == NDB_OK && !s->view_level) s->view_level = s->level;
	return error;
}

/* Ends the innermost transaction; an outer one continues. */
static void leave_inner(ndb_session *s) {
	s->level--;
	if (s->view_level > s->level) s->view_level = 0;
}

int ndb_begin(ndb_session *s) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (!s->level) return start(s);
	if (s->level == NDB_LEVELS)
		return ndb_fail(
		    NDB_E_LEVEL, "too many nested transactions: at most %d are allowed", NDB_LEVELS);
	s->level_mark[s->level + 1] = s->mark_count;
	if ((error = ndb_mark_push(s)) < 0) return error;
	s->level++;
	return NDB_OK;
}

int ndb_level(ndb_session *s) { return s->level; }

/* ---- commit and rollback ---- */

typedef struct {
	ndb_store *store;
	ndb_layer *onto; /* NULL: only log the change */
} replay;

static int replay_entry(void *user, ndb_entry *e) {
	replay *r = user;
	ndb_store_log(r->store, e, 0);
	return r->onto ? ndb_tree_put(&r->onto->entries, ndb_entry_ref(e)) : NDB_OK;
}

/* True if a commit since begin changed nodes that the transaction has read. Lock: held. */
static int conflicts(const ndb_session *s) {
	const ndb_store *store = s->store;
	if (!s->reads.any) return 0;
	if (store->foreign !=
	    s->begin_foreign) { /* it is unknown which nodes another process changed */
		ndb_view before = s->view, now = {.base = store->base, .now = s->clock};
		before.now = s->clock, before.count = 0;
		ndb_view_add(&before, (ndb_roots){.entries = s->begin_entries, .kills = s->begin_kills});
		for (uint32_t i = 0; i < s->view.count; i++) ndb_view_add(&before, s->view.layers[i]);
		ndb_view_add(&now, ndb_layer_roots(&store->pending));
		ndb_view_add(&now, ndb_layer_roots(&store->frozen));
		return !ndb_reads_same(&s->reads, store, &before, &now);
	}
	if (store->log_start > s->begin_log) return 1;
	for (uint64_t i = s->begin_log; i < store->log_end; i++) {
		ndb_entry *e = store->log[i - store->log_start].entry;
		if (ndb_reads_meet(&s->reads, e->data, e->key_len, store->log[i - store->log_start].kill))
			return 1;
	}
	return 0;
}

/* Applies the changes to the current pending; all of them or none. Lock: held. */
static int merge_changes(ndb_session *s) {
	ndb_store *store = s->store;
	ndb_layer result;
	ndb_layer_fork(&store->pending, &result);
	int error = NDB_OK;
	for (uint32_t i = 0; i < s->killed_count && error == NDB_OK; i++) {
		ndb_store_log(store, s->killed[i], 1);
		error = ndb_layer_kill(&result, s->killed[i]->data, s->killed[i]->key_len, 1);
	}
	replay r = {store, &result};
	if (error == NDB_OK)
		error = ndb_root_diff(s->begin_entries, s->own.entries.root, replay_entry, &r);
	if (error < 0) {
		ndb_layer_clear(&result);
		return error;
	}
	ndb_layer_clear(&store->pending);
	store->pending = result;
	return NDB_OK;
}

/* Lock: not held. */
static int commit_outermost(ndb_session *s, uint64_t *number) {
	ndb_store *store = s->store;
	if (!store || !s->edits) { /* it read one snapshot, so nothing can conflict */
		if (number) *number = s->begin_number;
		if (store) pthread_mutex_lock(&store->lock);
		ndb_transaction_leave(s);
		if (store) {
			ndb_exclusive_release(s);
			pthread_mutex_unlock(&store->lock);
		}
	} else {
		int error = ndb_store_lock_write(store, s);
		if (error < 0) return error;
		uint64_t given = ndb_session_own_bytes(s) - s->undo_bytes + s->killed_bytes;
		if (store->version == s->version) {
			if (store->transactions > 1) {
				for (uint32_t i = 0; i < s->killed_count; i++)
					ndb_store_log(store, s->killed[i], 1);
				replay r = {store, NULL};
				ndb_root_diff(s->begin_entries, s->own.entries.root, replay_entry, &r);
			}
			ndb_layer before = store->pending;
			s->shed_stored += s->own.entries.shed + s->own.kills.shed;
			store->pending = s->own;
			s->own = before;
		} else if (conflicts(s)) {
			s->conflicts++;
			ndb_transaction_leave(s);
			pthread_mutex_unlock(&store->lock);
			int restored = ndb_locals_restore(s, 1);
			ndb_changes_drop(s);
			if (restored < 0 || (error = start(s)) < 0) {
				if (s->level) ndb_transaction_free(s);
				return restored < 0 ? restored : error;
			}
			return ndb_fail(NDB_E_CONFLICT,
			    "another transaction changed nodes that this one read: run it again");
		} else if ((error = merge_changes(s)) < 0) {
			pthread_mutex_unlock(&store->lock);
			return error;
		}
		ndb_session_gave(s, given);
		ndb_store_changed(store);
		if (number) *number = store->number;
		ndb_transaction_leave(s);
		ndb_exclusive_release(s);
		pthread_mutex_unlock(&store->lock);
	}
	ndb_locals_keep(s, 1);
	ndb_changes_drop(s);
	s->conflicts = 0;
	return NDB_OK;
}

int ndb_commit(ndb_session *s, uint64_t *number) {
	int error = in_transaction(s);
	if (error < 0) return error;
	if (s->broken)
		return ndb_fail(s->broken, "a change of this transaction failed half way: roll it back");
	if (s->level == 1 && s->delta) return refuse_to_end(s);
	if (s->level == 1) return commit_outermost(s, number);
	ndb_mark_pop(s, s->level_mark[s->level]);
	ndb_locals_keep(s, s->level);
	leave_inner(s);
	if (number) *number = 0;
	return NDB_OK;
}

int ndb_rollback(ndb_session *s) {
	int error = in_transaction(s);
	if (error < 0) return error;
	if (s->level == 1 && s->delta) return refuse_to_end(s);
	if (s->level == 1) {
		ndb_transaction_free(s);
		return NDB_OK;
	}
	ndb_mark_undo(s, s->level_mark[s->level]);
	ndb_mark_pop(s, s->level_mark[s->level]);
	error = ndb_locals_restore(s, s->level);
	leave_inner(s);
	return error;
}

int ndb_restart(ndb_session *s) {
	int error = in_transaction(s);
	if (error < 0) return error;
	uint32_t conflicts = s->conflicts;
	if (s->delta) return refuse_to_end(s);
	if (s->view_level)
		return ndb_fail(
		    NDB_E_LEVEL, "a read-only transaction cannot be restarted: end it and begin another");
	ndb_transaction_free(s);
	s->conflicts = conflicts;
	return start(s);
}

int ndb_wait(ndb_session *s, uint64_t number) {
	int error = ndb_store_flush(s->store, number);
	/* this error reports the loss; the next call need not */
	if (error == NDB_E_SUPERSEDED) s->superseded = atomic_load(&s->store->superseded);
	return error;
}
