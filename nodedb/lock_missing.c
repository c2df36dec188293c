//go:build cgo && lmdb

/* lock_missing.c: stands in for lock.c until it is there, and goes with its arrival. */
#include "core.h"

__attribute__((weak)) int ndb_lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms) {
  (void)s, (void)keys, (void)count, (void)timeout_ms;
  return ndb_fail(NDB_E_LOCKS, "locks are not built yet");
}
__attribute__((weak)) int ndb_unlock(ndb_session *s, const char *key, size_t len) {
  (void)s, (void)key, (void)len;
  return NDB_NONE;
}
__attribute__((weak)) void ndb_unlock_all(ndb_session *s) { (void)s; }
