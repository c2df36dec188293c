//go:build cgo && lmdb

/* zwrite.c: nodes as text in M's ZWRITE format.
 *
 *   ^x(1,"say ""hi""",.5,"tab"_$C(9)_"end",$ZCH(255))="value"
 *
 * Numbers are written bare and canonical, strings in quotes, even if they spell a number. Valid
 * UTF-8 stays readable; control characters become $C(…) and bytes that are not UTF-8 $ZCH(…), as
 * M prints them in UTF-8 mode. The parser also reads the output of M's other mode, where $C(…)
 * of 128 to 255 is that byte and a larger code is the UTF-8 of the character. Every byte string
 * round-trips. true and false, which M lacks, are written bare. */
#include <string.h>

#include "decimal.h"
#include "error.h"

/* ---- printing ---- */

typedef struct {
	char *out;
	size_t cap, len; /* len keeps counting beyond cap */
} writer;

static void put(writer *w, const char *bytes, size_t n) {
	if (w->len < w->cap) memcpy(w->out + w->len, bytes, n < w->cap - w->len ? n : w->cap - w->len);
	w->len += n;
}

static void put_text(writer *w, const char *text) { put(w, text, strlen(text)); }

static void put_code(writer *w, unsigned char code) {
	char digits[3];
	size_t n = 0;
	if (code >= 100) digits[n++] = (char)('0' + code / 100);
	if (code >= 10) digits[n++] = (char)('0' + code / 10 % 10);
	digits[n++] = (char)('0' + code % 10);
	put(w, digits, n);
}

/* The length of the character at bytes, or 0 if it is not valid UTF-8. */
static size_t utf8_len(const unsigned char *bytes, size_t left) {
	unsigned char first = bytes[0];
	if (first < 0x80) return 1;
	size_t n = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
	if (first < 0xC2 || first > 0xF4 || n > left) return 0;
	for (size_t i = 1; i < n; i++)
		if ((bytes[i] & 0xC0) != 0x80) return 0;
	if (first == 0xE0 && bytes[1] < 0xA0) return 0;
	if (first == 0xED && bytes[1] > 0x9F) return 0; /* a surrogate */
	if (first == 0xF0 && bytes[1] < 0x90) return 0;
	if (first == 0xF4 && bytes[1] > 0x8F) return 0;
	return n;
}

enum {
	PIECE_NONE,
	PIECE_QUOTED,
	PIECE_CHAR,
	PIECE_BYTE
};

/* How to print the next character; *n: its number of bytes. */
static int classify(const unsigned char *bytes, size_t left, size_t *n) {
	*n = 1;
	if (bytes[0] < 0x20 || bytes[0] == 0x7F) return PIECE_CHAR;
	size_t len = utf8_len(bytes, left);
	/* includes the invisible control characters U+0080 to U+009F */
	if (len == 0 || (bytes[0] == 0xC2 && bytes[1] < 0xA0)) return PIECE_BYTE;
	*n = len;
	return PIECE_QUOTED;
}

static void put_string(writer *w, const char *string, size_t len) {
	const unsigned char *bytes = (const unsigned char *)string;
	if (len == 0) put_text(w, "\"\"");
	int piece = PIECE_NONE;
	for (size_t i = 0; i < len;) {
		size_t n;
		int kind = classify(bytes + i, len - i, &n);
		if (kind == PIECE_QUOTED) {
			if (piece != kind) put_text(w, piece == PIECE_NONE ? "\"" : ")_\"");
			put(w, string + i, n);
			if (bytes[i] == '"') put_text(w, "\"");
		} else {
			if (piece != kind) {
				if (piece != PIECE_NONE) put_text(w, piece == PIECE_QUOTED ? "\"_" : ")_");
				put_text(w, kind == PIECE_CHAR ? "$C(" : "$ZCH(");
			} else {
				put_text(w, ",");
			}
			put_code(w, bytes[i]);
		}
		piece = kind;
		i += n;
	}
	if (piece != PIECE_NONE) put_text(w, piece == PIECE_QUOTED ? "\"" : ")");
}

static int put_scalar(writer *w, const ndb_scalar *value) {
	char text[NDB_NUMBER_TEXT];
	ndb_scalar canonical;
	int n;
	switch (value->type) {
	case NDB_NUMBER:
		n = ndb_number_text(value, text);
		if (n < 0) return n;
		if (ndb_number_canonical(text, (size_t)n, &canonical)) put(w, text, (size_t)n);
		else put_string(w, text, (size_t)n);
		return NDB_OK;
	case NDB_DIGITS:
		if (ndb_number_canonical(value->bytes, value->len, &canonical))
			put(w, value->bytes, value->len);
		else put_string(w, value->bytes, value->len);
		return NDB_OK;
	case NDB_STRING: put_string(w, value->bytes, value->len); return NDB_OK;
	case NDB_FALSE: put_text(w, "false"); return NDB_OK;
	case NDB_TRUE: put_text(w, "true"); return NDB_OK;
	}
	return ndb_fail(NDB_E_ARGUMENT, "cannot print an absent value");
}

long ndb_zwrite_scalar(const ndb_scalar *value, char *out, size_t cap) {
	writer w = {out, cap, 0};
	int code = put_scalar(&w, value);
	return code == NDB_OK ? (long)w.len : code;
}

long ndb_zwrite_key(const char *key, size_t len, char *out, size_t cap) {
	writer w = {out, cap, 0};
	char text[NDB_KEY_MAX];
	ndb_scalar part;
	size_t at = 0;
	int code;
	for (int depth = 0; (code = ndb_key_decode(key, len, &at, &part, text)) == NDB_OK; depth++) {
		if (depth == 0) {
			put(&w, part.bytes, part.len);
			continue;
		}
		put_text(&w, depth == 1 ? "(" : ",");
		code = put_scalar(&w, &part);
		if (code != NDB_OK) return code;
		if (at == len) put_text(&w, ")");
	}
	return code == NDB_NONE ? (long)w.len : code;
}

/* ---- parsing ---- */

typedef struct {
	const char *text;
	size_t len, at;
} reader;

static int expect(const reader *r, const char *want) {
	if (r->at >= r->len) return ndb_fail(NDB_E_ARGUMENT, "unexpected end of text, want %s", want);
	int shown = r->len - r->at > 20 ? 20 : (int)(r->len - r->at);
	return ndb_fail(NDB_E_ARGUMENT, "unexpected \"%.*s\", want %s", shown, r->text + r->at, want);
}

static int peek(const reader *r) { return r->at < r->len ? (unsigned char)r->text[r->at] : -1; }

static int accept(reader *r, char c) {
	if (peek(r) != c) return 0;
	r->at++;
	return 1;
}

/* Accepts word, ignoring case. */
static int accept_word(reader *r, const char *word) {
	size_t n = strlen(word);
	if (n > r->len - r->at) return 0;
	for (size_t i = 0; i < n; i++) {
		char c = r->text[r->at + i];
		if (c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
		if (c != word[i]) return 0;
	}
	r->at += n;
	return 1;
}

/* Collects the parts of a string. */
typedef struct {
	char *bytes;
	size_t cap, len;
} gathered;

static int gather(gathered *g, const char *bytes, size_t n) {
	if (n > g->cap - g->len)
		return ndb_fail(NDB_E_KEY, "the string is longer than %zu bytes", g->cap);
	memcpy(g->bytes + g->len, bytes, n);
	g->len += n;
	return NDB_OK;
}

static int gather_character(gathered *g, uint32_t code) {
	char utf8[4];
	if (code < 0x100) {
		utf8[0] = (char)code;
		return gather(g, utf8, 1);
	}
	size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--) {
		utf8[i] = (char)(0x80 | (code & 0x3F));
		code >>= 6;
	}
	utf8[0] = (char)((0xF0 << (4 - n)) | code);
	return gather(g, utf8, n);
}

static int parse_quoted(reader *r, gathered *g) {
	for (;;) {
		const char *from = r->text + r->at;
		const char *quote = memchr(from, '"', r->len - r->at);
		if (!quote) {
			r->at = r->len;
			return expect(r, "the closing \"");
		}
		size_t n = (size_t)(quote - from);
		int code = gather(g, from, n);
		if (code != NDB_OK) return code;
		r->at += n + 1;
		if (!accept(r, '"')) return NDB_OK;
		code = gather(g, "\"", 1);
		if (code != NDB_OK) return code;
	}
}

/* Parses the codes of $C( or $ZCH( up to the closing parenthesis. */
static int parse_codes(reader *r, gathered *g, uint32_t max) {
	do {
		size_t from = r->at;
		uint32_t code = 0;
		while (peek(r) >= '0' && peek(r) <= '9') {
			if (code <= max) code = code * 10 + (uint32_t)(peek(r) - '0');
			r->at++;
		}
		if (r->at == from) return expect(r, "a character code");
		if (code > max || (code >= 0xD800 && code <= 0xDFFF)) {
			r->at = from;
			return expect(r, max == 255 ? "a byte from 0 to 255" : "a character code in range");
		}
		int result = gather_character(g, code);
		if (result != NDB_OK) return result;
	} while (accept(r, ','));
	return accept(r, ')') ? NDB_OK : expect(r, "a , or )");
}

static int parse_string(reader *r, gathered *g) {
	do {
		int code;
		if (accept(r, '"')) code = parse_quoted(r, g);
		else if (accept_word(r, "$C(") || accept_word(r, "$CHAR("))
			code = parse_codes(r, g, 0x10FFFF);
		else if (accept_word(r, "$ZCH(") || accept_word(r, "$ZCHAR("))
			code = parse_codes(r, g, 255);
		else code = expect(r, "a string in quotes or $C(");
		if (code != NDB_OK) return code;
	} while (accept(r, '_'));
	return NDB_OK;
}

static int parse_number(reader *r, ndb_scalar *out) {
	size_t from = r->at;
	while ((peek(r) >= '0' && peek(r) <= '9') || peek(r) == '-' || peek(r) == '.') r->at++;
	if (ndb_number_canonical(r->text + from, r->at - from, out)) return NDB_OK;
	r->at = from;
	return expect(r, "a canonical number (.5, not 0.5; at most 18 digits)");
}

static int parse_scalar(reader *r, ndb_scalar *out, char *bytes, size_t cap) {
	int c = peek(r);
	if (c == '"' || c == '$') {
		gathered g = {bytes, cap, 0};
		int code = parse_string(r, &g);
		*out = (ndb_scalar){0, bytes, (uint32_t)g.len, NDB_STRING};
		return code;
	}
	if ((c >= '0' && c <= '9') || c == '-' || c == '.') return parse_number(r, out);
	return expect(r, "a number or a string in quotes");
}

int ndb_zwrite_parse_scalar(
    const char *text, size_t len, size_t *at, ndb_scalar *out, char *bytes) {
	reader r = {text, len, *at};
	int code = NDB_OK;
	if (accept_word(&r, "TRUE")) *out = (ndb_scalar){0, NULL, 0, NDB_TRUE};
	else if (accept_word(&r, "FALSE")) *out = (ndb_scalar){0, NULL, 0, NDB_FALSE};
	else code = parse_scalar(&r, out, bytes, len);
	if (code == NDB_OK && out->type == NDB_STRING && out->len > NDB_VALUE_MAX)
		code = ndb_fail(NDB_E_VALUE, "the value is longer than %u bytes", NDB_VALUE_MAX);
	*at = r.at;
	return code;
}

static int is_name_byte(int c) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '%' ||
	       c == '^';
}

static int parse_key(reader *r, char *key) {
	size_t from = r->at;
	while (is_name_byte(peek(r))) r->at++;
	int len = ndb_key_name(key, NDB_KEY_MAX, r->text + from, r->at - from);
	if (len < 0) r->at = from;
	if (len < 0 || !accept(r, '(')) return len;
	do {
		char bytes[NDB_KEY_MAX];
		ndb_scalar subscript;
		from = r->at;
		int code = parse_scalar(r, &subscript, bytes, sizeof bytes);
		if (code != NDB_OK) return code;
		len = ndb_key_append(key, (size_t)len, NDB_KEY_MAX, &subscript);
		if (len < 0) {
			r->at = from;
			return len;
		}
	} while (accept(r, ','));
	return accept(r, ')') ? len : expect(r, "a , or )");
}

int ndb_zwrite_parse_key(const char *text, size_t len, size_t *at, char *key) {
	reader r = {text, len, *at};
	int code = parse_key(&r, key);
	*at = r.at;
	return code;
}
