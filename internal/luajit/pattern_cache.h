/* A cache of common patterns in compiled form. They are matched without Lua, in bounded time. */
#ifndef PERIGEE_PATTERN_CACHE_H
#define PERIGEE_PATTERN_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum {
	PLUA_CACHED_CAPTURES = 4, /* per pattern */
	PLUA_CACHED_OPS = 32,     /* per pattern */
	PLUA_CACHED_SETS = 6,     /* per pattern */
	PLUA_CACHED_TEXT = 48,    /* bytes per pattern */
	PLUA_CACHED_PATTERNS = 64 /* patterns */
};

typedef struct plua_pattern_op {
	uint8_t kind, repeat; /* one of * + - ? or 0 */
	uint8_t c;            /* the character, the set or the capture */
	uint8_t has_next;     /* repeated item: `next` must follow it */
	uint8_t next;
} plua_pattern_op;

typedef struct plua_compiled_pattern {
	const char *address; /* of the pattern's text; the text is compared too, */
	size_t len;          /*   since another string may later have that address */
	char text[PLUA_CACHED_TEXT];
	plua_pattern_op ops[PLUA_CACHED_OPS];
	uint64_t sets[PLUA_CACHED_SETS][4];
	uint8_t captures, anchored, usable;
} plua_compiled_pattern;

/* A match, as positions for string.sub, since a pointer into the string would not keep it alive.
 * C and engine.lua both declare these types from this macro. */
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

/* plua_pattern_cache_find searches s for a pattern, from position init on as in string.find, and
 * stores the match in `found`. It returns the number of captures, 0 for no match,
 * PLUA_FOUND_WHOLE for a match of a pattern without captures, or PLUA_NOT_CACHED: the caller
 * then uses string.c. Both texts must be those of Lua strings. */
enum {
	PLUA_NOT_CACHED = -1,
	PLUA_FOUND_WHOLE = PLUA_CACHED_CAPTURES + 1
};
int plua_pattern_cache_find(plua_pattern_cache *cache, const char *s, size_t n, const char *pattern,
    size_t pn, double init);

#endif
