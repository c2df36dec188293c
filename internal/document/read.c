// Finding fields and reading values.

#include <string.h>

#include "fields.h"
#include "memory.h"
#include "text.h"
#include "tree.h"

int key_is_escaped(doc *d, const doc_node *n, const char *key, size_t len) {
	if (n->key_len < len) return 0;
	char *plain = arena_get(d, n->key_len);
	return plain && doc_unescape(n->key, n->key_len, plain) == len && memcmp(plain, key, len) == 0;
}

// find_lone finds out which of the first 64 nodes have a mark of their own.
static void find_lone(doc *d) {
	uint64_t twice[4] = {0}, *once = memset(d->present, 0, sizeof d->present);
	uint32_t n = d->nodes[0].next < 64 ? d->nodes[0].next : 64;
	for (uint32_t i = 1; i < d->nodes[0].next; i++) {
		uint64_t bit = (uint64_t)1 << d->marks[i] % 64, *at = &once[d->marks[i] / 64];
		twice[d->marks[i] / 64] |= *at & bit;
		*at |= bit;
	}
	d->lone = 0;
	for (uint32_t i = 1; i < n; i++)
		if (!(twice[d->marks[i] / 64] >> d->marks[i] % 64 & 1)) d->lone |= (uint64_t)1 << i;
	d->known = d->shape;
}

void remember(doc *d, const char *key, uint32_t field) {
	if (d->known != d->shape) find_lone(d);
	if (field >= 64 || !(d->lone >> field & 1)) return;
	doc_memo *m = memo_at(d, key);
	if (m->key != key && m->shape == d->shape) m = memo_beside(d, m);
	*m = (doc_memo){key, d->shape, field};
}

// search is doc_find for a key that is not recalled.
static __attribute__((noinline)) uint32_t search(doc *d, uint32_t object, const char *key, size_t len) {
	const doc_node *n = &d->nodes[object];
	if (n->kind != DOC_OBJECT) return 0;
	uint8_t mark = scan_mark(key, len);
	uint32_t field = is_absent(d, object, mark) ? 0 : find_between(d, object, object + 1, n->next, mark, key, len);
	if (field && d->steady) remember(d, key, field);
	return field ? field : find_added(d, object, mark, key, len);
}

uint32_t doc_find(doc *d, uint32_t object, const char *key, size_t len) {
	uint32_t known = recall(d, object, key, len);
	return __builtin_expect(known, 1) ? known : search(d, object, key, len);
}

// string_value sets str to the plain text of a string that is not as it stands.
static int string_value(doc *d, const doc_node *n) {
	if (n->flags & DOC_BARE) {
		d->str = n->text;
		d->str_len = n->len;
		return DOC_STRING;
	}
	char *out = arena_get(d, n->len);
	if (!out) return DOC_MISSING;
	d->str_len = (uint32_t)doc_unescape(n->text + 1, n->len - 2, out);
	d->str = out;
	return DOC_STRING;
}

static int number_value(doc *d, const doc_node *n) {
	if (n->flags & DOC_DOUBLE) {
		d->num = n->u.num;
		return DOC_NUMBER;
	}
	if (doc_exact(n->text, n->len, &d->num)) return DOC_NUMBER;
	d->str = n->text;
	d->str_len = n->len;
	return DOC_BIG;
}

static __attribute__((noinline)) int other_value(doc *d, const doc_node *n) {
	switch (n->kind) {
	case DOC_STRING: return string_value(d, n);
	case DOC_NUMBER: return number_value(d, n);
	case DOC_FOREIGN: d->num = n->count; return DOC_FOREIGN;
	default: return n->kind;
	}
}

int doc_value(doc *d, uint32_t node) {
	const doc_node *n = &d->nodes[node];
	d->got = node;
	if (!is_plain(n)) return other_value(d, n);
	d->str = n->text + 1;
	d->str_len = n->len - 2;
	return DOC_STRING;
}

int doc_read(doc *d, uint32_t object, const char *key, size_t len) {
	uint32_t field = doc_find(d, object, key, len);
	if (!field || d->nodes[field].flags & DOC_REMOVED) return DOC_MISSING;
	return doc_value(d, value_of(d, field));
}

uint32_t doc_length(const doc *d, uint32_t array) {
	const doc_node *n = &d->nodes[array];
	return n->flags & DOC_LISTED ? n->u.list->len : n->count;
}

// element returns the node of the element at index, from 0. It starts from the
// element that was read last, so that a loop over an array is linear.
static uint32_t element(doc *d, uint32_t array, uint32_t index) {
	doc_node *n = &d->nodes[array];
	if (n->flags & DOC_LISTED) return n->u.list->at[index];
	if (n->next - array - 1 == n->count) return array + 1 + index; // only scalars
	uint32_t i = 0, at = array + 1;
	if (n->u.near.index && n->u.near.index <= index) i = n->u.near.index, at = n->u.near.node;
	for (; i < index; i++) at = d->nodes[at].next;
	n->u.near.index = index;
	n->u.near.node = at;
	return at;
}

int doc_at(doc *d, uint32_t array, double index) {
	if (!(index >= 1 && index <= doc_length(d, array)) || index != (uint32_t)index) return DOC_MISSING;
	return doc_value(d, value_of(d, element(d, array, (uint32_t)index - 1)));
}

// is_shadowed tells whether a field of the text has the key of a later one.
static int is_shadowed(doc *d, uint32_t object, uint32_t field) {
	doc_node n = d->nodes[field];
	if (n.flags & DOC_KEY_ESCAPED) {
		char *plain = arena_get(d, n.key_len);
		if (!plain) return 0;
		n.key_len = (uint32_t)doc_unescape(n.key, n.key_len, plain);
		n.key = plain;
	}
	return find_between(d, object, field + 1, d->nodes[object].next, d->marks[field], n.key, n.key_len) != 0;
}

static uint32_t next_field(const doc *d, uint32_t object, uint32_t field) {
	uint32_t end = d->nodes[object].next;
	if (field >= end) return d->nodes[field].next; // an added one
	uint32_t i = field ? d->nodes[field].next : object + 1;
	return i < end ? i : d->nodes[object].first;
}

static int set_key(doc *d, const doc_node *n) {
	d->str = n->key;
	d->str_len = n->key_len;
	if (!(n->flags & DOC_KEY_ESCAPED)) return 1;
	char *plain = arena_get(d, n->key_len);
	if (!plain) return 0;
	d->str_len = (uint32_t)doc_unescape(n->key, n->key_len, plain);
	d->str = plain;
	return 1;
}

uint32_t doc_step(doc *d, uint32_t object, uint32_t field) {
	if (d->nodes[object].kind != DOC_OBJECT) return 0;
	while ((field = next_field(d, object, field))) {
		const doc_node *n = &d->nodes[field];
		if (n->flags & DOC_REMOVED) continue;
		if (field < d->nodes[object].next && is_shadowed(d, object, field)) continue;
		d->got = value_of(d, field);
		return set_key(d, n) ? field : 0;
	}
	return 0;
}
