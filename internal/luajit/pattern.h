/* Lua patterns, matched under the limits of a run. */
#ifndef PERIGEE_PATTERN_H
#define PERIGEE_PATTERN_H

#include "vm.h"

enum {
	PLUA_CAPTURES = 32,      /* captures of a pattern */
	PLUA_PATTERN_DEPTH = 200 /* calls within each other */
};

typedef struct plua_capture {
	const unsigned char *at;
	ptrdiff_t len; /* or one of the two below */
} plua_capture;

enum {
	PLUA_CAPTURE_OPEN = -1,
	PLUA_CAPTURE_POSITION = -2
};

/* What a search that takes long remembers. From a repeated item of the pattern at a place in
 * the text the match ends or fails in the same way whenever it comes there, unless the pattern
 * refers back to a capture. So each such state is tried once, and a search takes time in
 * proportion to the text. */
typedef struct plua_failures {
	size_t row; /* bytes for a repeated item: a bit for each place, */
	/* and the number of the item at a place in the pattern, from 1; else 0 */
	uint8_t item[PLUA_PATTERN_DEPTH];
	uint8_t failed[];
} plua_failures;

typedef struct plua_matcher {
	lua_State *L;
	plua_vm *vm;
	const unsigned char *text, *text_end, *pattern, *pattern_end;
	uint32_t steps, steps_remember; /* from that many steps on it remembers */
	int depth, captures;
	plua_failures *failures; /* NULL before; a value on the stack of L */
	plua_capture capture[PLUA_CAPTURES];
} plua_matcher;

void plua_pattern_init(
    plua_matcher *m, lua_State *L, const char *text, size_t n, const char *pattern, size_t pn);

/* plua_pattern_match matches the pattern from p on at s, anchored there, and returns the
 * end of the match or NULL. It raises when the pattern is malformed or a limit
 * of the run is reached. */
const unsigned char *plua_pattern_match(
    plua_matcher *m, const unsigned char *s, const unsigned char *p);

/* plua_pattern_match_at is plua_pattern_match for the whole pattern, without captures from before. */
const unsigned char *plua_pattern_match_at(
    plua_matcher *m, const unsigned char *s, const unsigned char *p);

/* plua_pattern_item_end returns the place after the single-character item at p: c, %c, .
 * or [set]; NULL when it is malformed. plua_pattern_item_matches tells whether the item from p
 * to end matches c. */
const unsigned char *plua_pattern_item_end(
    const unsigned char *p, const unsigned char *pattern_end);
int plua_pattern_item_matches(int c, const unsigned char *p, const unsigned char *end);

/* plua_pattern_is_plain tells whether a pattern has no special characters. */
int plua_pattern_is_plain(const char *pattern, size_t n);

#endif
