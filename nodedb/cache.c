//go:build cgo && lmdb

/* cache.c: a session's cache of the values that it has found, by key, while its view is unchanged.
 *
 * A slot is valid while its stamp equals the session's. A new snapshot, a kill or a rollback
 * changes the session's stamp; a change of one node updates its slot. The session's view or its
 * tree keeps the memory that slots point to. Each set has two slots, the newer one first.
 */
#include <stdlib.h>

#include "core.h"

enum {
	FIRST_SLOTS = 256,
	MAX_SLOTS = 8192
};

static inline ndb_cached *set_of(const ndb_session *s, uint64_t hash) {
	return &s->cache[(hash >> 8) & (s->cache_slots - 2)];
}

static inline int is_slot(
    const ndb_session *s, const ndb_cached *c, uint64_t hash, const char *key, size_t len) {
	return c->stamp == s->stamp && c->hash == hash && c->key_len == len &&
	       memcmp(c->key, key, len) == 0;
}

ndb_cached *ndb_cache_find(const ndb_session *s, uint64_t hash, const char *key, size_t len) {
	if (!s->cache) return NULL;
	ndb_cached *c = set_of(s, hash);
	if (is_slot(s, c, hash, key, len)) return c;
	if (is_slot(s, c + 1, hash, key, len)) return c + 1;
	return NULL;
}

static void grow(ndb_session *s) {
	uint32_t slots = s->cache ? s->cache_slots * 2 : FIRST_SLOTS;
	ndb_cached *grown = slots <= MAX_SLOTS ? calloc(slots, sizeof *grown) : NULL;
	s->cache_misses = 0;
	if (!grown) return; /* keep the present size */
	free(s->cache);
	s->cache = grown, s->cache_slots = slots;
}

void ndb_cache_put(ndb_session *s, uint64_t hash, const char *key, size_t len,
    const ndb_scalar *value, ndb_entry *entry) {
	if (NDB_UNLIKELY(!s->cache || s->cache_misses > 2 * s->cache_slots)) {
		grow(s);
		if (!s->cache) return;
	}
	ndb_cached *c = set_of(s, hash);
	if (c->stamp == s->stamp) {
		s->cache_misses += c[1].stamp == s->stamp;
		c[1] = c[0];
	}
	*c = (ndb_cached){hash, s->stamp, key, entry, (uint32_t)len, *value};
}

void ndb_cache_drop(ndb_session *s, uint64_t hash, const char *key, size_t len) {
	ndb_cached *c = ndb_cache_find(s, hash, key, len);
	if (c) c->stamp = 0;
}
