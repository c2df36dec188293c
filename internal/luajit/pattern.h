/* Lua patterns, matched under the limits of a run. */
#ifndef PERIGEE_PATTERN_H
#define PERIGEE_PATTERN_H

#include "vm.h"

enum {
	PLUA_CAPTURES = 32,      /* captures of a pattern */
	PLUA_PATTERN_DEPTH = 200 /* nested calls */
};

typedef struct plua_capture {
	const unsigned char *at;
	ptrdiff_t len; /* or one of the two below */
} plua_capture;

enum {
	PLUA_CAPTURE_OPEN = -1,
	PLUA_CAPTURE_POSITION = -2
};

/* The memory of a long search. From a repeated item of the pattern and a place in the text, the
 * rest of the match always gives the same result, unless the pattern refers back to a capture.
 * So each such state is tried only once, and the search time is proportional to the text. */
typedef struct plua_failures {
	size_t row; /* bytes per repeated item: a bit for each place in the text */
	/* by place in the pattern: the number of the repeated item, from 1, or 0 */
	uint8_t item[PLUA_PATTERN_DEPTH];
	uint8_t failed[];
} plua_failures;

typedef struct plua_matcher {
	lua_State *L;
	plua_vm *vm;
	const unsigned char *text, *text_end, *pattern, *pattern_end;
	uint32_t steps, steps_remember; /* from steps_remember on, failures are recorded */
	int depth, captures;
	plua_failures *failures; /* NULL until then; a value on the stack of L */
	plua_capture capture[PLUA_CAPTURES];
} plua_matcher;

void plua_pattern_init(
    plua_matcher *m, lua_State *L, const char *text, size_t n, const char *pattern, size_t pn);

/* plua_pattern_match matches the pattern from p on at s, anchored there, and returns the end of the
 * match or NULL. It raises an error if the pattern is malformed or a limit of the run is
 * exceeded. */
const unsigned char *plua_pattern_match(
    plua_matcher *m, const unsigned char *s, const unsigned char *p);

/* plua_pattern_match_at matches the whole pattern, starting without captures. */
const unsigned char *plua_pattern_match_at(
    plua_matcher *m, const unsigned char *s, const unsigned char *p);

/* plua_pattern_item_end returns the place after the single-character item at p (c, %c, . or
 * [set]), or NULL if it is malformed. plua_pattern_item_matches reports whether the item from p
 * to end matches c. */
const unsigned char *plua_pattern_item_end(
    const unsigned char *p, const unsigned char *pattern_end);
int plua_pattern_item_matches(int c, const unsigned char *p, const unsigned char *end);

/* plua_pattern_is_plain reports whether a pattern has no special characters. */
int plua_pattern_is_plain(const char *pattern, size_t n);

#endif
