//go:build cgo && lmdb

/* index.c: a hash table beside the entries of a unit's layer.
 *
 * Hundreds of thousands of changes may wait for the disk. A search of their tree reads some fifteen
 * lines of memory that are not in the processor's cache, one after the other. The table finds an
 * entry with two, which is what reads of a unit, and changes of a node that has changed before, need.
 * The tree keeps the order, and the references to entries.
 *
 * It consists of many small tables that grow one at a time: the lock is held while one grows,
 * and to move a million entries at once would stop the script for longer than an event may take.
 *
 * Collisions go to the next free slot. A removal moves later entries back instead of leaving a mark,
 * so that a search ends at the first free slot. */
#include <stdlib.h>

#include "core.h"

enum {
	TABLES = 256,
	SLOTS_MIN = 16
};

typedef ndb_index_slot slot;

typedef struct {
	uint64_t count, mask; /* mask: the number of slots, a power of two, minus one */
	slot *slots;
} table;

struct ndb_index {
	_Atomic uint32_t refs;
	uint64_t bytes;
	table tables[TABLES];
};

static slot no_slot; /* of a table without entries; always free */

static table *table_of(ndb_index *x, uint64_t hash) { return &x->tables[hash >> 56]; }

static slot *first_slot(const table *t, uint64_t hash) { return &t->slots[(hash >> 1) & t->mask]; }

static slot *next_slot(const table *t, const slot *s) {
	return &t->slots[(uint64_t)(s - t->slots + 1) & t->mask];
}

ndb_index_slot *ndb_index_find(ndb_index *x, uint64_t hash, const char *key, size_t len) {
	const table *t = table_of(x, hash);
	for (slot *s = first_slot(t, hash);; s = next_slot(t, s)) {
		if (!s->entry) return s;
		if (s->hash == hash && s->entry->key_len == len && memcmp(s->entry->data, key, len) == 0)
			return s;
	}
}

static int grow(ndb_index *x, table *t) {
	uint64_t before = t->mask ? t->mask + 1 : 0, after = before ? before * 2 : SLOTS_MIN;
	table grown = {t->count, after - 1, calloc(after, sizeof(slot))};
	if (!grown.slots) return ndb_fail(NDB_E_MEMORY, "out of memory");
	for (uint64_t i = 0; i < before; i++) {
		if (!t->slots[i].entry) continue;
		slot *s = first_slot(&grown, t->slots[i].hash);
		while (s->entry) s = next_slot(&grown, s);
		*s = t->slots[i];
	}
	x->bytes += (after - before) * sizeof(slot);
	if (before) free(t->slots);
	*t = grown;
	return NDB_OK;
}

static int reserve(ndb_index *x, uint64_t hash) {
	table *t = table_of(x, hash);
	return (t->count + 1) * 4 > (t->mask + 1) * 3 ? grow(x, t) : NDB_OK;
}

/* An index of the layer's entries. */
static ndb_index *build(const ndb_layer *l) {
	ndb_index *x = malloc(sizeof *x);
	if (!x) return NULL;
	atomic_init(&x->refs, 1);
	x->bytes = sizeof *x;
	for (int i = 0; i < TABLES; i++) x->tables[i] = (table){0, 0, &no_slot};
	ndb_tree_cursor at;
	for (ndb_entry *e = ndb_cursor_first(&at, l->entries.root); e; e = ndb_cursor_next(&at)) {
		uint64_t hash = ndb_hash(e->data, e->key_len);
		if (reserve(x, hash) < 0) {
			ndb_index_unref(x);
			return NULL;
		}
		ndb_index_fill(x, ndb_index_find(x, hash, e->data, e->key_len), hash, e);
	}
	return x;
}

int ndb_index_reserve(ndb_layer *l, uint64_t hash) {
	if (!l->index && !(l->index = build(l))) return ndb_fail(NDB_E_MEMORY, "out of memory");
	return reserve(l->index, hash);
}

void ndb_index_fill(ndb_index *x, ndb_index_slot *s, uint64_t hash, ndb_entry *e) {
	table_of(x, hash)->count += s->entry == NULL;
	*s = (slot){hash, e};
}

void ndb_index_remove(ndb_index *x, const char *key, size_t len) {
	uint64_t hash = ndb_hash(key, len);
	table *t = table_of(x, hash);
	slot *hole = ndb_index_find(x, hash, key, len);
	if (!hole->entry) return;
	for (slot *s = next_slot(t, hole); s->entry; s = next_slot(t, s)) {
		/* An entry may move back to the hole unless its search begins behind it. */
		uint64_t from_start = (uint64_t)(s - first_slot(t, s->hash)) & t->mask;
		if (from_start < ((uint64_t)(s - hole) & t->mask)) continue;
		*hole = *s;
		hole = s;
	}
	*hole = (slot){0, NULL};
	t->count--;
}

void ndb_index_prefetch(const ndb_index *x, uint64_t hash) {
	__builtin_prefetch(first_slot(&x->tables[hash >> 56], hash));
}

void ndb_index_prefetch_entry(const ndb_index *x, uint64_t hash) {
	const slot *s = first_slot(&x->tables[hash >> 56], hash);
	if (s->entry) __builtin_prefetch(s->entry);
}

uint64_t ndb_index_bytes(const ndb_index *x) { return x ? x->bytes : 0; }

ndb_index *ndb_index_ref(ndb_index *x) {
	if (x) atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
	return x;
}

void ndb_index_unref(ndb_index *x) {
	if (!x || atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1) return;
	for (int i = 0; i < TABLES; i++)
		if (x->tables[i].mask) free(x->tables[i].slots);
	free(x);
}
