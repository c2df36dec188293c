//go:build cgo && lmdb

/* transaction.c: transactions as trees that share what they have not changed.
 *
 * A transaction forks pending when it begins, reads and writes its fork without a lock, and
 * commits in memory by putting the fork in pending's place. If pending has moved meanwhile, the
 * keys of the other commits are held against what this one has read; if they do not meet, its
 * changes, which are the difference between its fork now and at begin, are put over pending.
 * A mark is a reference to the roots as they were: to undo is to put them back.
 */
#include <stdlib.h>

#include "core.h"

enum { CONFLICTS_MAX = 2, LOCAL_STATES_MAX = 1024 };

static int memory(void) { return ndb_fail(NDB_E_MEMORY, "out of memory"); }

/* ---- trees in memory ---- */

/* True if one of the first count states has the trees of that name ("": all) for the level. The
 * oldest state of a level is the one that counts. */
static int is_saved(const ndb_session *s, const char *name, uint32_t count, int level) {
  for (uint32_t i = 0; i < count; i++) {
    const ndb_local_state *l = &s->local_states[i];
    if (l->level == level && (!l->name_len || strcmp(l->name, name) == 0)) return 1;
  }
  return 0;
}

int ndb_restore_local(ndb_session *s, const char *name, size_t len) {
  int error = ndb_session_enter(s);
  if (error < 0) return error;
  if (!s->level) return ndb_fail(NDB_E_LEVEL, "no transaction is open: begin one, then name the trees that it restores");
  int all = len == 1 && *name == '*';
  if (!all && (len == 0 || len > NDB_NAME_MAX || *name == '^'))
    return ndb_fail(NDB_E_ARGUMENT, "name a tree in memory, without ^, or * for all of them");
  char own_name[NDB_NAME_MAX + 2] = {0};
  if (!all) memcpy(own_name, name, len);
  if (is_saved(s, own_name, s->local_state_count, s->level)) return NDB_OK;
  if (s->local_state_count == LOCAL_STATES_MAX)
    return ndb_fail(NDB_E_ARGUMENT, "a transaction restores at most %d trees in memory by name: name * for all of them", LOCAL_STATES_MAX);
  if (s->local_state_count == s->local_state_cap) {
    uint32_t cap = s->local_state_cap ? s->local_state_cap * 2 : 4;
    ndb_local_state *grown = realloc(s->local_states, cap * sizeof *grown);
    if (!grown) return memory();
    s->local_states = grown, s->local_state_cap = cap;
  }
  ndb_local_state *l = &s->local_states[s->local_state_count++];
  l->level = s->level;
  l->name_len = all ? 0 : len + 1;
  memcpy(l->name, own_name, sizeof l->name);
  ndb_tree_fork(&s->local, &l->tree);
  l->shed = ndb_session_shed(s, 0);
  return NDB_OK;
}

/* Puts back the tree of one name. */
static int restore_name(ndb_session *s, const ndb_local_state *l) {
  char end[NDB_NAME_MAX + 3];
  ndb_key_end(end, l->name, l->name_len);
  int error = ndb_tree_cut(&s->local, l->name, l->name_len, end, l->name_len + 1);
  ndb_tree_cursor c;
  for (ndb_entry *e = ndb_cursor_seek(&c, l->tree.root, l->name, l->name_len);
       e && error == NDB_OK && ndb_key_within(e->data, e->key_len, l->name, l->name_len); e = ndb_cursor_next(&c))
    error = ndb_tree_put(&s->local, ndb_entry_ref(e));
  return error;
}

/* Puts back the trees that transactions from the given level on restore, the latest first. */
static int restore_locals(ndb_session *s, int level) {
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

/* After a commit of the given level: its outer transaction restores the trees, or nobody. */
static void keep_locals(ndb_session *s, int level) {
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

/* ---- marks ---- */

int ndb_mark_push(ndb_session *s) {
  if (s->mark_count == s->mark_cap) {
    uint32_t cap = s->mark_cap ? s->mark_cap * 2 : 8;
    ndb_mark_state *grown = realloc(s->marks, cap * sizeof *grown);
    if (!grown) return memory();
    s->marks = grown, s->mark_cap = cap;
  }
  ndb_mark_state *m = &s->marks[s->mark_count++];
  ndb_layer_fork(&s->own, &m->own);
  m->killed = s->killed_count;
  m->shed = ndb_session_shed(s, 1);
  return NDB_OK;
}

void ndb_mark_pop(ndb_session *s, uint32_t count) {
  while (s->mark_count > count) {
    ndb_mark_state *m = &s->marks[--s->mark_count];
    ndb_root_unref(m->own.entries.root);
    ndb_root_unref(m->own.kills.root);
  }
}

/* Forgets kills from the given number on. */
static void drop_kills(ndb_session *s, uint32_t count) {
  while (s->killed_count > count) {
    ndb_entry *e = s->killed[--s->killed_count];
    s->killed_bytes -= ndb_entry_size(e);
    ndb_entry_unref(e);
  }
}

/* Counts all that own has as shed: its tree is about to be replaced. */
static void shed_own(ndb_session *s) {
  s->shed_stored += s->own.entries.shed + s->own.kills.shed + ndb_session_own_bytes(s);
  s->own.entries.shed = s->own.kills.shed = 0;
}

void ndb_mark_undo(ndb_session *s, uint32_t mark) {
  ndb_mark_pop(s, mark + 1);
  ndb_mark_state *m = &s->marks[mark];
  shed_own(s);
  ndb_layer_clear(&s->own);
  ndb_layer_fork(&m->own, &s->own);
  drop_kills(s, m->killed);
  s->changes++;
  s->stamp++;
}

static int in_transaction(ndb_session *s) {
  int error = ndb_session_enter(s);
  if (error < 0) return error;
  if (!s->level) return ndb_fail(NDB_E_LEVEL, "no transaction is open");
  return NDB_OK;
}

uint64_t ndb_mark(ndb_session *s) {
  if (!s->level) return 0;
  const ndb_mark_state *last = s->mark_count ? &s->marks[s->mark_count - 1] : NULL;
  /* Nothing has changed since the last mark. The marks of levels stay their own. */
  if (last && last->own.entries.root == s->own.entries.root && last->own.kills.root == s->own.kills.root && last->killed == s->killed_count &&
      s->level_mark[s->level] < s->mark_count - (s->level > 1 ? 1u : 0u))
    return s->mark_count;
  return ndb_mark_push(s) < 0 ? 0 : s->mark_count;
}

int ndb_undo(ndb_session *s, uint64_t mark) {
  int error = in_transaction(s);
  if (error < 0) return error;
  uint32_t least = s->level > 1 ? s->level_mark[s->level] + 1 : 0;
  if (mark <= least || mark > s->mark_count)
    return ndb_fail(NDB_E_LEVEL, "mark %llu is not one of the innermost transaction", (unsigned long long)mark);
  ndb_mark_undo(s, (uint32_t)mark - 1);
  return NDB_OK;
}

/* ---- begin ---- */

static void drop_changes(ndb_session *s) {
  ndb_mark_pop(s, 0);
  ndb_layer_clear(&s->own);
  drop_kills(s, 0);
  ndb_root_unref(s->begin_entries);
  ndb_root_unref(s->begin_kills);
  s->begin_entries = s->begin_kills = NULL;
  ndb_root_unref(s->view.frozen);
  ndb_root_unref(s->view.frozen_kills);
  s->view.frozen = s->view.frozen_kills = NULL;
  ndb_reads_reset(&s->reads);
  s->broken = 0;
  s->changes++;
  s->stamp++;
}

/* Called with the lock. */
static void release_exclusive(ndb_session *s) {
  if (s->store->exclusive != s) return;
  s->store->exclusive = NULL;
  pthread_cond_broadcast(&s->store->done);
}

/* Captures what the transaction starts from. */
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
    /* With the right to write in hand, and nobody else in this process or another to commit. */
    if ((error = ndb_store_lock_write(store, s)) < 0) return error;
    store->exclusive = s;
    store->exclusive_since = ndb_monotonic_ms();
  } else {
    pthread_mutex_lock(&store->lock);
    if (ndb_layer_empty(&store->pending) && ndb_layer_empty(&store->frozen)) error = ndb_store_refresh(store);
    if (error < 0) {
      pthread_mutex_unlock(&store->lock);
      return error;
    }
  }
  if (s->view.base != store->base) {
    ndb_snapshot_unref(s->view.base);
    s->view.base = ndb_snapshot_ref(store->base);
  }
  s->view.frozen = ndb_root_ref(store->frozen.entries.root);
  s->view.frozen_kills = ndb_root_ref(store->frozen.kills.root);
  ndb_layer_fork(&store->pending, &s->own);
  s->begin_entries = ndb_root_ref(s->own.entries.root);
  s->begin_kills = ndb_root_ref(s->own.kills.root);
  s->begin_bytes = ndb_layer_bytes(&s->own);
  s->begin_foreign = store->foreign;
  s->begin_log = store->log_end;
  s->begin_number = store->number;
  s->version = atomic_load(&store->version);
  s->clean = 0;
  s->clock = ndb_now_ms();
  s->level = s->in_transaction = 1;
  s->changes++;
  s->stamp++;
  store->transactions++;
  pthread_mutex_unlock(&store->lock);
  return NDB_OK;
}

/* Leaves the transaction; called with the lock, if there is a store. */
static void leave(ndb_session *s) {
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
    leave(s);
    release_exclusive(s);
    pthread_mutex_unlock(&s->store->lock);
  } else {
    leave(s);
  }
  restore_locals(s, 1);
  drop_changes(s);
  s->conflicts = 0;
}

int ndb_begin_view(ndb_session *s) {
  int error = ndb_begin(s);
  if (error == NDB_OK && !s->view_level) s->view_level = s->level;
  return error;
}

/* The innermost transaction has ended, an outer one goes on. */
static void leave_inner(ndb_session *s) {
  s->level--;
  if (s->view_level > s->level) s->view_level = 0;
}

int ndb_begin(ndb_session *s) {
  int error = ndb_session_enter(s);
  if (error < 0) return error;
  if (!s->level) return start(s);
  if (s->level == NDB_LEVELS) return ndb_fail(NDB_E_LEVEL, "transactions are nested %d deep: at most that many are allowed", NDB_LEVELS);
  s->level_mark[s->level + 1] = s->mark_count;
  if ((error = ndb_mark_push(s)) < 0) return error;
  s->level++;
  return NDB_OK;
}

int ndb_level(ndb_session *s) { return s->level; }

/* ---- commit and rollback ---- */

typedef struct {
  ndb_store *store;
  ndb_layer *onto; /* NULL: only note the change */
} replay;

static int replay_entry(void *user, ndb_entry *e) {
  replay *r = user;
  ndb_store_log(r->store, e, 0);
  return r->onto ? ndb_tree_put(&r->onto->entries, ndb_entry_ref(e)) : NDB_OK;
}

static int conflicts(const ndb_session *s) {
  const ndb_store *store = s->store;
  if (!s->reads.any) return 0;
  if (store->foreign != s->begin_foreign) { /* which nodes another process changed is not known */
    ndb_view before = {s->view.base, s->view.frozen, s->view.frozen_kills, s->begin_entries, s->begin_kills, s->clock};
    ndb_view now = {store->base, store->frozen.entries.root, store->frozen.kills.root, store->pending.entries.root,
                    store->pending.kills.root, s->clock};
    return !ndb_reads_same(&s->reads, store, &before, &now);
  }
  if (store->log_start > s->begin_log) return 1;
  for (uint64_t i = s->begin_log; i < store->log_end; i++) {
    ndb_entry *e = store->log[i - store->log_start].entry;
    if (ndb_reads_meet(&s->reads, e->data, e->key_len, store->log[i - store->log_start].kill)) return 1;
  }
  return 0;
}

static int has_changes(const ndb_session *s) {
  return s->killed_count || s->own.entries.root != s->begin_entries || s->own.kills.root != s->begin_kills;
}

/* Puts the changes over pending as it has become. Called with the lock; does all or nothing. */
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
  if (error == NDB_OK) error = ndb_root_diff(s->begin_entries, s->own.entries.root, replay_entry, &r);
  if (error < 0) {
    ndb_layer_clear(&result);
    return error;
  }
  ndb_layer_clear(&store->pending);
  store->pending = result;
  return NDB_OK;
}

static int commit_outermost(ndb_session *s, uint64_t *number) {
  ndb_store *store = s->store;
  if (!store || !has_changes(s)) { /* it saw one state, and adds nothing to it */
    if (number) *number = s->begin_number;
    if (store) pthread_mutex_lock(&store->lock);
    leave(s);
    if (store) {
      release_exclusive(s);
      pthread_mutex_unlock(&store->lock);
    }
  } else {
    int error = ndb_store_lock_write(store, s);
    if (error < 0) return error;
    uint64_t given = ndb_session_own_bytes(s) + s->killed_bytes;
    if (store->version == s->version) {
      if (store->transactions > 1) {
        for (uint32_t i = 0; i < s->killed_count; i++) ndb_store_log(store, s->killed[i], 1);
        replay r = {store, NULL};
        ndb_root_diff(s->begin_entries, s->own.entries.root, replay_entry, &r);
      }
      ndb_layer before = store->pending;
      s->shed_stored += s->own.entries.shed + s->own.kills.shed;
      store->pending = s->own;
      s->own = before;
    } else if (conflicts(s)) {
      s->conflicts++;
      leave(s);
      pthread_mutex_unlock(&store->lock);
      int restored = restore_locals(s, 1);
      drop_changes(s);
      if (restored < 0 || (error = start(s)) < 0) {
        if (s->level) ndb_transaction_free(s);
        return restored < 0 ? restored : error;
      }
      return ndb_fail(NDB_E_CONFLICT, "another transaction changed what this one read: run it again");
    } else if ((error = merge_changes(s)) < 0) {
      pthread_mutex_unlock(&store->lock);
      return error;
    }
    ndb_session_gave(s, given);
    ndb_store_changed(store);
    if (number) *number = store->number;
    leave(s);
    release_exclusive(s);
    pthread_mutex_unlock(&store->lock);
  }
  keep_locals(s, 1);
  drop_changes(s);
  s->conflicts = 0;
  return NDB_OK;
}

int ndb_commit(ndb_session *s, uint64_t *number) {
  int error = in_transaction(s);
  if (error < 0) return error;
  if (s->broken) return ndb_fail(s->broken, "a change of this transaction failed half way; roll it back");
  if (s->level == 1) return commit_outermost(s, number);
  ndb_mark_pop(s, s->level_mark[s->level]);
  keep_locals(s, s->level);
  leave_inner(s);
  if (number) *number = 0;
  return NDB_OK;
}

int ndb_rollback(ndb_session *s) {
  int error = in_transaction(s);
  if (error < 0) return error;
  if (s->level == 1) {
    ndb_transaction_free(s);
    return NDB_OK;
  }
  ndb_mark_undo(s, s->level_mark[s->level]);
  ndb_mark_pop(s, s->level_mark[s->level]);
  error = restore_locals(s, s->level);
  leave_inner(s);
  return error;
}

int ndb_restart(ndb_session *s) {
  int error = in_transaction(s);
  if (error < 0) return error;
  uint32_t conflicts = s->conflicts;
  if (s->view_level) return ndb_fail(NDB_E_LEVEL, "the transaction only reads, and has nothing to run again: end it");
  ndb_transaction_free(s);
  s->conflicts = conflicts;
  return start(s);
}

int ndb_wait(ndb_session *s, uint64_t number) {
  int error = ndb_store_flush(s->store, number);
  if (error == NDB_E_SUPERSEDED) s->superseded = atomic_load(&s->store->superseded); /* this says it; the next call need not */
  return error;
}
