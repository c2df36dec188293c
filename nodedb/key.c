//go:build cgo && lmdb

/* key.c: encodes a path as one string of bytes, which memcmp orders as M orders nodes.
 *
 *   name 00                          then, for each subscript:
 *   ""               02
 *   whole number     80±n, n bytes   magnitude, big endian; complemented if negative
 *   number           floor FF p… 00  the floor as a whole number, then the remaining fraction
 *                                    in pairs of digits, each pair plus one
 *   string           C0 … 00         with 00 as 01 01 and 01 as 01 02
 *
 * No encoded subscript is a prefix of another, and none begins with FF; the FF of a fraction
 * sorts after all children of its floor. So the descendants of a node are the keys between its
 * own key and that key followed by FF. Each node has exactly one encoding; decoding rejects all
 * others as corrupt. The functions here keep no state. */
#include <string.h>

#include "decimal.h"
#include "error.h"

enum {
	TAG_EMPTY = 0x02,
	TAG_ZERO = 0x80,  /* the whole number 0; other whole numbers add or subtract their length */
	WHOLE_BYTES = 20, /* of the largest magnitude, below 10^47 */
	TAG_STRING = 0xC0,
	TAG_FRACTION = 0xFF,
	ESCAPE = 0x01, /* in a string: 01 01 encodes 00, and 01 02 encodes 01 */
	FRACTION_DIGITS = 62
};

#define NO_SUBSCRIPT "a key with a subscript that does not decode, at byte %zu"

static int corrupt(size_t at) { return ndb_fail(NDB_E_CORRUPT, NO_SUBSCRIPT, at); }

static int too_long(void) {
	return ndb_fail(
	    NDB_E_KEY, "the path is longer than %d bytes: shorten its subscripts", NDB_KEY_MAX);
}

static int is_letter(unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* True for a valid name, with or without ^. */
static int is_name(const char *name, size_t len) {
	if (len && *name == '^') {
		name++;
		len--;
	}
	if (len == 0 || len > NDB_NAME_MAX || !(is_letter((unsigned char)*name) || *name == '%'))
		return 0;
	for (size_t i = 1; i < len; i++)
		if (!is_letter((unsigned char)name[i]) && !(name[i] >= '0' && name[i] <= '9')) return 0;
	return 1;
}

int ndb_key_name(char *key, size_t cap, const char *name, size_t len) {
	if (!is_name(name, len))
		return ndb_fail(NDB_E_ARGUMENT,
		    "invalid name \"%.*s\": use a letter and up to %d letters and digits, after a ^ if it is stored",
		    len > 60 ? 60 : (int)len, name, NDB_NAME_MAX - 1);
	if (len + 1 > cap) return too_long();
	memcpy(key, name, len);
	key[len] = 0;
	return (int)len + 1;
}

/* ---- whole numbers ---- */

/* A magnitude below 2^160, least significant limb first. */
typedef struct {
	uint32_t limb[WHOLE_BYTES / 4];
} magnitude;

static void multiply_ten(magnitude *m) {
	uint64_t carry = 0;
	for (int i = 0; i < WHOLE_BYTES / 4; i++) {
		carry += (uint64_t)m->limb[i] * 10;
		m->limb[i] = (uint32_t)carry;
		carry >>= 32;
	}
}

/* Divides by ten and returns the remainder. */
static uint32_t divide_ten(magnitude *m) {
	uint64_t rest = 0;
	for (int i = WHOLE_BYTES / 4 - 1; i >= 0; i--) {
		rest = rest << 32 | m->limb[i];
		m->limb[i] = (uint32_t)(rest / 10);
		rest %= 10;
	}
	return (uint32_t)rest;
}

/* Writes size without leading zero bytes, and returns its length. out must hold 9 bytes. */
static size_t put_whole(unsigned char *out, uint64_t size, int negative) {
	if (size == 0) {
		out[0] = TAG_ZERO;
		return 1;
	}
	unsigned zeros = (unsigned)__builtin_clzll(size) & ~7u; /* bits in leading zero bytes */
	size_t n = 8 - zeros / 8;
	uint64_t word = __builtin_bswap64((negative ? ~size : size) << zeros);
	memcpy(out + 1, &word, 8);
	out[0] = (unsigned char)(negative ? TAG_ZERO - n : TAG_ZERO + n);
	return n + 1;
}

static size_t put_large(unsigned char *out, const ndb_decimal *value) {
	magnitude m = {{(uint32_t)value->digits, (uint32_t)(value->digits >> 32), 0, 0, 0}};
	for (int i = 0; i < value->exponent; i++) multiply_ten(&m);
	size_t n = WHOLE_BYTES;
	while (n > 0 && (m.limb[(n - 1) / 4] >> (n - 1) % 4 * 8 & 0xFF) == 0) n--;
	out[0] = (unsigned char)(value->negative ? TAG_ZERO - n : TAG_ZERO + n);
	for (size_t i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)(m.limb[i / 4] >> i % 4 * 8);
		out[n - i] = value->negative ? (unsigned char)~byte : byte;
	}
	return n + 1;
}

/* Writes floor, FF, the rest of the fraction in pairs, 00: at most 9 + 1 + 31 + 1 bytes. */
static size_t put_fraction(unsigned char *out, const ndb_decimal *value) {
	int places = -value->exponent;
	uint64_t whole = 0, rest = value->digits;
	if (places <= NDB_DECIMAL_DIGITS) {
		whole = rest / ndb_ten_to[places];
		rest %= ndb_ten_to[places];
	}
	unsigned char digits[FRACTION_DIGITS + 1];
	for (int i = places - 1; i >= 0; i--) {
		digits[i] = (unsigned char)(rest % 10);
		rest /= 10;
	}
	if (value->negative) { /* encode the distance from the floor, which is never 0 */
		whole++;
		for (int i = 0; i < places; i++) digits[i] = (unsigned char)(9 - digits[i]);
		digits[places - 1]++;
	}
	if (places % 2) digits[places++] = 0;
	size_t n = put_whole(out, whole, value->negative);
	out[n++] = TAG_FRACTION;
	for (int i = 0; i < places; i += 2)
		out[n++] = (unsigned char)(digits[i] * 10 + digits[i + 1] + 1);
	out[n++] = 0;
	return n;
}

static int append_bytes(char *key, size_t len, size_t cap, const unsigned char *bytes, size_t n) {
	if (n > cap - len) return too_long();
	memcpy(key + len, bytes, n);
	return (int)(len + n);
}

static int append_decimal(char *key, size_t len, size_t cap, const ndb_decimal *value) {
	unsigned char bytes[64];
	size_t n;
	if (value->exponent < 0) n = put_fraction(bytes, value);
	else if (value->exponent == 0) n = put_whole(bytes, value->digits, value->negative);
	else n = put_large(bytes, value);
	return append_bytes(key, len, cap, bytes, n);
}

/* ---- strings ---- */

/* True if one of the 8 bytes is 00 or 01. */
static int has_low_byte(uint64_t word) {
	const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
	uint64_t other = word & ~ones; /* 00 where the byte is 00 or 01 */
	return ((other - ones) & ~other & tops) != 0;
}

static int append_string(char *key, size_t len, size_t cap, const char *bytes, size_t n) {
	if (n > cap - len) return too_long();
	size_t escapes = 0, i = 0;
	if (2 * n + 2 > cap - len) {
		for (size_t j = 0; j < n; j++) escapes += (unsigned char)bytes[j] <= ESCAPE;
		if (n + escapes + 2 > cap - len) return too_long();
	}
	unsigned char *out = (unsigned char *)key + len;
	*out++ = TAG_STRING;
	while (i < n) {
		if (n - i >= 8) {
			uint64_t word;
			memcpy(&word, bytes + i, 8);
			if (!has_low_byte(word)) {
				memcpy(out, &word, 8);
				out += 8;
				i += 8;
				continue;
			}
		}
		unsigned char c = (unsigned char)bytes[i++];
		if (c <= ESCAPE) {
			*out++ = ESCAPE;
			c++;
		}
		*out++ = c;
	}
	*out++ = 0;
	return (int)(out - (unsigned char *)key);
}

/* ---- skipping ---- */

/* Number of bytes after tag in a whole number; -1 if tag does not start one. */
static int whole_bytes(unsigned char tag) {
	int n = tag >= TAG_ZERO ? tag - TAG_ZERO : TAG_ZERO - tag;
	return n <= WHOLE_BYTES ? n : -1;
}

/* The end of the subscript at at < len, or 0 if it is truncated or invalid. */
static size_t skip_subscript(const unsigned char *key, size_t len, size_t at) {
	unsigned char tag = key[at];
	if (tag == TAG_EMPTY) return at + 1;
	if (tag != TAG_STRING) {
		int n = whole_bytes(tag);
		if (n < 0) return 0;
		at += (size_t)n + 1;
		if (at > len) return 0;
		if (at == len || key[at] != TAG_FRACTION) return at;
	}
	const unsigned char *end = memchr(key + at + 1, 0, len - at - 1);
	return end ? (size_t)(end - key) + 1 : 0;
}

/* The offset after the name and its 00, or 0. */
static size_t skip_name(const unsigned char *key, size_t len) {
	const unsigned char *end = memchr(key, 0, len < NDB_NAME_MAX + 2 ? len : NDB_NAME_MAX + 2);
	return end ? (size_t)(end - key) + 1 : 0;
}

/* True if the key has the most subscripts allowed. Stops early if too few bytes are left. */
static int is_deepest(const unsigned char *key, size_t len) {
	size_t at = skip_name(key, len);
	size_t depth = 0;
	while (at && at < len && depth + (len - at) >= NDB_SUBSCRIPTS_MAX) {
		at = skip_subscript(key, len, at);
		if (++depth == NDB_SUBSCRIPTS_MAX) return 1;
	}
	return 0;
}

int ndb_key_append(char *key, size_t len, size_t cap, const ndb_scalar *subscript) {
	if (cap > NDB_KEY_MAX) cap = NDB_KEY_MAX;
	if (len > cap) return too_long();
	if (len > NDB_SUBSCRIPTS_MAX && is_deepest((const unsigned char *)key, len))
		return ndb_fail(NDB_E_ARGUMENT, "the path has more than %d subscripts", NDB_SUBSCRIPTS_MAX);
	if (subscript->type == NDB_NUMBER) {
		double number = subscript->number;
		if (number >= -(double)NDB_EXACT_INTEGER && number <= (double)NDB_EXACT_INTEGER) {
			int64_t whole = (int64_t)number;
			if ((double)whole == number && cap - len >= 9)
				return (int)(len + put_whole((unsigned char *)key + len,
				                       (uint64_t)(whole < 0 ? -whole : whole), whole < 0));
		}
		ndb_decimal decimal;
		int code = ndb_decimal_of_double(number, &decimal);
		if (code != NDB_OK) return code;
		if (ndb_decimal_in_range(&decimal)) return append_decimal(key, len, cap, &decimal);
		char text[NDB_NUMBER_TEXT];
		return append_string(key, len, cap, text, (size_t)ndb_decimal_text(&decimal, text));
	}
	if (subscript->type != NDB_STRING && subscript->type != NDB_DIGITS)
		return ndb_fail(NDB_E_ARGUMENT, "invalid subscript: use a number or a string, not %s",
		    subscript->type == NDB_ABSENT  ? "nil"
		    : subscript->type == NDB_TRUE  ? "true"
		    : subscript->type == NDB_FALSE ? "false"
		                                   : "that");
	if (subscript->len == 0)
		return append_bytes(key, len, cap, (const unsigned char[]){TAG_EMPTY}, 1);
	unsigned char first = (unsigned char)*subscript->bytes;
	ndb_decimal decimal;
	if (first <= '9' && (first >= '0' || first == '-' || first == '.') &&
	    ndb_decimal_canonical(subscript->bytes, subscript->len, &decimal)) {
		if (decimal.exponent > 0 && decimal.exponent <= 18 &&
		    decimal.digits < ndb_ten_to[19 - decimal.exponent]) {
			decimal.digits *= ndb_ten_to[decimal.exponent];
			decimal.exponent = 0;
		}
		return append_decimal(key, len, cap, &decimal);
	}
	return append_string(key, len, cap, subscript->bytes, subscript->len);
}

/* ---- decoding ---- */

/* Reads n bytes of a magnitude. 0 if the first byte is 00, or it has more than 18 significant
 * digits. */
static int read_whole(const unsigned char *bytes, int n, int negative, ndb_decimal *out) {
	unsigned char flip = negative ? 0xFF : 0;
	if (n > 0 && (bytes[0] ^ flip) == 0) return 0;
	*out = (ndb_decimal){0, 0, negative};
	if (n <= 8) {
		for (int i = 0; i < n; i++)
			out->digits = out->digits << 8 | (unsigned char)(bytes[i] ^ flip);
		while (out->digits >= NDB_DECIMAL_LIMIT) {
			if (out->digits % 10) return 0;
			out->digits /= 10;
			out->exponent++;
		}
		return 1;
	}
	magnitude m = {{0, 0, 0, 0, 0}};
	for (int i = 0; i < n; i++)
		m.limb[i / 4] |= (uint32_t)(unsigned char)(bytes[n - 1 - i] ^ flip) << i % 4 * 8;
	do {
		if (divide_ten(&m)) return 0;
		out->exponent++;
		out->digits = (uint64_t)m.limb[1] << 32 | m.limb[0];
	} while (m.limb[4] | m.limb[3] | m.limb[2] || out->digits >= NDB_DECIMAL_LIMIT);
	return ndb_decimal_in_range(out);
}

/* Adds the fraction in n bytes of pairs to the floor in value. */
static int read_fraction(const unsigned char *pairs, size_t n, ndb_decimal *value) {
	unsigned char digits[FRACTION_DIGITS];
	if (n == 0 || n > FRACTION_DIGITS / 2 || pairs[n - 1] == 1 || value->exponent != 0) return 0;
	for (size_t i = 0; i < n; i++) {
		if (pairs[i] > 100) return 0;
		digits[2 * i] = (unsigned char)((pairs[i] - 1) / 10);
		digits[2 * i + 1] = (unsigned char)((pairs[i] - 1) % 10);
	}
	int places = (int)(2 * n);
	if (digits[places - 1] == 0) places--;
	uint64_t sum = value->digits;
	if (value->negative) {
		sum--;
		for (int i = 0; i < places; i++) digits[i] = (unsigned char)(9 - digits[i]);
		digits[places - 1]++;
	}
	for (int i = 0; i < places; i++) {
		if (sum >= ndb_ten_to[NDB_DECIMAL_DIGITS - 1]) return 0;
		sum = sum * 10 + digits[i];
	}
	*value = (ndb_decimal){sum, -places, value->negative};
	return ndb_decimal_in_range(value);
}

int ndb_key_decode(const char *key, size_t len, size_t *at, ndb_scalar *out, char *text) {
	const unsigned char *bytes = (const unsigned char *)key;
	size_t from = *at;
	if (from >= len) return from == len && len ? NDB_NONE : corrupt(from);
	if (from == 0) {
		size_t end = skip_name(bytes, len);
		if (!end || !is_name(key, end - 1)) return corrupt(0);
		*out = (ndb_scalar){0, text, (uint32_t)end - 1, NDB_STRING};
		memcpy(text, key, end - 1);
		*at = end;
		return NDB_OK;
	}
	size_t end = skip_subscript(bytes, len, from);
	if (!end || len > NDB_KEY_MAX) return corrupt(from);
	unsigned char tag = bytes[from];
	if (tag == TAG_EMPTY) {
		*out = (ndb_scalar){0, text, 0, NDB_STRING};
	} else if (tag == TAG_STRING) {
		const unsigned char *in = bytes + from + 1, *stop = bytes + end - 1;
		char *put = text;
		while (in < stop) {
			unsigned char c = *in++;
			if (c == ESCAPE) {
				if (in == stop || (*in != 1 && *in != 2)) return corrupt(from);
				c = (unsigned char)(*in++ - 1);
			}
			*put++ = (char)c;
		}
		*out = (ndb_scalar){0, text, (uint32_t)(put - text), NDB_STRING};
		ndb_decimal decimal;
		if (out->len == 0) return corrupt(from);
		if ((unsigned char)*text <= '9' && ndb_decimal_canonical(text, out->len, &decimal))
			return corrupt(from);
	} else {
		ndb_decimal value;
		int n = whole_bytes(tag);
		if (!read_whole(bytes + from + 1, n, tag < TAG_ZERO, &value)) return corrupt(from);
		size_t fraction = from + 1 + (size_t)n;
		if (fraction < end && !read_fraction(bytes + fraction + 1, end - fraction - 2, &value))
			return corrupt(from);
		ndb_decimal_scalar(&value, out, text);
	}
	*at = end;
	return NDB_OK;
}

int ndb_key_depth(const char *key, size_t len) {
	size_t at = skip_name((const unsigned char *)key, len);
	int depth = 0;
	if (!at) return corrupt(0);
	while (at < len) {
		size_t end = skip_subscript((const unsigned char *)key, len, at);
		if (!end) return corrupt(at);
		at = end;
		depth++;
	}
	return depth;
}

int ndb_key_parent(const char *key, size_t len) {
	size_t at = skip_name((const unsigned char *)key, len), last = 0;
	if (!at) return corrupt(0);
	while (at < len) {
		size_t end = skip_subscript((const unsigned char *)key, len, at);
		if (!end) return corrupt(at);
		last = at;
		at = end;
	}
	return (int)last;
}

int ndb_key_subscript_len(const char *key, size_t len, size_t at) {
	if (at >= len) return corrupt(at);
	size_t end = skip_subscript((const unsigned char *)key, len, at);
	return end ? (int)(end - at) : corrupt(at);
}
