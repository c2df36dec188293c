//go:build cgo && lmdb

/* session.c: sessions, and how they see and change nodes inside and outside transactions.
 *
 * Outside a transaction a session keeps a reference to the snapshot of LMDB that it read
 * last. As long as the store's version stands and nothing waits to be committed, reads go to
 * that snapshot without a lock.
 */
#include <stdlib.h>

#include "core.h"

int ndb_session_open(ndb_store *store, ndb_session **out) {
  ndb_session *s = calloc(1, sizeof *s);
  *out = NULL;
  if (!s) return ndb_fail(NDB_E_MEMORY, "out of memory");
  s->store = store;
  s->stamp = 1;
  ndb_tree_init(&s->local);
  ndb_layer_init(&s->own);
  if (store) {
    pthread_mutex_lock(&store->lock);
    s->superseded = atomic_load(&store->superseded);
    s->next = store->sessions;
    if (s->next) s->next->previous = s;
    store->sessions = s;
    pthread_mutex_unlock(&store->lock);
    s->version = UINT64_MAX;
  }
  *out = s;
  return NDB_OK;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Bytes that marks and the states of trees to restore keep alive, or more: the oldest of each keeps
 * no more than what was shed since, and each no more than it holds. */
static uint64_t saved_bytes(const ndb_session *s) {
  uint64_t stored = 0, local = 0, shed = ndb_session_shed(s, 1), shed_local = ndb_session_shed(s, 0);
  for (uint32_t i = 0; i < s->mark_count; i++) stored += least(shed - s->marks[i].shed, ndb_layer_bytes(&s->marks[i].own));
  for (uint32_t i = 0; i < s->local_state_count; i++) local += least(shed_local - s->local_states[i].shed, s->local_states[i].tree.bytes);
  if (s->mark_count) stored = least(stored, shed - s->marks[0].shed);
  if (s->local_state_count) local = least(local, shed_local - s->local_states[0].shed);
  return stored + local;
}

uint64_t ndb_session_bytes(const ndb_session *s) {
  uint64_t bytes = s->local.bytes + s->iterator_bytes + s->cache_slots * sizeof *s->cache + s->mark_cap * sizeof *s->marks +
                   s->local_state_cap * sizeof *s->local_states + s->killed_cap * sizeof *s->killed + s->killed_bytes + s->reads.cap +
                   s->reads.point_cap * sizeof *s->reads.points + s->reads.range_cap * sizeof *s->reads.ranges + ndb_session_own_bytes(s);
  if (s->iterators) bytes += ndb_iterators_pinned(s);
  if (s->mark_count || s->local_state_count) bytes += saved_bytes(s);
  return bytes;
}

void ndb_session_limits(ndb_session *s, uint64_t pending_bytes, const volatile uint32_t *stop) { s->pending_limit = pending_bytes, s->stop = stop; }

void ndb_session_read_only(ndb_session *s) { s->read_only = 1; }

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
  ndb_session_waiting(s); /* what was given before is durable with the change before */
  s->given += bytes;
}

void ndb_session_close(ndb_session *s) {
  if (!s) return;
  while (s->iterators) ndb_iter_close(s->iterators);
  if (s->level) ndb_transaction_free(s);
  ndb_unlock_all(s);
  ndb_store *store = s->store;
  if (store) {
    pthread_mutex_lock(&store->lock);
    if (s->previous) s->previous->next = s->next;
    else store->sessions = s->next;
    if (s->next) s->next->previous = s->previous;
    pthread_mutex_unlock(&store->lock);
  }
  ndb_view_release(&s->view);
  ndb_layer_clear(&s->own);
  ndb_tree_clear(&s->local);
  ndb_entry_unref(s->held);
  ndb_reads_free(&s->reads);
  free(s->killed);
  free(s->marks);
  free(s->cache);
  free(s->local_states);
  free(s);
}

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
                    "this process stood still for so long that another took over; changes that were not durable are lost, and an "
                    "open transaction is rolled back");
  }
  return NDB_OK;
}

static int no_store(void) {
  return ndb_fail(NDB_E_ARGUMENT, "the session has no store: only names without ^ can be used");
}

void ndb_idle(ndb_session *s) {
  if (s->level) return;
  ndb_entry_unref(s->held);
  s->held = NULL;
  if (s->store) pthread_mutex_lock(&s->store->lock); /* the releaser may be about to do the same */
  ndb_view_release(&s->view);
  s->clean = 0;
  s->version = UINT64_MAX;
  if (s->store) pthread_mutex_unlock(&s->store->lock);
  s->stamp++;
}

/* ---- reading ---- */

/* Takes a reference to the store's base; called with the lock. */
static void follow_base(ndb_session *s) {
  ndb_store *store = s->store;
  if (s->view.base != store->base) {
    ndb_snapshot_unref(s->view.base);
    s->view.base = ndb_snapshot_ref(store->base);
  }
  s->stamp++;
  s->number = store->base->number;
  ndb_store_held(store);
  atomic_store_explicit(&s->version, atomic_load_explicit(&store->version, memory_order_relaxed), memory_order_relaxed);
  s->clean = ndb_layer_empty(&store->pending) && ndb_layer_empty(&store->frozen);
  ndb_session_waiting(s);
}

static inline int is_current(const ndb_session *s) {
  return s->clean &&
         atomic_load_explicit(&s->version, memory_order_relaxed) == atomic_load_explicit(&s->store->version, memory_order_acquire) &&
         *s->store->last_commit == s->number;
}

/* Locks the store and makes base the last commit, unless changes wait here: then nobody else
 * commits. */
static int lock_read(ndb_store *store) {
  pthread_mutex_lock(&store->lock);
  if ((!store->base || *store->last_commit != store->base->number) && ndb_layer_empty(&store->frozen) && ndb_layer_empty(&store->pending)) {
    int error = ndb_store_refresh(store);
    if (error < 0) {
      pthread_mutex_unlock(&store->lock);
      return error;
    }
  }
  return NDB_OK;
}

static ndb_view pending_view(const ndb_store *store) {
  return (ndb_view){store->base, store->frozen.entries.root, store->frozen.kills.root, store->pending.entries.root,
                    store->pending.kills.root, 0};
}

static ndb_view own_view(const ndb_session *s) {
  return (ndb_view){s->view.base, s->view.frozen, s->view.frozen_kills, s->own.entries.root, s->own.kills.root, s->clock};
}

static ndb_view local_view(const ndb_session *s) { return (ndb_view){.own = s->local.root, .now = s->clock}; }

int ndb_session_view(ndb_session *s, int stored, ndb_view *out, int *state) {
  *state = 0;
  if (!stored) {
    *out = local_view(s);
    return NDB_OK;
  }
  if (!s->store) return no_store();
  if (s->level) {
    *out = own_view(s);
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
      *out = pending_view(s->store);
      return NDB_OK;
    }
    pthread_mutex_unlock(&s->store->lock);
  }
  *state = NDB_VIEW_READING;
  *out = (ndb_view){.base = s->view.base};
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
  *out = (ndb_view){0};
  if (!stored) {
    *out = local_view(s);
    ndb_tree_snapshot(&s->local);
    *version = ndb_session_version(s, stored);
    return NDB_OK;
  }
  if (!s->store) return no_store();
  if (s->level) {
    *out = own_view(s);
    ndb_snapshot_ref(out->base);
    ndb_root_ref(out->frozen);
    ndb_root_ref(out->frozen_kills);
    ndb_tree_snapshot(&s->own.entries);
    ndb_tree_snapshot(&s->own.kills);
    *version = ndb_session_version(s, stored);
    return NDB_OK;
  }
  ndb_read_begin(s);
  int current = is_current(s);
  if (current) {
    *version = atomic_load_explicit(&s->version, memory_order_relaxed);
    out->base = ndb_snapshot_ref(s->view.base);
  }
  ndb_read_end(s);
  if (current) return NDB_OK;
  int error = lock_read(s->store);
  if (error < 0) return error;
  follow_base(s);
  *out = pending_view(s->store);
  ndb_snapshot_ref(out->base);
  ndb_root_ref(out->frozen);
  ndb_root_ref(out->frozen_kills);
  ndb_tree_snapshot(&s->store->pending.entries);
  ndb_tree_snapshot(&s->store->pending.kills);
  *version = s->version;
  pthread_mutex_unlock(&s->store->lock);
  return NDB_OK;
}

uint64_t ndb_session_version(const ndb_session *s, int stored) {
  uint64_t inside = (uint64_t)1 << 63 | s->changes;
  if (!stored || !s->store || s->level) return inside;
  uint64_t version = atomic_load_explicit(&s->store->version, memory_order_acquire);
  /* The session has not looked since the last change, or another process has committed (none
   * does while changes wait here): nothing that was read is current. */
  if (atomic_load_explicit(&s->version, memory_order_relaxed) != version || (s->clean && *s->store->last_commit != s->number)) return UINT64_MAX;
  return version;
}

/* Looks in the cache, then in the view, for what stays until the stamp moves. */
static int cached_get(ndb_session *s, const ndb_view *view, const char *key, size_t len, ndb_scalar *out, uint64_t *expiry) {
  uint64_t hash = ndb_hash(key, len);
  const ndb_cached *c = ndb_cache_find(s, hash, key, len);
  if (c) {
    *out = c->value;
    *expiry = 0;
    return NDB_OK;
  }
  if (s->level && !s->view_level) ndb_reads_point(&s->reads, key, len);
  ndb_entry *entry;
  int result = ndb_view_find(s->store, view, key, len, out, expiry, &entry);
  if (result != NDB_OK || *expiry) return result;
  const char *stays = entry ? entry->data : out->bytes - 1 - len;
  if (entry || (out->len < 512 && len < 512 && memcmp(stays, key, len) == 0)) ndb_cache_put(s, hash, stays, len, out, entry);
  return NDB_OK;
}

/* Copies the text of a value from LMDB: the releaser may let go of its page when the call ends. */
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

int ndb_get(ndb_session *s, const char *key, size_t len, ndb_scalar *out) {
  uint64_t expiry = 0;
  int result = ndb_session_enter(s);
  if (NDB_UNLIKELY(result < 0)) return result;
  if (!ndb_is_stored(key, len)) {
    ndb_view local = local_view(s);
    return ndb_view_get(s->store, &local, key, len, out, &expiry);
  }
  ndb_view view;
  int state;
  if ((result = ndb_session_view(s, 1, &view, &state)) < 0) return result;
  if (!(state & NDB_VIEW_LOCKED)) {
    result = cached_get(s, &view, key, len, out, &expiry);
    if (!(state & NDB_VIEW_READING)) return result; /* a transaction, which keeps what it reads */
    if (result == NDB_OK) result = copy_value(s, out);
    ndb_session_view_end(s, state);
    return result;
  }
  view.base = NULL; /* LMDB is read without the lock */
  ndb_entry *entry;
  result = ndb_view_find(s->store, &view, key, len, out, &expiry, &entry);
  int hidden = result == NDB_NONE && (entry || ndb_kill_of(view.own_kills, key, len) || ndb_kill_of(view.frozen_kills, key, len));
  if (result == NDB_OK && out->type >= NDB_DIGITS && out->len) s->held = ndb_entry_ref(entry);
  unlock_view(s, state);
  if (result == NDB_NONE && !hidden) {
    ndb_view base = {.base = s->view.base};
    result = ndb_view_get(s->store, &base, key, len, out, &expiry);
    if (result == NDB_OK) result = copy_value(s, out);
  }
  ndb_read_end(s);
  return result;
}

/* ---- changing ---- */

static uint64_t transaction_bytes(const ndb_session *s) { return s->store ? s->store->options.transaction_bytes : 256u << 20; }

/* What deletes may make a transaction twice as large: a full one can still be made smaller. */
static uint64_t transaction_limit(const ndb_session *s, const ndb_entry *e) {
  return e->type == NDB_ABSENT ? 2 * transaction_bytes(s) : transaction_bytes(s);
}

static int too_large(const ndb_session *s) {
  return ndb_fail(NDB_E_FULL, "the changes of the transaction are larger than %llu bytes: commit in between, or raise transaction_bytes",
                  (unsigned long long)transaction_bytes(s));
}

int ndb_change_allowed(const ndb_session *s) {
  if (!s->store) return no_store();
  if (s->read_only || s->store->options.read_only) return ndb_fail(NDB_E_ARGUMENT, "the store was opened read-only: open it without this option to change nodes");
  if (s->view_level) return ndb_fail(NDB_E_ARGUMENT, "the transaction only reads: begin one that may change nodes");
  return NDB_OK;
}

int ndb_change_begin(ndb_session *s, const char *key, size_t len) {
  int error = ndb_session_enter(s);
  if (error < 0) return error;
  if (len < 2 || len > NDB_KEY_MAX) return ndb_fail(NDB_E_KEY, "a key of %zu bytes: from 2 to %d are allowed", len, NDB_KEY_MAX);
  if (!ndb_is_stored(key, len)) return NDB_OK;
  if ((error = ndb_change_allowed(s)) < 0) return error;
  if (s->level) return s->broken ? ndb_fail(s->broken, "an earlier change of this transaction failed half way; roll it back") : NDB_OK;
  return ndb_store_lock_write(s->store, s);
}

int ndb_change_end(ndb_session *s, const char *key, int result) {
  if (ndb_is_stored(key, 1) && !s->level) pthread_mutex_unlock(&s->store->lock);
  return result;
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
    ndb_cache_drop(s, hash, e->data, e->key_len); /* before the entry that it points to goes */
    int error = ndb_tree_put(tree, e);
    if (error < 0 || tree->count != count || e->type == NDB_ABSENT || e->expiry) return error;
    /* A node that is changed for the second time may be changed often. */
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
  e->number = value->type == NDB_NUMBER ? value->number + 0.0 : 0; /* there is no -0 */
  e->value_len = text ? value->len : 0;
  if (text && value->len) memmove(e->data + e->key_len, value->bytes, value->len);
  ndb_entry_scalar(e, &c->value);
  return 1;
}

/* Kills in a copy, which takes the place of the layer if all of it succeeds. */
static int kill_in_layer(ndb_layer *l, const char *key, size_t len) {
  ndb_layer copy;
  ndb_layer_fork(l, &copy);
  int error = ndb_layer_kill(&copy, key, len, 1);
  ndb_layer *drop = error < 0 ? &copy : l;
  ndb_layer_clear(drop);
  if (error == NDB_OK) *l = copy;
  return error;
}

int ndb_change_cut(ndb_session *s, const char *low, size_t low_len, const char *high, size_t high_len) {
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

/* Kills in the open transaction; takes e, which has the key. */
static int kill_own(ndb_session *s, ndb_entry *e) {
  int error = NDB_OK;
  if (ndb_session_own_bytes(s) + s->killed_bytes + 2 * ndb_entry_size(e) > transaction_limit(s, e)) error = too_large(s);
  if (error == NDB_OK && s->killed_count == s->killed_cap) {
    uint32_t cap = s->killed_cap ? s->killed_cap * 2 : 16;
    ndb_entry **grown = realloc(s->killed, cap * sizeof *grown);
    if (grown) s->killed = grown, s->killed_cap = cap;
    else error = ndb_fail(NDB_E_MEMORY, "out of memory");
  }
  uint64_t shed = s->own.entries.shed + s->own.kills.shed;
  s->changes++;
  s->stamp++;
  if (error == NDB_OK && (error = kill_in_layer(&s->own, e->data, e->key_len)) < 0) s->broken = error; /* to be on the safe side */
  if (error < 0) {
    ndb_entry_unref(e);
    return error;
  }
  s->shed_stored += shed;
  s->killed_bytes += ndb_entry_size(e);
  s->killed[s->killed_count++] = e;
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

int ndb_change_look(ndb_session *s, const char *key, size_t len, ndb_scalar *out, uint64_t *expiry) {
  ndb_view view;
  if (!ndb_is_stored(key, len)) {
    view = local_view(s);
  } else if (s->level) {
    view = own_view(s);
    return cached_get(s, &view, key, len, out, expiry);
  } else {
    view = pending_view(s->store);
  }
  return ndb_view_get(s->store, &view, key, len, out, expiry);
}
