//go:build cgo && lmdb

/* filter.c: Bloom filters of the keys of a unit's layers, so that a lookup searches only those of up
 * to 17 layers that have the key, and few others: about one in 200.
 *
 * A key sets three bits of one block, which is a line of the processor's cache. Keys that leave a
 * layer keep their bits. */
#include <stdlib.h>

#include "core.h"

uint64_t ndb_hash_seed = 0x9E3779B97F4A7C15u;

enum {
	BLOCK_WORDS = 8,
	BITS_PER_KEY = 16,
	KEYS_MIN = 8, /* a smaller tree is searched as quickly */
	GROWTH = 4,   /* room of a filter that grows, in its present keys */
	BITS_MAX = 1 << 26
};

struct ndb_filter {
	_Atomic uint32_t refs;
	uint32_t blocks; /* a power of two */
	uint64_t keys;   /* for which it is large enough */
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

/* A filter of the layer, with room for a number of keys; NULL: out of memory. */
static ndb_filter *make(const ndb_layer *l, uint64_t keys) {
	uint64_t bits = BLOCK_WORDS * 64;
	while (bits < keys * BITS_PER_KEY && bits < BITS_MAX) bits *= 2;
	ndb_filter *f = calloc(1, sizeof *f + bits / 8);
	if (!f) return NULL;
	atomic_init(&f->refs, 1);
	f->keys = bits == BITS_MAX ? UINT64_MAX : bits / BITS_PER_KEY;
	f->blocks = (uint32_t)(bits / (BLOCK_WORDS * 64));
	ndb_tree_cursor at;
	for (const ndb_entry *e = ndb_cursor_first(&at, l->entries.root); e; e = ndb_cursor_next(&at))
		add(f, e);
	return f;
}

/* Without memory, lookups search the tree, or the filter is less selective. */
void ndb_filter_build(ndb_layer *l) {
	if (l->entries.count >= KEYS_MIN) l->filter = make(l, l->entries.count);
}

void ndb_filter_add(ndb_layer *l, const ndb_entry *e) {
	uint64_t count = l->entries.count;
	if (count >= KEYS_MIN && (!l->filter || count > l->filter->keys)) {
		ndb_filter *grown = make(l, count * GROWTH);
		if (grown) {
			ndb_filter_unref(l->filter);
			l->filter = grown;
			return;
		}
	}
	if (l->filter) add(l->filter, e);
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
