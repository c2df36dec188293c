/* Common patterns, compiled and cached. They are matched without Lua and in bounded time. */
#ifndef PERIGEE_PATTERN_CACHE_H
#define PERIGEE_PATTERN_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { PG_CACHED_CAPTURES = 4, PG_CACHED_OPS = 32, PG_CACHED_SETS = 6, PG_CACHED_TEXT = 48, PG_CACHED_PATTERNS = 64 };

typedef struct pg_pattern_op {
	uint8_t kind, repeat; /* one of * + - ? or 0 */
	uint8_t c;            /* the character, the set or the capture */
	uint8_t has_next;     /* of a repeated item: `next` must follow it */
	uint8_t next;
} pg_pattern_op;

typedef struct pg_compiled_pattern {
	const char *address; /* of the pattern's text. The text is compared too, */
	size_t len;          /*   since another string may get that address */
	char text[PG_CACHED_TEXT];
	pg_pattern_op ops[PG_CACHED_OPS];
	uint64_t sets[PG_CACHED_SETS][4];
	uint8_t captures, anchored, usable;
} pg_compiled_pattern;

/* A match, as positions that string.sub takes: a pointer into the string would not keep
 * the string alive. Both C and engine.lua declare these types, from this macro. */
#define PG_FOUND_TYPES \
	typedef struct pg_range { int32_t from, to; } pg_range; \
	typedef struct pg_found { pg_range whole, capture[4]; } pg_found;
PG_FOUND_TYPES

typedef struct pg_pattern_cache {
	pg_found found;
	pg_compiled_pattern patterns[PG_CACHED_PATTERNS];
} pg_pattern_cache;

/* pg_pattern_cache_find searches s for a pattern, from position init on as string.find
 * counts, and stores the match in `found`. It returns the number of captures, 0 without a match,
 * PG_FOUND_WHOLE for a match of a pattern without captures, or PG_NOT_CACHED: then
 * the caller must use string.c. The texts are those of Lua strings. */
enum { PG_NOT_CACHED = -1, PG_FOUND_WHOLE = PG_CACHED_CAPTURES + 1 };
int pg_pattern_cache_find(pg_pattern_cache *cache, const char *s, size_t n, const char *pattern, size_t pn, double init);

#endif
