// Writes, which are recorded separately from the text.

#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "memory.h"
#include "number.h"
#include "tree.h"

// Creating values

static uint32_t value_new(doc *d, int kind, int flags, const char *text, size_t len) {
	uint32_t i = node_add(d);
	if (!i) return 0;
	d->nodes[i] = (doc_node){.kind = (uint8_t)kind,
	    .flags = (uint16_t)flags,
	    .text = text,
	    .len = (uint32_t)len,
	    .next = i + 1,
	    .parent = i};
	return i;
}

static char *copy_text(doc *d, const char *s, size_t len) {
	if (len >= (size_t)1 << 31) return NULL;
	char *copy = arena_get(d, len ? len : 1);
	return copy ? memcpy(copy, s, len) : NULL;
}

uint32_t doc_number(doc *d, double x) {
	uint32_t i = value_new(d, DOC_NUMBER, DOC_DOUBLE, NULL, 0);
	if (i) d->nodes[i].u.num = x;
	return i;
}

uint32_t doc_string(doc *d, const char *s, size_t len) {
	char *copy = copy_text(d, s, len);
	return copy ? value_new(d, DOC_STRING, DOC_UNQUOTED, copy, len) : 0;
}

uint32_t doc_number_text(doc *d, const char *s, size_t len) {
	char *copy = copy_text(d, s, len);
	return copy ? value_new(d, DOC_NUMBER, 0, copy, len) : 0;
}

static const char *literal(int kind, uint32_t *len) {
	*len = kind == DOC_FALSE ? 5 : 4;
	return kind == DOC_TRUE ? "true" : kind == DOC_FALSE ? "false" : "null";
}

uint32_t doc_literal(doc *d, int kind) {
	uint32_t len;
	const char *word = literal(kind, &len);
	return value_new(d, kind, 0, word, len);
}

uint32_t doc_external(doc *d) {
	uint32_t i = value_new(d, DOC_EXTERNAL, 0, NULL, 0);
	if (i) d->nodes[i].count = ++d->externals;
	return i;
}

uint32_t doc_parse(doc *d, const char *text, size_t len, int *error) {
	char *copy = copy_text(d, text, len);
	*error = copy ? DOC_OK : DOC_NO_MEMORY;
	if (!copy) return 0;
	uint32_t root = doc_index_value(d, copy, len, error);
	d->written += (d->count - root) * sizeof(doc_node);
	return root;
}

// Putting values

// set_removed marks a field of the text as removed.
static inline void set_removed(doc *d, uint32_t field) {
	if (field < 64) d->removed |= (uint64_t)1 << field;
	d->nodes[field].flags |= DOC_REMOVED;
}

static inline void mark_dirty(doc *d, uint32_t node) {
	while (!(d->nodes[node].flags & DOC_DIRTY)) {
		d->nodes[node].flags |= DOC_DIRTY;
		if (node < 64) d->changed |= (uint64_t)1 << node;
		node = d->nodes[node].parent;
	}
}

// reuse_node moves a value into the node of the written scalar that it replaces, if possible, and
// returns its node. No reference to that scalar can exist, and repeated writes of a field thus need
// no more memory.
static uint32_t reuse_node(doc *d, uint32_t old, uint32_t value) {
	doc_node *was = &d->nodes[old], *n = &d->nodes[value];
	if (was->kind >= DOC_OBJECT || n->kind >= DOC_OBJECT || value != d->count - 1) return value;
	*was = *n;
	was->next = old + 1;
	d->count--;
	// the node will get another value
	if (__builtin_expect(d->keys.objects > d->count, 0)) d->keys.objects = d->count;
	d->written -= sizeof(doc_node);
	return old;
}

static void replace(doc *d, uint32_t field, uint32_t value) {
	doc_node *n = &d->nodes[field];
	if (n->flags & DOC_REPLACED) value = reuse_node(d, n->other, value);
	if (field < 64) d->changed |= (uint64_t)1 << field, d->removed &= ~((uint64_t)1 << field);
	n->flags = (uint16_t)((n->flags & ~DOC_REMOVED) | DOC_REPLACED);
	n->other = value;
}

// add_node adds a field to an object. The caller sets the other members one by one, since copying a
// node just written in parts would stall the processor.
static inline doc_node *add_node(
    doc *d, uint32_t object, const char *key, size_t len, uint8_t hash) {
	uint32_t i = node_add(d);
	if (!i) return NULL;
	d->nodes[i] = (doc_node){.key = key, .key_len = (uint32_t)len, .parent = object};
	d->hashes[i] = hash;
	d->added |= (uint64_t)1 << hash % 64;
	doc_node *n = &d->nodes[object];
	if (n->first) d->nodes[n->last].next = i;
	else n->first = i;
	n->last = i;
	return &d->nodes[i];
}

// index_field adds a field to the key index, after its key is written.
static inline void index_field(doc *d, const doc_node *field) {
	if (__builtin_expect(keys_cover(d, field->parent), 0))
		doc_keys_add(d, (uint32_t)(field - d->nodes));
}

static int add_field(doc *d, uint32_t object, const char *key, size_t len, uint32_t value) {
	char *copy = copy_text(d, key, len);
	doc_node *field = copy ? add_node(d, object, copy, len, scan_hash(key, len)) : NULL;
	if (!field) return DOC_NO_MEMORY;
	field->kind = DOC_NULL;
	field->flags = DOC_REPLACED;
	field->other = value;
	index_field(d, field);
	return DOC_OK;
}

// find_in_16 finds the fields with the key among the up to 16 nodes of [base, end). It stores the
// last one in *field, if that is 0, and removes the others.
static inline __attribute__((always_inline)) void find_in_16(doc *d, uint32_t object, uint32_t base,
    uint32_t end, uint8_t hash, const char *key, size_t len, uint32_t *field) {
	uint32_t bits = scan_find(d->hashes + base, hash) & ((1u << (end - base)) - 1);
	while (bits) {
		uint32_t top = 31 - (uint32_t)__builtin_clz(bits);
		doc_node *n = &d->nodes[base + top];
		bits ^= 1u << top;
		if (n->parent != object || !key_is(d, n, key, len)) continue;
		if (*field) set_removed(d, base + top);
		else *field = base + top;
	}
}

// find_indexed_to_write is find_to_write for an object covered by the key index.
static uint32_t find_indexed_to_write(doc *d, uint32_t object, const char *key, size_t len) {
	uint32_t field = doc_keys_find(d, object, key, len);
	for (doc_node *n = &d->nodes[field]; n->flags & DOC_REPEATS; n = &d->nodes[n->other]) {
		n->flags &= (uint16_t)~DOC_REPEATS;
		set_removed(d, n->other);
	}
	return field;
}

// find_uncached_to_write is find_to_write for a key that may be in the text and is not cached.
static __attribute__((noinline)) uint32_t find_uncached_to_write(
    doc *d, uint32_t object, const char *key, size_t len, uint8_t hash) {
	if (keys_cover(d, object)) return find_indexed_to_write(d, object, key, len);
	keys_searched(d, d->nodes[object].next - object);
	uint32_t from = object + 1, end = d->nodes[object].next, field = 0;
	for (; __builtin_expect(end - from > 16, 0); end -= 16)
		find_in_16(d, object, end - 16, end, hash, key, len, &field);
	find_in_16(d, object, from, end, hash, key, len, &field);
	if (field && d->same_shape) doc_cache_field(d, key, field);
	return field ? field : find_added(d, object, hash, key, len);
}

// find_to_write is doc_find. It also removes earlier fields with the same key.
static inline uint32_t find_to_write(
    doc *d, uint32_t object, const char *key, size_t len, uint8_t hash) {
	if (__builtin_expect(is_hash_absent(d, object, hash), 1))
		return find_added(d, object, hash, key, len);
	uint32_t field = cached_field(d, object, key, len);
	return field ? field : find_uncached_to_write(d, object, key, len, hash);
}

uint32_t doc_tree_height(const doc *d, uint32_t node) {
	uint32_t height = 0, depth = 0, container = node;
	for (uint32_t i = node; i < d->nodes[node].next; i++) {
		for (; depth && i >= d->nodes[container].next; depth--)
			container = d->nodes[container].parent;
		if (d->nodes[i].kind != DOC_OBJECT && d->nodes[i].kind != DOC_ARRAY) continue;
		container = i;
		if (++depth > height) height = depth;
	}
	return height;
}

// check_depth checks whether a value may be put into a container.
static int check_depth(const doc *d, uint32_t container, uint32_t value) {
	if (d->nodes[value].kind != DOC_OBJECT && d->nodes[value].kind != DOC_ARRAY) return DOC_OK;
	uint32_t depth = doc_tree_height(d, value) + 1;
	for (; d->nodes[container].parent != container && depth <= DOC_MAX_DEPTH; depth++)
		container = d->nodes[container].parent;
	return depth > DOC_MAX_DEPTH ? DOC_TOO_DEEP : DOC_OK;
}

int doc_put(doc *d, uint32_t object, const char *key, size_t len, uint32_t value) {
	if (!value) return DOC_NO_MEMORY;
	if (d->nodes[object].kind != DOC_OBJECT) return DOC_IS_ARRAY;
	if (check_depth(d, object, value)) return DOC_TOO_DEEP;
	d->nodes[value].parent = object;
	mark_dirty(d, object);
	uint32_t field = find_to_write(d, object, key, len, scan_hash(key, len));
	if (!field) return add_field(d, object, key, len, value);
	replace(d, field, value);
	return DOC_OK;
}

// Writing scalars

// A scalar to write. The caller owns its text.
typedef struct {
	const char *text; // string: the bytes between the quotes
	double num;
	uint32_t len; // encoded length; including quotes for a string without escapes
	uint16_t flags;
	uint8_t kind;
} scalar;

// Each key has two possible slots.
static inline doc_key_slot *key_slot(doc *d, const char *key) {
	return &d->key_slots[((uintptr_t)key >> 3 ^ (uintptr_t)key >> 9) % DOC_KEY_SLOTS];
}

static inline doc_key_slot *key_slot_beside(doc *d, const doc_key_slot *n) {
	return &d->key_slots[(n - d->key_slots) ^ 1];
}

// cache_key fills a slot for a key, if the key is short and needs no escapes.
static __attribute__((noinline)) const doc_key_slot *cache_key(
    doc *d, doc_key_slot *n, const char *key, size_t len) {
	if (len > DOC_CACHED_KEY_MAX || scan_text(key, len)) return NULL;
	*key_slot_beside(d, n) = *n;
	n->key = key;
	n->len = (uint32_t)len;
	n->hash = scan_hash(key, len);
	n->text[0] = ',', n->text[1] = '"';
	memcpy(n->text + 2, key, len);
	n->text[len + 2] = '"', n->text[len + 3] = ':';
	return n;
}

// cached_key returns the slot of a key, or NULL if the key cannot be cached.
static inline const doc_key_slot *cached_key(doc *d, const char *key, size_t len) {
	if (!d->key_slots && !(d->key_slots = calloc(DOC_KEY_SLOTS, sizeof *d->key_slots))) return NULL;
	doc_key_slot *first = key_slot(d, key);
	const doc_key_slot *n = first->key == key ? first : key_slot_beside(d, first);
	if (n->key == key && n->len == len && scan_same(n->text + 2, key, len)) return n;
	return cache_key(d, first, key, len);
}

// write_scalar encodes a scalar and returns its length.
static inline uint32_t write_scalar(char *at, const scalar *value) {
	if (value->flags & DOC_DOUBLE) return (uint32_t)doc_number_print(at, value->num);
	if (value->kind != DOC_STRING || value->flags & DOC_UNQUOTED) {
		scan_copy(at, value->text, value->len);
		return value->len;
	}
	*at = '"';
	scan_copy(at + 1, value->text, value->len - 2);
	at[value->len - 1] = '"';
	return value->len;
}

// add_encoded adds a field that needs no escapes, in encoded form.
static inline int add_encoded(
    doc *d, uint32_t object, const doc_key_slot *name, const scalar *value) {
	char *at =
	    arena_get(d, name->len + 4 + (value->flags & DOC_DOUBLE ? NUMBER_MAX : (size_t)value->len));
	doc_node *field = at ? add_node(d, object, at + 2, name->len, name->hash) : NULL;
	if (!field) return DOC_NO_MEMORY;
	scan_copy(at, name->text, name->len + 4);
	at += name->len + 4;
	field->text = at;
	field->len = write_scalar(at, value);
	field->u.num = value->num;
	field->flags = value->flags | DOC_ENCODED;
	field->kind = value->kind;
	index_field(d, field);
	return DOC_OK;
}

static uint32_t scalar_new(doc *d, const scalar *value) {
	const char *text = value->text;
	if (value->kind == DOC_STRING) {
		char *at = arena_get(d, value->len + 1);
		if (!at) return 0;
		write_scalar(at, value);
		text = at;
	}
	uint32_t i = value_new(d, value->kind, value->flags, text, value->len);
	if (i) d->nodes[i].u.num = value->num;
	return i;
}

// set_scalar_slowly is set_scalar for any key and scalar.
static __attribute__((noinline)) int set_scalar_slowly(
    doc *d, uint32_t object, const char *key, size_t len, const scalar *value) {
	if (scan_text(key, len) & SCAN_HIGH && !doc_utf8(key, len)) return DOC_BAD_UTF8;
	mark_dirty(d, object);
	uint32_t field = find_to_write(d, object, key, len, scan_hash(key, len));
	uint32_t i = scalar_new(d, value);
	if (!i) return DOC_NO_MEMORY;
	d->nodes[i].parent = object;
	if (!field) return add_field(d, object, key, len, i);
	replace(d, field, i);
	return DOC_OK;
}

// set_scalar writes a scalar to a field. It is fast if neither the value nor the key of a new field
// needs escapes.
static inline int set_scalar(
    doc *d, uint32_t object, const char *key, size_t len, const scalar *value) {
	if (d->nodes[object].kind != DOC_OBJECT) return DOC_IS_ARRAY;
	const doc_key_slot *name = value->flags & DOC_UNQUOTED ? NULL : cached_key(d, key, len);
	if (!name || find_to_write(d, object, key, len, name->hash))
		return set_scalar_slowly(d, object, key, len, value);
	mark_dirty(d, object);
	return add_encoded(d, object, name, value);
}

int doc_set_string(doc *d, uint32_t object, const char *key, size_t len, const char *s, size_t n) {
	if (n >= (size_t)1 << 30) return DOC_NO_MEMORY;
	int met = scan_text(s, n);
	if (met & SCAN_HIGH && !doc_utf8(s, n)) return DOC_BAD_UTF8;
	scalar value = {.kind = DOC_STRING, .text = s, .len = (uint32_t)n};
	if (met & SCAN_SPECIAL) value.flags = DOC_UNQUOTED;
	else value.len += 2; // the quotes
	return set_scalar(d, object, key, len, &value);
}

int doc_set_number(doc *d, uint32_t object, const char *key, size_t len, double x) {
	if (x - x != 0) return DOC_BAD_NUMBER;
	return set_scalar(
	    d, object, key, len, &(scalar){.kind = DOC_NUMBER, .flags = DOC_DOUBLE, .num = x});
}

int doc_set_literal(doc *d, uint32_t object, const char *key, size_t len, int kind) {
	scalar value = {.kind = (uint8_t)kind};
	value.text = literal(kind, &value.len);
	return set_scalar(d, object, key, len, &value);
}

// remove_uncached is doc_remove for a key that is not cached.
static __attribute__((noinline)) int remove_uncached(
    doc *d, uint32_t object, const char *key, size_t len) {
	if (d->nodes[object].kind != DOC_OBJECT) return DOC_IS_ARRAY;
	uint32_t field = find_to_write(d, object, key, len, scan_hash(key, len));
	if (!field) return DOC_OK;
	mark_dirty(d, object);
	set_removed(d, field);
	return DOC_OK;
}

int doc_remove(doc *d, uint32_t object, const char *key, size_t len) {
	uint32_t field = cached_field(d, object, key, len);
	if (__builtin_expect(!field, 0)) return remove_uncached(d, object, key, len);
	mark_dirty(d, object);
	set_removed(d, field);
	return DOC_OK;
}

// list_need gives an array a list of its elements, with space for one more.
static doc_list *list_need(doc *d, uint32_t array) {
	doc_node *n = &d->nodes[array];
	doc_list *old = n->flags & DOC_LISTED ? n->u.list : NULL;
	if (old && old->len < old->cap) return old;
	uint32_t len = old ? old->len : n->count;
	doc_list *list = old ? old : arena_get(d, sizeof *list);
	uint32_t cap = len * 2 + 4;
	uint32_t *at = arena_get(d, cap * sizeof *at);
	if (!list || !at) return NULL;
	if (old) memcpy(at, old->at, len * sizeof *at);
	else
		for (uint32_t i = 0, child = array + 1; i < len; i++, child = d->nodes[child].next)
			at[i] = child;
	*list = (doc_list){at, len, cap};
	n->u.list = list;
	n->flags |= DOC_LISTED;
	return list;
}

static int writable_list(doc *d, uint32_t array, doc_list **list) {
	if (d->nodes[array].kind != DOC_ARRAY) return DOC_IS_OBJECT;
	*list = list_need(d, array);
	if (!*list) return DOC_NO_MEMORY;
	mark_dirty(d, array);
	return DOC_OK;
}

static int is_index(double index, uint32_t max) {
	return index >= 1 && index <= max && index == (uint32_t)index;
}

int doc_put_at(doc *d, uint32_t array, double index, uint32_t value) {
	if (d->nodes[array].kind == DOC_ARRAY && index == (double)doc_length(d, array) + 1)
		return doc_insert(d, array, index, value);
	doc_list *list;
	if (!value) return DOC_NO_MEMORY;
	if (check_depth(d, array, value)) return DOC_TOO_DEEP;
	int error = writable_list(d, array, &list);
	if (error) return error;
	if (!is_index(index, list->len)) return DOC_NO_INDEX;
	d->nodes[value].parent = array;
	list->at[(uint32_t)index - 1] = value;
	return DOC_OK;
}

int doc_insert(doc *d, uint32_t array, double index, uint32_t value) {
	doc_list *list;
	if (!value) return DOC_NO_MEMORY;
	if (check_depth(d, array, value)) return DOC_TOO_DEEP;
	int error = writable_list(d, array, &list);
	if (error) return error;
	if (!is_index(index, list->len + 1)) return DOC_NO_INDEX;
	uint32_t *at = list->at + (uint32_t)index - 1;
	memmove(at + 1, at, (list->len - ((uint32_t)index - 1)) * sizeof *at);
	*at = value;
	list->len++;
	d->nodes[value].parent = array;
	return DOC_OK;
}

int doc_remove_at(doc *d, uint32_t array, double index) {
	doc_list *list;
	int error = writable_list(d, array, &list);
	if (error) return error;
	if (!is_index(index, list->len)) return DOC_NO_INDEX;
	uint32_t *at = list->at + (uint32_t)index - 1;
	memmove(at, at + 1, (list->len - (uint32_t)index) * sizeof *at);
	list->len--;
	return DOC_OK;
}
