/* Common patterns, compiled and kept, matched without Lua and in bounded time. */
#ifndef PERIGEE_QUICK_H
#define PERIGEE_QUICK_H

#include <stddef.h>
#include <stdint.h>

enum { QUICK_CAPTURES = 4, QUICK_OPS = 32, QUICK_SETS = 6, QUICK_TEXT = 48, QUICK_SLOTS = 64 };

typedef struct quick_op {
	uint8_t kind, repeat; /* one of * + - ? or 0 */
	uint8_t c;            /* the character, the set or the capture */
	uint8_t next;         /* repeated: the character that must follow, if `sure` */
	uint8_t sure;
} quick_op;

typedef struct quick_pattern {
	const char *address; /* of the text it was compiled from, */
	size_t len;          /*   which is kept, for another may come to stand there */
	char text[QUICK_TEXT];
	quick_op ops[QUICK_OPS];
	uint64_t sets[QUICK_SETS][4];
	uint8_t captures, anchored, usable;
} quick_pattern;

/* What a match has found, as string.sub counts: a pointer into the string would not
 * keep that alive. It is declared once more in frontend.lua. */
typedef struct quick_range { int32_t from, to; } quick_range;
typedef struct quick_match { quick_range whole, capture[QUICK_CAPTURES]; } quick_match;

typedef struct quick {
	quick_match match;
	quick_pattern patterns[QUICK_SLOTS];
} quick;

/* quick_find looks for a pattern in s, from where string.find would begin. It
 * returns how many captures there are, 0 without a match, or QUICK_NOT: the other
 * matcher is to say. The texts are those of strings of Lua. */
enum { QUICK_NOT = -1, QUICK_WHOLE = QUICK_CAPTURES + 1 /* a match without captures */ };
int quick_find(quick *q, const char *s, size_t n, const char *pattern, size_t pn, double init);

#endif
