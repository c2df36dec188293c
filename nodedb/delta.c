//go:build cgo && lmdb

/* delta.c: the encoding of a delta, which other machines and later versions read.
 *
 *   byte     version: 1
 *   number   the clock, in ms since 1970
 *   number   how many kills follow: each a key
 *   number   how many entries follow: each a key, a number of bytes, and the value in its stored form
 *            without a checksum (view.c); 0 bytes: the node has no value
 *   4 bytes  CRC-32C of all bytes before, least significant first
 *
 * A key is the number of bytes that it shares with the key before it, the number of the others,
 * and those bytes. Keys of kills and of entries are in order. Numbers are LEB128. */
#include <math.h>
#include <stdlib.h>

#include "core.h"

enum {
	VERSION = 1,
	SUM_BYTES = 4
};
/* Prefixes can make a delta much larger in memory than encoded; none that a transaction made is as
 * large. */
#define DECODED_MAX ((uint64_t)1 << 30)

/* ---- encoding ---- */

static size_t number_size(uint64_t n) {
	size_t size = 1;
	while (n >>= 7) size++;
	return size;
}

static char *put_number(char *out, uint64_t n) {
	for (; n >= 0x80; n >>= 7) *out++ = (char)(n | 0x80);
	*out++ = (char)n;
	return out;
}

static size_t shared_bytes(const ndb_entry *a, const ndb_entry *b) {
	size_t n = 0, max_shared = !a ? 0 : a->key_len < b->key_len ? a->key_len : b->key_len;
	while (n < max_shared && a->data[n] == b->data[n]) n++;
	return n;
}

static size_t key_size(const ndb_entry *before, const ndb_entry *e) {
	size_t shared = shared_bytes(before, e), rest = e->key_len - shared;
	return number_size(shared) + number_size(rest) + rest;
}

static char *put_key(char *out, const ndb_entry *before, const ndb_entry *e) {
	size_t shared = shared_bytes(before, e), rest = e->key_len - shared;
	out = put_number(put_number(out, shared), rest);
	memcpy(out, e->data + shared, rest);
	return out + rest;
}

static size_t value_size(const ndb_entry *e) {
	return e->type == NDB_ABSENT ? 0 : ndb_stored_size(e, 0);
}

size_t ndb_layer_encoded(const ndb_layer *l, uint64_t clock) {
	size_t size = 1 + number_size(clock) + number_size(l->kills.count) +
	              number_size(l->entries.count) + SUM_BYTES;
	ndb_tree_cursor at;
	const ndb_entry *before = NULL, *e;
	for (e = ndb_cursor_first(&at, l->kills.root); e; before = e, e = ndb_cursor_next(&at))
		size += key_size(before, e);
	before = NULL;
	for (e = ndb_cursor_first(&at, l->entries.root); e; before = e, e = ndb_cursor_next(&at)) {
		size_t value = value_size(e);
		size += key_size(before, e) + number_size(value) + value;
	}
	return size;
}

void ndb_layer_encode(const ndb_layer *l, uint64_t clock, char *out) {
	char *start = out;
	ndb_tree_cursor at;
	const ndb_entry *before = NULL, *e;
	*out++ = VERSION;
	out = put_number(put_number(out, clock), l->kills.count);
	for (e = ndb_cursor_first(&at, l->kills.root); e; before = e, e = ndb_cursor_next(&at))
		out = put_key(out, before, e);
	out = put_number(out, l->entries.count);
	before = NULL;
	for (e = ndb_cursor_first(&at, l->entries.root); e; before = e, e = ndb_cursor_next(&at)) {
		size_t value = value_size(e);
		out = put_number(put_key(out, before, e), value);
		if (value) ndb_stored_write(e, 0, out);
		out += value;
	}
	uint32_t sum = ndb_crc32c(start, (size_t)(out - start));
	for (int i = 0; i < SUM_BYTES; i++) *out++ = (char)(sum >> (8 * i));
}

/* ---- encoding of records ---- */

enum {
	NUMBER_MAX = 10,               /* bytes of an encoded number */
	HEAD_MAX = 2 + 2 * NUMBER_MAX, /* bytes before the entries, without kills */
	FIRST_CAP = 64 << 10
};

static int reserve(ndb_encoder *e, size_t bytes) {
	if (e->used + bytes <= e->cap) return NDB_OK;
	size_t cap = e->cap ? e->cap * 2 : FIRST_CAP;
	while (cap < e->used + bytes) cap *= 2;
	char *grown = realloc(e->bytes, cap);
	if (!grown) return ndb_fail(NDB_E_MEMORY, "out of memory");
	e->bytes = grown, e->cap = cap;
	return NDB_OK;
}

int ndb_encoder_add(
    ndb_encoder *e, const char *key, size_t key_len, const char *value, size_t len) {
	if (key_len > NDB_KEY_MAX || !len) return ndb_fail(NDB_E_CORRUPT, "a node does not decode");
	if (!e->used) e->used = HEAD_MAX;
	int error = reserve(e, 3 * NUMBER_MAX + key_len + len);
	if (error < 0) return error;
	size_t shared = 0, max_shared = key_len < e->key_len ? key_len : e->key_len;
	while (shared < max_shared && key[shared] == e->key[shared]) shared++;
	char *out = e->bytes + e->used;
	out = put_number(put_number(out, shared), key_len - shared);
	memcpy(out, key + shared, key_len - shared);
	out += key_len - shared;
	char *at = out + NUMBER_MAX; /* behind the longest length */
	size_t bare = ndb_stored_without_sum(value, len, at);
	out = put_number(out, bare);
	memmove(out, at, bare);
	out += bare;
	memcpy(e->key + shared, key + shared, key_len - shared);
	e->key_len = key_len;
	e->used = (size_t)(out - e->bytes);
	e->count++;
	return NDB_OK;
}

int ndb_encoder_finish(ndb_encoder *e, uint64_t clock) {
	if (!e->used) e->used = HEAD_MAX;
	int error = reserve(e, SUM_BYTES);
	if (error < 0) return error;
	char head[HEAD_MAX], *out = head;
	*out++ = VERSION;
	out = put_number(put_number(put_number(out, clock), 0), e->count);
	size_t head_len = (size_t)(out - head), body = e->used - HEAD_MAX;
	memmove(e->bytes + head_len, e->bytes + HEAD_MAX, body);
	memcpy(e->bytes, head, head_len);
	e->used = head_len + body;
	uint32_t sum = ndb_crc32c(e->bytes, e->used);
	for (int i = 0; i < SUM_BYTES; i++) e->bytes[e->used++] = (char)(sum >> (8 * i));
	return NDB_OK;
}

/* ---- decoding ---- */

typedef struct {
	const char *at, *end;
	char key[NDB_KEY_MAX]; /* the last one */
	size_t len;
} reader;

static int corrupt(const char *why) {
	return ndb_fail(NDB_E_CORRUPT, "the encoded delta is damaged: %s", why);
}

static int read_number(reader *r, uint64_t *n) {
	*n = 0;
	for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
		unsigned char byte = (unsigned char)*r->at++;
		if (shift == 63 && byte > 1) break;
		*n |= (uint64_t)(byte & 0x7F) << shift;
		if (byte < 0x80) return NDB_OK;
	}
	return corrupt("a number does not decode");
}

/* Checks that the bytes are the key of a stored node. */
static int check_key(const char *key, size_t len) {
	char text[NDB_KEY_MAX];
	ndb_scalar subscript;
	size_t at = 0;
	int parts = 0, result;
	if (len < 3 || *key != '^') return corrupt("a key has no name of a stored node");
	while ((result = ndb_key_decode(key, len, &at, &subscript, text)) == NDB_OK) parts++;
	if (result < 0) return corrupt("a key does not decode");
	return parts <= NDB_SUBSCRIPTS_MAX + 1 ? NDB_OK : corrupt("a key has too many subscripts");
}

/* Reads the key that follows the last one in order. */
static int read_key(reader *r) {
	uint64_t shared, rest;
	int error = read_number(r, &shared);
	if (error == NDB_OK) error = read_number(r, &rest);
	if (error < 0) return error;
	if (shared > r->len || rest > (size_t)(r->end - r->at) || rest > NDB_KEY_MAX - shared)
		return corrupt("a key is too long");
	/* Both continue the shared bytes: the new key must be greater there. */
	size_t old = r->len - shared;
	if (ndb_key_compare(r->key + shared, old, r->at, rest) >= 0)
		return corrupt("its keys are not in order");
	memcpy(r->key + shared, r->at, rest);
	r->at += rest, r->len = shared + rest;
	return check_key(r->key, r->len);
}

static int add(ndb_tree *t, ndb_entry *e) {
	if (!e) return ndb_fail(NDB_E_MEMORY, "out of memory");
	return ndb_tree_put(t, e);
}

static int read_kills(reader *r, ndb_layer *out) {
	uint64_t count;
	ndb_scalar none = {.type = NDB_ABSENT};
	int error = read_number(r, &count);
	for (r->len = 0; error == NDB_OK && count; count--) {
		char before[NDB_KEY_MAX];
		size_t before_len = r->len;
		memcpy(before, r->key, before_len);
		if ((error = read_key(r)) < 0) return error;
		if (before_len && ndb_key_within(r->key, r->len, before, before_len))
			return corrupt("a kill is within another");
		error = add(&out->kills, ndb_entry_new(r->key, r->len, &none, 0));
		if (error == NDB_OK && out->kills.bytes > DECODED_MAX) return corrupt("it is too large");
	}
	return error;
}

static int read_entries(reader *r, ndb_layer *out) {
	uint64_t count, len;
	int error = read_number(r, &count);
	for (r->len = 0; error == NDB_OK && count; count--) {
		ndb_scalar value = {.type = NDB_ABSENT};
		uint64_t expiry = 0;
		if ((error = read_key(r)) < 0 || (error = read_number(r, &len)) < 0) return error;
		if (len > (size_t)(r->end - r->at)) return corrupt("a value is cut off");
		if (len) {
			if (ndb_stored_has_sum(r->at)) return corrupt("a value has a checksum of its own");
			if (ndb_stored_read(r->at, len, &value, &expiry) < 0 || value.len > NDB_VALUE_MAX ||
			    (value.type == NDB_NUMBER && !isfinite(value.number)))
				return corrupt("a value does not decode");
		}
		r->at += len;
		error = add(&out->entries, ndb_entry_new(r->key, r->len, &value, expiry));
		if (error == NDB_OK && out->entries.bytes > DECODED_MAX) return corrupt("it is too large");
	}
	return error;
}

static int decode(const char *data, size_t len, ndb_layer *out, uint64_t *clock) {
	if (len < 1 + 3 + SUM_BYTES) return corrupt("it is cut off");
	size_t body = len - SUM_BYTES;
	uint32_t sum = 0;
	for (int i = 0; i < SUM_BYTES; i++) sum |= (uint32_t)(unsigned char)data[body + i] << (8 * i);
	if (sum != ndb_crc32c(data, body)) return corrupt("its checksum does not match");
	if (data[0] != VERSION)
		return ndb_fail(NDB_E_NEWER,
		    "the encoded delta has version %d, and this program reads version %d", data[0],
		    VERSION);
	reader r = {.at = data + 1, .end = data + body};
	int error = read_number(&r, clock);
	if (error == NDB_OK) error = read_kills(&r, out);
	if (error == NDB_OK) error = read_entries(&r, out);
	if (error == NDB_OK && r.at != r.end) error = corrupt("bytes follow its end");
	return error;
}

int ndb_layer_decode(const char *data, size_t len, ndb_layer *out, uint64_t *clock) {
	int error = decode(data, len, out, clock);
	if (error < 0) ndb_layer_clear(out);
	return error;
}
