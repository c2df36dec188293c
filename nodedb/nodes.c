//go:build cgo && lmdb

/* nodes.c: what changes a single node, and what asks for one. A change outside a transaction
 * reads and writes in one step, under the store's lock.
 */
#include <math.h>

#include "core.h"

static int check_value(const ndb_scalar *value) {
  switch (value->type) {
  case NDB_NUMBER:
    if (isfinite(value->number)) return NDB_OK;
    return ndb_fail(NDB_E_ARGUMENT, "a value must be a finite number");
  case NDB_DIGITS: case NDB_STRING:
    if (value->len <= NDB_VALUE_MAX) return NDB_OK;
    return ndb_fail(NDB_E_VALUE, "a value of %u bytes: at most %u are allowed", value->len, NDB_VALUE_MAX);
  case NDB_FALSE: case NDB_TRUE: return NDB_OK;
  }
  return ndb_fail(NDB_E_ARGUMENT, "a value is a string, a number or a boolean; to remove it, use kill_value");
}

static ndb_entry *new_entry(const char *key, size_t len, const ndb_scalar *value, uint64_t expiry) {
  ndb_entry *e = ndb_entry_new(key, len, value, expiry);
  if (e && e->type == NDB_NUMBER && e->number == 0) e->number = 0; /* there is no -0 */
  return e;
}

int ndb_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *value) {
  int error = check_value(value);
  if (error < 0) return error;
  if ((error = ndb_change_begin(s, key, len)) < 0) return error;
  if (ndb_change_in_place(s, key, len, value)) return NDB_OK;
  return ndb_change_end(s, key, ndb_change_put(s, new_entry(key, len, value, 0)));
}

int ndb_set_child(ndb_session *s, const char *key, size_t len, const ndb_scalar *subscript, const ndb_scalar *value) {
  char child[NDB_KEY_MAX];
  if (len > sizeof child) return ndb_fail(NDB_E_KEY, "the path is longer than %d bytes", NDB_KEY_MAX);
  memcpy(child, key, len);
  int total = ndb_key_append(child, len, sizeof child, subscript);
  return total < 0 ? total : ndb_set(s, child, (size_t)total, value);
}

int ndb_set_new(ndb_session *s, const char *key, size_t len, const ndb_scalar *value) {
  ndb_scalar none = {.type = NDB_ABSENT};
  return ndb_compare_and_set(s, key, len, &none, value);
}

/* DIGITS equal a STRING that spells them: a host whose numbers do not hold them hands out text. */
static int same_value(const ndb_scalar *present, const ndb_scalar *expected) {
  if (present->type != expected->type && !(present->type == NDB_DIGITS && expected->type == NDB_STRING)) return 0;
  if (present->type == NDB_NUMBER) return present->number == expected->number;
  if (present->type != NDB_STRING && present->type != NDB_DIGITS) return 1;
  return present->len == expected->len && memcmp(present->bytes, expected->bytes, present->len) == 0;
}

int ndb_compare_and_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *expected, const ndb_scalar *value) {
  ndb_scalar present;
  uint64_t expiry;
  int result = check_value(value);
  if (result < 0) return result;
  if ((result = ndb_change_begin(s, key, len)) < 0) return result;
  result = ndb_change_look(s, key, len, &present, &expiry);
  if (result == NDB_NONE) present.type = NDB_ABSENT, result = NDB_OK;
  if (result == NDB_OK) result = same_value(&present, expected) ? ndb_change_put(s, new_entry(key, len, value, 0)) : NDB_NONE;
  return ndb_change_end(s, key, result);
}

int ndb_increment(ndb_session *s, const char *key, size_t len, const ndb_scalar *by, ndb_scalar *out) {
  ndb_scalar present = {.type = NDB_NUMBER}, sum;
  uint64_t expiry = 0;
  int result = ndb_change_begin(s, key, len);
  if (result < 0) return result;
  result = ndb_change_look(s, key, len, &present, &expiry);
  if (result == NDB_NONE) present = (ndb_scalar){.type = NDB_NUMBER}, expiry = 0;
  if (result >= 0) result = ndb_number_add(&present, by, &sum, s->text);
  if (result >= 0 && (expiry || !ndb_change_in_place(s, key, len, &sum)))
    result = ndb_change_put(s, new_entry(key, len, &sum, expiry));
  if (result >= 0 && out) *out = sum;
  return ndb_change_end(s, key, result < 0 ? result : NDB_OK);
}

int ndb_kill_value(ndb_session *s, const char *key, size_t len) {
  int result = ndb_change_begin(s, key, len);
  if (result < 0) return result;
  if (ndb_is_stored(key, len)) {
    ndb_scalar none = {.type = NDB_ABSENT};
    result = ndb_change_put(s, ndb_entry_new(key, len, &none, 0));
  } else {
    char end[NDB_KEY_MAX + 1]; /* key and 00 is the first key behind key */
    memcpy(end, key, len);
    end[len] = 0;
    s->changes++;
    result = ndb_tree_cut(&s->local, key, len, end, len + 1);
  }
  return ndb_change_end(s, key, result);
}

int ndb_kill(ndb_session *s, const char *key, size_t len) {
  int result = ndb_change_begin(s, key, len);
  if (result < 0) return result;
  return ndb_change_end(s, key, ndb_change_kill(s, key, len));
}

int ndb_expire(ndb_session *s, const char *key, size_t len, uint64_t ttl_ms) {
  ndb_scalar present;
  uint64_t expiry;
  int result = ndb_change_begin(s, key, len);
  if (result < 0) return result;
  result = ndb_change_look(s, key, len, &present, &expiry);
  if (result == NDB_OK) {
    uint64_t now = ndb_now_ms();
    uint64_t until = ttl_ms == 0 ? 0 : ttl_ms > UINT64_MAX - now ? UINT64_MAX : now + ttl_ms;
    result = ndb_change_put(s, new_entry(key, len, &present, until));
  }
  return ndb_change_end(s, key, result);
}

int ndb_ttl(ndb_session *s, const char *key, size_t len, uint64_t *ttl_ms) {
  ndb_scalar present;
  uint64_t expiry = 0;
  ndb_view view;
  int locked, result = ndb_session_enter(s);
  if (result < 0) return result;
  int stored = ndb_is_stored(key, len);
  if ((result = ndb_session_view(s, stored, &view, &locked)) < 0) return result;
  if (stored && s->level) ndb_reads_point(&s->reads, key, len);
  result = ndb_view_get(s->store, &view, key, len, &present, &expiry);
  ndb_session_view_end(s, locked);
  if (result != NDB_OK) return result;
  if (!expiry) return NDB_NONE;
  uint64_t now = ndb_now_ms();
  *ttl_ms = expiry > now ? expiry - now : 0;
  return NDB_OK;
}
