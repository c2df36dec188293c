// Finds special bytes 16 or 64 at a time.

#ifndef PERIGEE_SCAN_H
#define PERIGEE_SCAN_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// The special bytes in a block; bit i represents byte i.
typedef struct {
	uint64_t quote, slash, control, high;
} scan_bits;

static inline void scan_cut(scan_bits *b, size_t len) {
	uint64_t mine = ((uint64_t)1 << len) - 1;
	b->quote &= mine, b->slash &= mine, b->control &= mine, b->high &= mine;
}

#if defined(__SSE2__)

static inline scan_bits scan64(const char *p) {
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
	const __m128i last_control = _mm_set1_epi8(0x1f);
	scan_bits b = {0, 0, 0, 0};
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		__m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
		b.quote |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, quote)) << (16 * i);
		b.slash |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, slash)) << (16 * i);
		b.control |=
		    (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(x, last_control), x))
		    << (16 * i);
		b.high |= (uint64_t)(unsigned)_mm_movemask_epi8(x) << (16 * i);
	}
	return b;
}

// Special bytes found by scan_quotes: the smallest byte, backslashes, and bytes from 0x80 on.
typedef struct {
	__m128i least, slash, high;
} scan_met;

static inline scan_met scan_begin(void) {
	return (scan_met){_mm_set1_epi8(-1), _mm_setzero_si128(), _mm_setzero_si128()};
}

// scan_quotes finds the quotes among 64 bytes, and adds other special bytes to *met.
static inline uint64_t scan_quotes(const char *p, scan_met *met) {
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
	uint64_t quotes = 0;
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		__m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
		quotes |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, quote)) << (16 * i);
		met->slash = _mm_or_si128(met->slash, _mm_cmpeq_epi8(x, slash));
		met->least = _mm_min_epu8(met->least, x);
		met->high = _mm_or_si128(met->high, x);
	}
	return quotes;
}

// scan_plain reports whether scan_quotes has found neither backslashes nor control characters.
static inline int scan_plain(const scan_met *met) {
	__m128i control = _mm_cmpeq_epi8(_mm_min_epu8(met->least, _mm_set1_epi8(0x1f)), met->least);
	return _mm_movemask_epi8(_mm_or_si128(met->slash, control)) == 0;
}

static inline int scan_ascii(const scan_met *met) { return _mm_movemask_epi8(met->high) == 0; }

// scan_find returns the positions among 16 hashes that equal m.
static inline uint32_t scan_find(const uint8_t *hashes, uint8_t m) {
	__m128i x = _mm_loadu_si128((const __m128i *)(const void *)hashes);
	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8((char)m)));
}

// scan_same_before reports whether the 16 bytes before a and before b are equal where the mask has
// bits. For a mask with more than 16 bits it returns 0.
static inline int scan_same_before(const char *a, const char *b, uint32_t mask) {
	__m128i x = _mm_loadu_si128((const __m128i *)(const void *)(a - 16));
	__m128i y = _mm_loadu_si128((const __m128i *)(const void *)(b - 16));
	return (~(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, y)) & mask) == 0;
}

// scan_same_hashes reports whether the first n hashes of a and b are equal. It may read up to 15
// bytes past the last one.
static inline int scan_same_hashes(const uint8_t *a, const uint8_t *b, uint32_t n) {
	for (uint32_t i = 0; i < n; i += 16) {
		__m128i x = _mm_loadu_si128((const __m128i *)(const void *)(a + i));
		__m128i y = _mm_loadu_si128((const __m128i *)(const void *)(b + i));
		uint32_t differ = ~(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, y)) & 0xffff;
		if (n - i < 16) differ &= (1u << (n - i)) - 1;
		if (differ) return 0;
	}
	return 1;
}

#else

static inline int scan_same_before(const char *a, const char *b, uint32_t mask) {
	size_t n = (size_t)__builtin_popcount(mask);
	return n <= 16 && memcmp(a - n, b - n, n) == 0;
}

static inline int scan_same_hashes(const uint8_t *a, const uint8_t *b, uint32_t n) {
	return memcmp(a, b, n) == 0;
}

static inline scan_bits scan64(const char *p) {
	scan_bits b = {0, 0, 0, 0};
	for (int i = 0; i < 64; i++) {
		unsigned char c = (unsigned char)p[i];
		uint64_t bit = (uint64_t)1 << i;
		if (c == '"') b.quote |= bit;
		if (c == '\\') b.slash |= bit;
		if (c < 0x20) b.control |= bit;
		if (c >= 0x80) b.high |= bit;
	}
	return b;
}

typedef scan_bits scan_met;

static inline scan_met scan_begin(void) { return (scan_met){0, 0, 0, 0}; }

static inline uint64_t scan_quotes(const char *p, scan_met *met) {
	scan_bits b = scan64(p);
	met->slash |= b.slash, met->control |= b.control, met->high |= b.high;
	return b.quote;
}

static inline int scan_plain(const scan_met *met) { return (met->slash | met->control) == 0; }
static inline int scan_ascii(const scan_met *met) { return met->high == 0; }

static inline uint32_t scan_find(const uint8_t *hashes, uint8_t m) {
	uint32_t bits = 0;
	for (int i = 0; i < 16; i++) bits |= (uint32_t)(hashes[i] == m) << i;
	return bits;
}

#endif

// scan_escaped returns the bytes that follow an odd run of backslashes. carry is 1 if the preceding
// block ended in one.
static inline uint64_t scan_escaped(uint64_t slash, uint64_t *carry) {
	const uint64_t even = 0x5555555555555555u;
	slash &= ~*carry;
	uint64_t follows = slash << 1 | *carry;
	uint64_t odd_starts = slash & ~even & ~follows;
	uint64_t runs;
	*carry = __builtin_add_overflow(odd_starts, slash, &runs);
	return (even ^ (runs << 1)) & follows;
}

static inline uint64_t load(const char *p, size_t n) {
	uint64_t x = 0;
	memcpy(&x, p, n);
	return x;
}

// scan_copy is memcpy for short texts.
static inline void scan_copy(char *to, const char *from, size_t len) {
	uint64_t a, b;
	if (len > 32) {
		memcpy(to, from, len);
	} else if (len > 16) {
		char head[16], tail[16];
		memcpy(head, from, 16), memcpy(tail, from + len - 16, 16);
		memcpy(to, head, 16), memcpy(to + len - 16, tail, 16);
	} else if (len >= 8) {
		memcpy(&a, from, 8), memcpy(&b, from + len - 8, 8);
		memcpy(to, &a, 8), memcpy(to + len - 8, &b, 8);
	} else if (len >= 4) {
		a = load(from, 4), b = load(from + len - 4, 4);
		memcpy(to, &a, 4), memcpy(to + len - 4, &b, 4);
	} else {
		for (size_t i = 0; i < len; i++) to[i] = from[i];
	}
}

enum {
	SCAN_SPECIAL = 1,
	SCAN_HIGH = 2
};

// scan_word reports whether some of 8 bytes are quotes, backslashes or control characters, and
// whether some are from 0x80 on.
static inline int scan_word(uint64_t x) {
	const uint64_t ones = 0x0101010101010101u, tops = ones * 0x80;
	uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
	uint64_t special =
	    ((x - ones * 0x20) & ~x) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash);
	return (special & tops ? SCAN_SPECIAL : 0) | (x & tops ? SCAN_HIGH : 0);
}

// scan_words is scan_word for two words.
#if defined(__SSE2__)
static inline int scan_words(uint64_t a, uint64_t b) {
	__m128i x = _mm_set_epi64x((long long)b, (long long)a);
	__m128i special =
	    _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
	special = _mm_or_si128(special, _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x));
	return (_mm_movemask_epi8(special) ? SCAN_SPECIAL : 0) | (_mm_movemask_epi8(x) ? SCAN_HIGH : 0);
}
#else
static inline int scan_words(uint64_t a, uint64_t b) { return scan_word(a) | scan_word(b); }
#endif

// scan_text is scan_word for a text.
static inline int scan_text(const char *s, size_t len) {
	if (len < 8) {
		uint64_t blank = 0x2020202020202020u, x = 0;
		if (len >= 4) x = load(s, 4) | load(s + len - 4, 4) << 32;
		else memcpy(&x, &blank, 8), scan_copy((char *)&x, s, len);
		return scan_word(x);
	}
	if (len <= 16) return scan_words(load(s, 8), load(s + len - 8, 8));
	int met = 0;
	for (size_t i = 0; i + 16 < len; i += 16) met |= scan_words(load(s + i, 8), load(s + i + 8, 8));
	return met | scan_words(load(s + len - 16, 8), load(s + len - 8, 8));
}

// scan_same is memcmp(a, b, len) == 0 for short texts.
static inline int scan_same(const char *a, const char *b, size_t len) {
	for (; __builtin_expect(len > 16, 0); a += 16, b += 16, len -= 16)
		if ((load(a, 8) ^ load(b, 8)) | (load(a + 8, 8) ^ load(b + 8, 8))) return 0;
	if (len >= 8)
		return ((load(a, 8) ^ load(b, 8)) | (load(a + len - 8, 8) ^ load(b + len - 8, 8))) == 0;
	if (len >= 4)
		return ((load(a, 4) ^ load(b, 4)) | (load(a + len - 4, 4) ^ load(b + len - 4, 4))) == 0;
	for (size_t i = 0; i < len; i++)
		if (a[i] != b[i]) return 0;
	return 1;
}

// scan_hash returns the one-byte hash of a key.
static inline uint8_t scan_hash(const char *key, size_t len) {
	if (len < 4)
		return (
		    uint8_t)(len ? len * 37 + (unsigned char)key[0] * 11 + (unsigned char)key[len - 1] : 1);
	uint32_t x = (uint32_t)(load(key, 4) + load(key + len - 4, 4) * 5 + len);
	return (uint8_t)(x * 0x9E3779B1u >> 24);
}

#endif
