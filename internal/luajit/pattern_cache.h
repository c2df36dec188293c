/* Common patterns, compiled and cached. They are matched without Lua and in bounded time. */
#ifndef PERIGEE_PATTERN_CACHE_H
#define PERIGEE_PATTERN_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum {
	PLUA_CACHED_CAPTURES = 4, /* of a pattern */
	PLUA_CACHED_OPS = 32,     /* of a pattern */
	PLUA_CACHED_SETS = 6,     /* of a pattern */
	PLUA_CACHED_TEXT = 48,    /* bytes of a pattern */
	PLUA_CACHED_PATTERNS = 64 /* patterns */
};

typedef struct plua_pattern_op {
	uint8_t kind, repeat; /* one of * + - ? or 0 */
	uint8_t c;            /* the character, the set or the capture */
	uint8_t has_next;     /* of a repeated item: `next` must follow it */
	uint8_t next;
} plua_pattern_op;

typedef struct plua_compiled_pattern {
	const char *address; /* of the pattern's text. The text is compared too, */
	size_t len;          /*   since another string may get that address */
	char text[PLUA_CACHED_TEXT];
	plua_pattern_op ops[PLUA_CACHED_OPS];
	uint64_t sets[PLUA_CACHED_SETS][4];
	uint8_t captures, anchored, usable;
} plua_compiled_pattern;

/* A match, as positions that string.sub takes: a pointer into the string would not keep
 * the string alive. Both C and engine.lua declare these types, from this macro. */
#define PLUA_FOUND_TYPES \
	typedef struct plua_range { \
		int32_t from, to; \
	} plua_range; \
	typedef struct plua_found { \
		plua_range whole, capture[4]; \
	} plua_found;
PLUA_FOUND_TYPES

typedef struct plua_pattern_cache {
	plua_found found;
	plua_compiled_pattern patterns[PLUA_CACHED_PATTERNS];
} plua_pattern_cache;

/* plua_pattern_cache_find searches s for a pattern, from position init on as string.find
 * counts, and stores the match in `found`. It returns the number of captures, 0 without a match,
 * PLUA_FOUND_WHOLE for a match of a pattern without captures, or PLUA_NOT_CACHED: then
 * the caller must use string.c. The texts are those of Lua strings. */
enum {
	PLUA_NOT_CACHED = -1,
	PLUA_FOUND_WHOLE = PLUA_CACHED_CAPTURES + 1
};
int plua_pattern_cache_find(plua_pattern_cache *cache, const char *s, size_t n, const char *pattern,
    size_t pn, double init);

#endif
