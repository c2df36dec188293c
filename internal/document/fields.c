#include "fields.h"

#include <string.h>

#include "memory.h"

int doc_key_is_escaped(doc *d, const doc_node *n, const char *key, size_t len) {
	if (n->key_len < len) return 0;
	doc_chunk *chunk = d->chunk;
	size_t used = d->chunk_used, written = d->written;
	char *plain = arena_get(d, n->key_len);
	int same =
	    plain && doc_unescape(n->key, n->key_len, plain) == len && memcmp(plain, key, len) == 0;
	d->chunk = chunk ? chunk : d->chunks;
	d->chunk_used = used;
	d->written = written;
	return same;
}

// index_hashes finds which of the first 64 nodes have a unique hash.
static void index_hashes(doc *d) {
	uint64_t twice[4] = {0}, *once = memset(d->hashes_present, 0, sizeof d->hashes_present);
	uint32_t n = d->nodes[0].next < 64 ? d->nodes[0].next : 64;
	for (uint32_t i = 1; i < d->nodes[0].next; i++) {
		uint64_t bit = (uint64_t)1 << d->hashes[i] % 64, *at = &once[d->hashes[i] / 64];
		twice[d->hashes[i] / 64] |= *at & bit;
		*at |= bit;
	}
	d->unique_hashes = 0;
	for (uint32_t i = 1; i < n; i++)
		if (!(twice[d->hashes[i] / 64] >> d->hashes[i] % 64 & 1))
			d->unique_hashes |= (uint64_t)1 << i;
	d->indexed_shape = d->shape;
}

void doc_cache_field(doc *d, const char *key, uint32_t field) {
	if (d->indexed_shape != d->shape) index_hashes(d);
	if (field >= 64 || !(d->unique_hashes >> field & 1)) return;
	doc_field_slot *m = field_slot(d, key);
	if (m->key != key && m->shape == d->shape) m = field_slot_beside(d, m);
	*m = (doc_field_slot){key, d->shape, field};
}
