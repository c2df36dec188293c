#include "document.h"
#include "scan.h"
#include "text.h"

// One step of an automaton that accepts valid UTF-8: no overlong forms, no surrogates, nothing
// beyond U+10FFFF.
static int sequence(const unsigned char *s, size_t len) {
	unsigned char a = s[0], low = 0x80, high = 0xBF;
	int n = a < 0xC2 ? 0 : a < 0xE0 ? 2 : a < 0xF0 ? 3 : a < 0xF5 ? 4 : 0;
	if (n == 0 || len < (size_t)n) return 0;
	if (a == 0xE0) low = 0xA0;
	if (a == 0xED) high = 0x9F;
	if (a == 0xF0) low = 0x90;
	if (a == 0xF4) high = 0x8F;
	if (s[1] < low || s[1] > high) return 0;
	for (int i = 2; i < n; i++)
		if ((s[i] & 0xC0) != 0x80) return 0;
	return n;
}

size_t doc_utf8_end(const char *s, size_t len) {
	size_t i = 0;
	while (i < len) {
		uint64_t word;
		if (i + 8 <= len && (memcpy(&word, s + i, 8), (word & 0x8080808080808080u) == 0)) {
			i += 8;
		} else if ((unsigned char)s[i] < 0x80) {
			i++;
		} else {
			int n = sequence((const unsigned char *)s + i, len - i);
			if (n == 0) return i;
			i += (size_t)n;
		}
	}
	return len;
}

int doc_utf8(const char *s, size_t len) { return doc_utf8_end(s, len) == len; }

static int hex(char c) {
	if (c >= '0' && c <= '9') return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int hex4(const char *s) {
	int x = 0;
	for (int i = 0; i < 4; i++) {
		int digit = hex(s[i]);
		if (digit < 0) return -1;
		x = x << 4 | digit;
	}
	return x;
}

size_t doc_escape_len(const char *s, size_t len) {
	if (len < 2) return 0;
	switch (s[1]) {
	case '"':
	case '\\':
	case '/':
	case 'b':
	case 'f':
	case 'n':
	case 'r':
	case 't': return 2;
	case 'u': return len >= 6 && hex4(s + 2) >= 0 ? 6 : 0;
	}
	return 0;
}

static size_t put_rune(char *out, uint32_t r) {
	if (r < 0x80) {
		out[0] = (char)r;
		return 1;
	}
	if (r < 0x800) {
		out[0] = (char)(0xC0 | r >> 6);
		out[1] = (char)(0x80 | (r & 0x3F));
		return 2;
	}
	if (r < 0x10000) {
		out[0] = (char)(0xE0 | r >> 12);
		out[1] = (char)(0x80 | (r >> 6 & 0x3F));
		out[2] = (char)(0x80 | (r & 0x3F));
		return 3;
	}
	out[0] = (char)(0xF0 | r >> 18);
	out[1] = (char)(0x80 | (r >> 12 & 0x3F));
	out[2] = (char)(0x80 | (r >> 6 & 0x3F));
	out[3] = (char)(0x80 | (r & 0x3F));
	return 4;
}

// rune_at reads the \u escape at s, including the second half of a surrogate pair. A lone surrogate
// becomes U+FFFD.
static uint32_t rune_at(const char *s, size_t len, size_t *used) {
	uint32_t r = (uint32_t)hex4(s + 2);
	*used = 6;
	if (r < 0xD800 || r > 0xDFFF) return r;
	if (r < 0xDC00 && len >= 12 && s[6] == '\\' && s[7] == 'u') {
		int low = hex4(s + 8);
		if (low >= 0xDC00 && low <= 0xDFFF) {
			*used = 12;
			return 0x10000 + ((r - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
		}
	}
	return 0xFFFD;
}

size_t doc_unescape(const char *s, size_t len, char *out) {
	size_t n = 0;
	for (size_t i = 0; i < len;) {
		const char *slash = memchr(s + i, '\\', len - i);
		size_t plain = slash ? (size_t)(slash - (s + i)) : len - i;
		memmove(out + n, s + i, plain);
		n += plain;
		i += plain;
		if (!slash) break;
		if (s[i + 1] == 'u') {
			size_t used;
			n += put_rune(out + n, rune_at(s + i, len - i, &used));
			i += used;
			continue;
		}
		switch (s[i + 1]) {
		case 'b': out[n++] = '\b'; break;
		case 'f': out[n++] = '\f'; break;
		case 'n': out[n++] = '\n'; break;
		case 'r': out[n++] = '\r'; break;
		case 't': out[n++] = '\t'; break;
		default: out[n++] = s[i + 1];
		}
		i += 2;
	}
	return n;
}

static size_t plain_len(const char *s, size_t len) {
	size_t i = 0;
	for (; i + 64 <= len; i += 64) {
		scan_bits b = scan64(s + i);
		uint64_t bits = b.quote | b.slash | b.control;
		if (bits) return i + (size_t)__builtin_ctzll(bits);
	}
	for (; i < len; i++)
		if (s[i] == '"' || s[i] == '\\' || (unsigned char)s[i] < 0x20) break;
	return i;
}

static size_t escape(char *out, unsigned char c) {
	static const char digits[] = "0123456789abcdef";
	out[0] = '\\';
	switch (c) {
	case '"':
	case '\\': out[1] = (char)c; return 2;
	case '\b': out[1] = 'b'; return 2;
	case '\f': out[1] = 'f'; return 2;
	case '\n': out[1] = 'n'; return 2;
	case '\r': out[1] = 'r'; return 2;
	case '\t': out[1] = 't'; return 2;
	}
	memcpy(out + 1, "u00", 3);
	out[4] = digits[c >> 4];
	out[5] = digits[c & 15];
	return 6;
}

int doc_quote(doc_buf *b, const char *s, size_t len) {
	int error = doc_buf_need(b, len + 2);
	if (error) return error;
	b->data[b->len++] = '"';
	for (size_t i = 0; i < len;) {
		size_t n = plain_len(s + i, len - i);
		if ((error = doc_buf_need(b, n + 7))) return error;
		memcpy(b->data + b->len, s + i, n);
		b->len += n;
		i += n;
		if (i < len) b->len += escape(b->data + b->len, (unsigned char)s[i++]);
	}
	return doc_buf_add(b, "\"", 1);
}
