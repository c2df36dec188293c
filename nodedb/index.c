//go:build cgo && lmdb

/* index.c: a hash table beside the entries of a unit's layer.
 *
 * Hundreds of thousands of changes may wait for the disk. A search of their tree reads some fifteen
 * lines of memory that are not in the processor's cache, one after the other. The table finds an
 * entry with two, which is what reads of a unit, and changes of a node that has changed before, need.
 * The tree keeps the order, and the references to entries.
 *
 * Collisions go to the next free slot. A removal moves later entries back instead of leaving a mark,
 * so that a search ends at the first free slot. */
#include <stdlib.h>

#include "core.h"

enum {
	SLOTS_MIN = 1 << 10
};

typedef ndb_index_slot slot;

struct ndb_index {
	_Atomic uint32_t refs;
	uint64_t count, mask; /* mask: the number of slots, a power of two, minus one */
	slot slots[];
};

static ndb_index *new_index(uint64_t slots) {
	ndb_index *x = calloc(1, sizeof *x + slots * sizeof(slot));
	if (!x) return NULL;
	atomic_init(&x->refs, 1);
	x->mask = slots - 1;
	return x;
}

static uint64_t first_slot(const ndb_index *x, uint64_t hash) { return (hash >> 1) & x->mask; }

ndb_index_slot *ndb_index_find(ndb_index *x, uint64_t hash, const char *key, size_t len) {
	uint64_t i = first_slot(x, hash);
	for (;; i = (i + 1) & x->mask) {
		slot *s = &x->slots[i];
		if (!s->entry) return s;
		if (s->hash == hash && s->entry->key_len == len && memcmp(s->entry->data, key, len) == 0)
			return s;
	}
}

/* Adds an entry whose key the table has not. */
static void add(ndb_index *x, uint64_t hash, ndb_entry *e) {
	uint64_t i = first_slot(x, hash);
	while (x->slots[i].entry) i = (i + 1) & x->mask;
	x->slots[i] = (slot){hash, e};
	x->count++;
}

/* A table of the layer with free slots for at least as many entries as it has. */
static ndb_index *build(const ndb_layer *l) {
	uint64_t slots = SLOTS_MIN;
	while (slots / 2 < l->entries.count) slots *= 2;
	ndb_index *x = new_index(slots);
	if (!x) return NULL;
	ndb_tree_cursor at;
	for (ndb_entry *e = ndb_cursor_first(&at, l->entries.root); e; e = ndb_cursor_next(&at))
		add(x, ndb_hash(e->data, e->key_len), e);
	return x;
}

static ndb_index *grow(const ndb_index *x) {
	ndb_index *grown = new_index((x->mask + 1) * 2);
	if (!grown) return NULL;
	for (uint64_t i = 0; i <= x->mask; i++)
		if (x->slots[i].entry) add(grown, x->slots[i].hash, x->slots[i].entry);
	return grown;
}

int ndb_index_reserve(ndb_layer *l, uint32_t count) {
	ndb_index *x = l->index;
	while (!x || (x->count + count) * 4 > (x->mask + 1) * 3) {
		ndb_index *larger = x ? grow(x) : build(l);
		if (!larger) return ndb_fail(NDB_E_MEMORY, "out of memory");
		ndb_index_unref(x);
		l->index = x = larger;
	}
	return NDB_OK;
}

void ndb_index_fill(ndb_index *x, ndb_index_slot *s, uint64_t hash, ndb_entry *e) {
	x->count += s->entry == NULL;
	*s = (slot){hash, e};
}

void ndb_index_remove(ndb_index *x, const char *key, size_t len) {
	slot *s = ndb_index_find(x, ndb_hash(key, len), key, len);
	if (!s->entry) return;
	uint64_t hole = (uint64_t)(s - x->slots);
	for (uint64_t i = (hole + 1) & x->mask; x->slots[i].entry; i = (i + 1) & x->mask) {
		/* An entry may move back to the hole unless its search begins behind it. */
		uint64_t from_start = (i - first_slot(x, x->slots[i].hash)) & x->mask;
		if (from_start < ((i - hole) & x->mask)) continue;
		x->slots[hole] = x->slots[i];
		hole = i;
	}
	x->slots[hole] = (slot){0, NULL};
	x->count--;
}

void ndb_index_prefetch(const ndb_index *x, uint64_t hash) {
	__builtin_prefetch(&x->slots[first_slot(x, hash)]);
}

void ndb_index_prefetch_entry(const ndb_index *x, uint64_t hash) {
	const slot *s = &x->slots[first_slot(x, hash)];
	if (s->entry) __builtin_prefetch(s->entry);
}

uint64_t ndb_index_bytes(const ndb_index *x) {
	return x ? sizeof *x + (x->mask + 1) * sizeof(slot) : 0;
}

ndb_index *ndb_index_ref(ndb_index *x) {
	if (x) atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
	return x;
}

void ndb_index_unref(ndb_index *x) {
	if (x && atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) == 1) free(x);
}
