// The strict structural index. A first pass finds quotes, backslashes and control characters in
// blocks of 64 bytes; a second pass walks from token to token and never reads the inside of a plain
// string.

#include <stdlib.h>

#include "template.h"
#include "memory.h"
#include "scan.h"
#include "text.h"

INLINE void skip_space(walk *w) {
	// The last byte of the text is a bracket, which stops the loop.
	if (__builtin_expect((unsigned char)w->text[w->at] <= ' ', 0))
		while (is_space(w->text[w->at])) w->at++;
}

static int blocks_need(doc *d, uint32_t n) {
	if (n <= d->block_cap) return DOC_OK;
	uint32_t cap = n * 2;
	if (doc_memory_take(d, blocks_size(cap) - blocks_size(d->block_cap))) return DOC_NO_MEMORY;
	doc_block *blocks = realloc(d->blocks, (size_t)cap * sizeof *blocks);
	if (blocks) d->blocks = blocks;
	uint64_t *quotes = realloc(d->quotes, ((size_t)cap + 1) * sizeof *quotes);
	if (quotes) d->quotes = quotes;
	if (!blocks || !quotes) return DOC_NO_MEMORY;
	d->block_cap = cap;
	return DOC_OK;
}

// full_block returns 64 bytes at p, with padding after the `left` bytes of the text if needed.
static inline const char *full_block(
    const char *p, size_t left, const char *limit, char padded[64]) {
	if (__builtin_expect(limit - p >= 64, 1)) return p;
	memset(padded, ' ', 64);
	return memcpy(padded, p, left < 64 ? left : 64);
}

// classify finds the unescaped quotes, the backslashes and the control characters. It returns the
// kinds of special bytes found, besides quotes.
static __attribute__((noinline)) scan_bits classify(
    doc *d, const char *text, uint32_t len, const char *limit) {
	scan_bits met = {0, 0, 0, 0};
	uint64_t carry = 0;
	for (uint32_t i = 0; i * 64 < len; i++) {
		char padded[64];
		size_t left = len - i * 64;
		scan_bits b = scan64(full_block(text + (size_t)i * 64, left, limit, padded));
		if (left < 64) scan_cut(&b, left);
		if (b.slash | carry) b.quote &= ~scan_escaped(b.slash, &carry);
		d->quotes[i] = b.quote;
		d->blocks[i] = (doc_block){b.slash, b.control};
		met.slash |= b.slash, met.control |= b.control, met.high |= b.high;
	}
	return met;
}

// last_quotes finds the quotes of the last, incomplete block, by reading the last 64 bytes of the
// text, or all of a shorter text.
static inline uint64_t last_quotes(
    const char *text, uint32_t len, const char *limit, scan_met *met) {
	uint32_t left = len % 64;
	if (__builtin_expect(len > 64, 1)) return scan_quotes(text + len - 64, met) >> (64 - left);
	char padded[64];
	return scan_quotes(full_block(text, left, limit, padded), met) & (((uint64_t)1 << left) - 1);
}

// find_quotes finds the quotes and checks the encoding of the whole text. It sets d->special if the
// text has backslashes or control characters; mostly the preceding text decides that. Bytes past
// the end may also set it, which is harmless.
static int find_quotes(doc *d, const char *text, uint32_t len, const char *limit) {
	uint32_t n = (len + 63) / 64;
	if (blocks_need(d, n)) return fail(d, DOC_NO_MEMORY, 0);
	int ascii;
	if (!d->special) {
		scan_met met = scan_begin();
		for (uint32_t i = 0; i < len / 64; i++)
			d->quotes[i] = scan_quotes(text + (size_t)i * 64, &met);
		if (len % 64) d->quotes[n - 1] = last_quotes(text, len, limit, &met);
		ascii = scan_ascii(&met);
		if ((d->special = !scan_plain(&met))) classify(d, text, len, limit);
	} else {
		scan_bits met = classify(d, text, len, limit);
		d->special = (met.slash | met.control) != 0;
		ascii = met.high == 0;
	}
	d->quotes[n] = 1; // after the text; stops next_quotes in template.c
	if (ascii) return DOC_OK;
	size_t end = doc_utf8_end(text, len);
	return end < len ? fail(d, DOC_BAD_UTF8, (uint32_t)end) : DOC_OK;
}

// next_quote returns the offset of the next unescaped quote, or len. The bits stay in a register,
// so that no string waits for the preceding one.
INLINE uint32_t next_quote(walk *w) {
	while (__builtin_expect(w->bits == 0, 0)) {
		if (w->base + 64 >= w->len) return w->len;
		w->base += 64;
		w->bits = w->d->quotes[w->base / 64];
	}
	uint32_t at = w->base + (uint32_t)__builtin_ctzll(w->bits);
	w->bits &= w->bits - 1;
	return at;
}

// string walks over the string at w->at and stores its end. It returns the same as
// doc_check_string. Without `special` the text has neither backslashes nor control characters.
INLINE int string(walk *w, uint32_t *end, const int special) {
	next_quote(w); // the opening quote
	*end = next_quote(w);
	int checked = special ? doc_check_string(w->d, w->text, w->at + 1, *end) : 0;
	if (__builtin_expect(*end == w->len, 0))
		return checked < 0 ? checked : -fail(w->d, DOC_CUT_SHORT, w->len);
	w->at = *end + 1;
	return checked;
}

INLINE doc_node *node_open(walk *w, const char *key, uint32_t key_len, int flags) {
	if (__builtin_expect(w->count == w->d->cap, 0)) {
		if (doc_nodes_grow(w->d)) return NULL;
		w->nodes = w->d->nodes;
	}
	uint32_t i = w->count++;
	doc_node *n = &w->nodes[i];
	n->key = key;
	n->key_len = key_len;
	n->text = w->text + w->at;
	n->next = i + 1;
	n->parent = w->container;
	n->flags = (uint8_t)flags;
	return n;
}

static __attribute__((noinline)) uint8_t hash_escaped(doc *d, const char *key, uint32_t len) {
	char small[64];
	char *out = len <= sizeof small ? small : arena_get(d, len);
	if (!out) return 0;
	return scan_hash(out, doc_unescape(key, len, out));
}

INLINE void container_open(walk *w, doc_node *n, int kind) {
	w->nodes[w->container].count = w->children;
	w->children = 0;
	n->kind = (uint8_t)kind;
	n->first = n->last = 0;
	n->u.last_read.index = 0;
	w->container = (uint32_t)(n - w->nodes);
	w->depth++;
	w->at++;
}

INLINE void container_close(walk *w) {
	doc_node *n = &w->nodes[w->container];
	w->at++;
	n->len = (uint32_t)(w->text + w->at - n->text);
	n->next = w->count;
	n->count = w->children;
	w->container = n->parent;
	w->children = w->nodes[w->container].count;
	w->depth--;
}

// scalar walks over a scalar.
INLINE int scalar(walk *w, doc_node *n, const int special) {
	uint32_t from = w->at, end;
	if (__builtin_expect(w->text[from] == '"', 1)) {
		int escaped = string(w, &end, special);
		if (escaped < 0) return -escaped;
		n->kind = DOC_STRING;
		n->flags |= (uint8_t)escaped;
		n->len = w->at - from;
		return DOC_OK;
	}
	return unquoted(w, n);
}

// tokens walks over all tokens after the opening bracket, and stores its final offset in *used.
INLINE int tokens(walk w, uint32_t *used, const int special) {
	const char *text = w.text;
	doc *d = w.d;
	int error, escaped, in_array;
	doc_node *n;
	const char *key;
	uint32_t key_len, end;

opened:
	in_array = w.nodes[w.container].kind == DOC_ARRAY;
	skip_space(&w);
	if (text[w.at] == (in_array ? ']' : '}')) goto close;
	if (in_array) goto element;

member:
	if (text[w.at] != '"') return fail(d, DOC_WANT_KEY, w.at);
	key = text + w.at + 1;
	if ((escaped = string(&w, &end, special)) < 0) return -escaped;
	key_len = (uint32_t)(text + end - key);
	if (__builtin_expect(text[w.at] != ':', 0)) {
		skip_space(&w);
		if (text[w.at] != ':') return fail(d, DOC_WANT_COLON, w.at);
	}
	w.at++;
	if (text[w.at] != '"') skip_space(&w);
	if (!(n = node_open(&w, key, key_len, escaped ? DOC_KEY_ESCAPED : 0))) return DOC_NO_MEMORY;
	d->hashes[w.count - 1] = escaped ? hash_escaped(d, key, key_len) : scan_hash(key, key_len);
	goto value;

element:
	if (!(n = node_open(&w, NULL, 0, 0))) return DOC_NO_MEMORY;
	d->hashes[w.count - 1] = 0;

value:
	w.children++;
	if (text[w.at] != '"' && (text[w.at] == '{' || text[w.at] == '[')) {
		if (w.depth == DOC_MAX_DEPTH) return fail(d, DOC_TOO_DEEP, w.at);
		container_open(&w, n, text[w.at] == '{' ? DOC_OBJECT : DOC_ARRAY);
		goto opened;
	}
	if ((error = scalar(&w, n, special))) return error;

after:
	if (text[w.at] != ',') skip_space(&w);
	if (text[w.at] == ',') {
		w.at++;
		if (text[w.at] != '"') skip_space(&w);
		if (in_array) goto element;
		goto member;
	}
	if (text[w.at] != (in_array ? ']' : '}')) return fail(d, DOC_WANT_COMMA, w.at);

close:
	container_close(&w);
	*used = w.at;
	d->count = w.count;
	if (w.depth == 0) return DOC_OK;
	if (w.at == w.len) return fail(d, DOC_CUT_SHORT, w.len);
	in_array = w.nodes[w.container].kind == DOC_ARRAY;
	goto after;
}

static int tokens_plain(walk w, uint32_t *used) { return tokens(w, used, 0); }
static __attribute__((noinline)) int tokens_special(walk w, uint32_t *used) {
	return tokens(w, used, 1);
}

// check_fields rejects a document, with first node `first`, that has too many fields.
static __attribute__((noinline)) int check_fields(doc *d, uint32_t first, const char *text) {
	uint32_t fields = 0;
	for (uint32_t i = first; i < d->count; i++)
		if (d->nodes[i].key && ++fields > DOC_MAX_FIELDS)
			return fail(d, DOC_TOO_MANY_FIELDS, (uint32_t)(d->nodes[i].key - 1 - text));
	return DOC_OK;
}

// index_closed reads a text that starts and ends with a bracket.
static int index_closed(doc *d, const char *text, uint32_t len, const char *limit, uint32_t *used) {
	int error = find_quotes(d, text, len, limit);
	if (error) return error;
	const int special = d->special;
	if (d->count == 0 && doc_template_match(d, text, len, special)) return *used = len, DOC_OK;
	walk w = {.d = d,
	    .text = text,
	    .len = len,
	    .nodes = d->nodes,
	    .bits = d->quotes[0],
	    .count = d->count,
	    .container = d->count};
	doc_node *root = node_open(&w, NULL, 0, 0);
	if (!root) return fail(d, DOC_NO_MEMORY, 0);
	d->hashes[w.count - 1] = 0;
	container_open(&w, root, *text == '{' ? DOC_OBJECT : DOC_ARRAY);
	uint32_t first = d->count;
	error = __builtin_expect(special, 0) ? tokens_special(w, used) : tokens_plain(w, used);
	if (error || __builtin_expect(d->count - first <= DOC_MAX_FIELDS, 1)) return error;
	return check_fields(d, first, text);
}

// index_open finds the error in a text that does not end with a bracket, by reading a copy to which
// it adds one.
static int index_open(doc *d, const char *text, uint32_t len) {
	char *copy = malloc((size_t)len + 1);
	if (!copy) return DOC_NO_MEMORY;
	memcpy(copy, text, len);
	copy[len] = '}';
	uint32_t used = 0;
	int error = index_closed(d, copy, len + 1, copy + len + 1, &used);
	free(copy);
	if (error && d->offset < len) return error;
	d->offset = error || used > len ? len : used;
	return d->offset < len ? DOC_TRAILING : DOC_CUT_SHORT;
}

// not_object returns why a document that does not start with { is rejected. report.NotAnObject does
// the same.
static int not_object(const char *text, size_t len) {
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) return DOC_BYTE_ORDER_MARK;
	if (len >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2)))
		return DOC_BYTE_ORDER_MARK;
	if (text[0] == '[') return DOC_STARTS_ARRAY;
	if (len >= 2 && !memcmp(text, "\x1f\x8b", 2)) return DOC_GZIP;
	return DOC_NOT_OBJECT;
}

static int index_text(doc *d, const char *text, size_t len, const char *limit) {
	uint32_t from = 0, end = (uint32_t)len, used = 0;
	d->offset = 0;
	while (from < end && is_space(text[from])) from++;
	while (end > from && is_space(text[end - 1])) end--;
	if (from == end) return DOC_EMPTY;
	d->offset = from;
	if (text[from] != '{') return not_object(text + from, end - from);
	char last = text[end - 1];
	int error = last == '}' || last == ']' ? index_closed(d, text + from, end - from, limit, &used)
	                                       : index_open(d, text + from, end - from);
	if (!error && used < end - from) {
		d->offset = used;
		error = DOC_TRAILING;
	}
	d->offset += from;
	if (error == DOC_TRAILING)
		while (is_space(text[d->offset])) d->offset++;
	return error;
}

// update_shape compares the hashes with those of the preceding document.
static void update_shape(doc *d) {
	d->same_shape =
	    d->count == d->last_count && scan_same_hashes(d->hashes, d->last_hashes, d->count);
	d->template.streak = d->same_shape ? d->template.streak + 1 : 0;
	if (d->template.streak == TEMPLATE_AFTER) doc_template_learn(d);
	if (d->same_shape) return;
	memcpy(d->last_hashes, d->hashes, d->count);
	d->last_count = d->count;
	d->shape++;
}

int doc_index(doc *d, const char *text, size_t len, const char *limit) {
	doc_memory_begin(d, len);
	d->count = d->externals = 0;
	d->removed = d->changed = d->added = 0;
	d->keys.objects = 0;
	d->keys.searched = 0;
	if (len >= (size_t)1 << 31) return d->offset = 0, DOC_TOO_LARGE;
	int error = index_text(d, text, len, limit);
	if (!error && !d->template.matches) update_shape(d);
	return error;
}

// doc_index_value indexes a container as a separate tree after the existing nodes, and returns its
// root. Its bytes must stay.
uint32_t doc_index_value(doc *d, const char *text, size_t len, int *error) {
	uint32_t root = d->count, used = 0;
	char last = len ? text[len - 1] : 0;
	if (len >= (size_t)1 << 31) {
		*error = DOC_TOO_LARGE;
	} else if (last != '}' && last != ']') {
		d->offset = (uint32_t)len;
		*error = DOC_CUT_SHORT;
	} else {
		*error = index_closed(d, text, (uint32_t)len, text + len, &used);
		if (!*error && used < len) {
			d->offset = used;
			*error = DOC_TRAILING;
		}
	}
	return root;
}
