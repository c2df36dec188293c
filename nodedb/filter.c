//go:build cgo && lmdb

/* filter.c: Bloom filters of the keys of a unit's frozen deltas, so that a lookup searches only those
 * of up to 16 that have the key, and few others: about one in 200.
 *
 * A key sets three bits of one block, which is a line of the processor's cache. */
#include <stdlib.h>

#include "core.h"

uint64_t ndb_hash_seed = 0x9E3779B97F4A7C15u;

enum {
	BLOCK_WORDS = 8,
	BITS_PER_KEY = 16,
	KEYS_MIN = 8, /* a smaller tree is searched as quickly */
	BITS_MAX = 1 << 26
};

struct ndb_filter {
	_Atomic uint32_t refs;
	uint32_t blocks; /* a power of two */
	uint64_t words[];
};

static inline uint64_t *block_of(ndb_filter *f, uint64_t hash) {
	return f->words + (size_t)((hash >> 32) & (f->blocks - 1)) * BLOCK_WORDS;
}

/* Calls with the three bits of a block that a hash selects. */
#define EACH_BIT(hash, bit) \
	for (uint32_t shift = 1, bit = (hash) >> 1 & 511; shift < 28; \
	     shift += 9, bit = (hash) >> shift & 511)

static void add(ndb_filter *f, const ndb_entry *e) {
	uint64_t hash = ndb_hash(e->data, e->key_len), *block = block_of(f, hash);
	EACH_BIT(hash, bit) block[bit / 64] |= (uint64_t)1 << (bit % 64);
}

/* A filter of the layer; NULL: out of memory. */
static ndb_filter *make(const ndb_layer *l) {
	uint64_t bits = BLOCK_WORDS * 64;
	while (bits < l->entries.count * BITS_PER_KEY && bits < BITS_MAX) bits *= 2;
	ndb_filter *f = calloc(1, sizeof *f + bits / 8);
	if (!f) return NULL;
	atomic_init(&f->refs, 1);
	f->blocks = (uint32_t)(bits / (BLOCK_WORDS * 64));
	ndb_tree_cursor at;
	for (const ndb_entry *e = ndb_cursor_first(&at, l->entries.root); e; e = ndb_cursor_next(&at))
		add(f, e);
	return f;
}

/* Without memory, lookups search the tree. */
void ndb_filter_build(ndb_layer *l) {
	if (l->entries.count >= KEYS_MIN) l->filter = make(l);
}

int ndb_filter_may_have(const ndb_filter *f, uint64_t hash) {
	const uint64_t *block = block_of((ndb_filter *)(uintptr_t)f, hash);
	EACH_BIT(hash, bit)
	if (!(block[bit / 64] >> (bit % 64) & 1)) return 0;
	return 1;
}

uint64_t ndb_filter_bytes(const ndb_filter *f) {
	return f ? sizeof *f + (uint64_t)f->blocks * BLOCK_WORDS * 8 : 0;
}

ndb_filter *ndb_filter_ref(ndb_filter *f) {
	if (f) atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
	return f;
}

void ndb_filter_unref(ndb_filter *f) {
	if (f && atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1) free(f);
}
