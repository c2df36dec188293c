#include "pattern.h"

#include <ctype.h>
#include <string.h>

typedef const unsigned char *bytes;

enum {
	ESCAPE = '%',
	STEPS_PER_CHECK = 4096,
	STEPS_PER_BYTE = 8, /* few searches need more steps per byte of the text */
	NEVER = UINT32_MAX
};

/* number_items numbers the repeated items of the pattern, and returns their count. Items that it
 * does not reach, because the pattern is malformed, have no number. */
static int number_items(const plua_matcher *m, plua_failures *f) {
	int n = 0;
	for (bytes p = m->pattern, end; p < m->pattern_end; p = end) {
		int next = p + 1 < m->pattern_end ? p[1] : 0;
		end = *p == '(' || *p == ')' ? p + 1 : plua_pattern_item_end(p, m->pattern_end);
		if (!end || (*p == ESCAPE && next == 'b' && (end += 2) > m->pattern_end)) break;
		if (*p == '(' || *p == ')' || end == m->pattern_end || !*end || !strchr("*+-?", *end))
			continue;
		f->item[p - m->pattern] = (uint8_t)++n;
		end++;
	}
	return n;
}

/* refers_back reports whether a pattern may refer to a capture. */
static int refers_back(const plua_matcher *m) {
	for (bytes p = m->pattern; p + 1 < m->pattern_end; p++)
		if (*p == ESCAPE && isdigit(p[1])) return 1;
	return 0;
}

/* remember makes a search record its failures. Only for short patterns: in a longer one, the
 * depth limit may stop one path through a state and not another. */
static __attribute__((noinline)) void remember(plua_matcher *m) {
	m->steps_remember = NEVER;
	if (m->pattern_end - m->pattern > PLUA_PATTERN_DEPTH || refers_back(m)) return;
	plua_failures f = {.row = (size_t)(m->text_end - m->text) / 8 + 1};
	int items = number_items(m, &f);
	m->failures = lua_newuserdata(m->L, sizeof f + items * f.row);
	*m->failures = f;
	memset(m->failures->failed, 0, items * f.row);
}

static inline void tick(plua_matcher *m) {
	if (++m->steps % STEPS_PER_CHECK != 0) return;
	PLUA_CHECK(m->L, m->vm);
	if (m->steps >= m->steps_remember) remember(m);
}

/* failures_of returns the bit set of places at which the item at p has failed, or NULL. */
static inline uint8_t *failures_of(const plua_matcher *m, bytes p) {
	int item = m->failures ? m->failures->item[p - m->pattern] : 0;
	return item ? m->failures->failed + (item - 1) * m->failures->row : NULL;
}

static inline int has_failed(const plua_matcher *m, const uint8_t *failures, bytes s) {
	return failures && failures[(s - m->text) / 8] >> (s - m->text) % 8 & 1;
}

/* fail records that the match from the item at p on fails at all places from `from` to `to`. */
static bytes fail(const plua_matcher *m, bytes p, bytes from, bytes to) {
	uint8_t *failures = failures_of(m, p);
	for (bytes s = from; failures && s <= to; s++)
		failures[(s - m->text) / 8] |= (uint8_t)(1 << (s - m->text) % 8);
	return NULL;
}

void plua_pattern_init(
    plua_matcher *m, lua_State *L, const char *text, size_t n, const char *pattern, size_t pn) {
	m->L = L;
	m->vm = plua_vm_of(L);
	m->text = (bytes)text;
	m->text_end = m->text + n;
	m->pattern = (bytes)pattern;
	m->pattern_end = m->pattern + pn;
	m->steps = 0;
	m->steps_remember = n < NEVER / STEPS_PER_BYTE ? (uint32_t)n * STEPS_PER_BYTE : NEVER - 1;
	m->depth = m->captures = 0;
	m->failures = NULL;
}

int plua_pattern_is_plain(const char *pattern, size_t n) {
	for (size_t i = 0; i < n; i++)
		if (strchr("^$*+?.([%-", pattern[i]) && pattern[i]) return 0;
	return 1;
}

bytes plua_pattern_item_end(bytes p, bytes pattern_end) {
	if (*p == ESCAPE) return p + 1 < pattern_end ? p + 2 : NULL;
	if (*p != '[') return p + 1;
	p++;
	if (p < pattern_end && *p == '^') p++;
	do { /* a leading ] is an ordinary character */
		if (p >= pattern_end) return NULL;
		if (*p++ == ESCAPE) p++;
	} while (p >= pattern_end || *p != ']');
	return p + 1;
}

static bytes item_end(plua_matcher *m, bytes p) {
	bytes end = plua_pattern_item_end(p, m->pattern_end);
	if (!end)
		luaL_error(m->L, *p == ESCAPE ? "malformed pattern (ends with '%%')"
		                              : "malformed pattern (missing ']')");
	return end;
}

static int in_class(int c, int class) {
	int in;
	switch (tolower(class)) {
	case 'a': in = isalpha(c); break;
	case 'c': in = iscntrl(c); break;
	case 'd': in = isdigit(c); break;
	case 'g': in = isgraph(c); break;
	case 'l': in = islower(c); break;
	case 'p': in = ispunct(c); break;
	case 's': in = isspace(c); break;
	case 'u': in = isupper(c); break;
	case 'w': in = isalnum(c); break;
	case 'x': in = isxdigit(c); break;
	case 'z': in = c == 0; break;
	default: return class == c;
	}
	return isupper(class) ? !in : in != 0;
}

/* in_set reports whether c is in the set whose [ is at p and whose ] is at last. */
static int in_set(int c, bytes p, bytes last) {
	int in = 1;
	if (*++p == '^') in = 0, p++;
	for (; p < last; p++) {
		if (*p == ESCAPE) {
			if (in_class(c, *++p)) return in;
		} else if (p + 2 < last && p[1] == '-') {
			if (p[0] <= c && c <= p[2]) return in;
			p += 2;
		} else if (*p == c) {
			return in;
		}
	}
	return !in;
}

int plua_pattern_item_matches(int c, bytes p, bytes end) {
	switch (*p) {
	case '.': return 1;
	case ESCAPE: return in_class(c, p[1]);
	case '[': return in_set(c, p, end - 1);
	}
	return *p == c;
}

/* matches_char reports whether the item from p to end matches the character at s. */
static inline int matches_char(plua_matcher *m, bytes s, bytes p, bytes end) {
	return s < m->text_end && plua_pattern_item_matches(*s, p, end);
}

/* match_longest stops at a place at which the item has failed before, since all later places were
 * tried then. */
static bytes match_longest(plua_matcher *m, bytes s, bytes p, bytes end) {
	const uint8_t *failures = failures_of(m, p);
	bytes to = s;
	for (; !has_failed(m, failures, to) && matches_char(m, to, p, end); to++) tick(m);
	if (end + 1 == m->pattern_end) return to;
	for (bytes at = has_failed(m, failures, to) ? to - 1 : to; at >= s; at--) {
		bytes r = plua_pattern_match(m, at, end + 1);
		if (r) return r;
	}
	return fail(m, p, s, to);
}

static bytes match_shortest(plua_matcher *m, bytes s, bytes p, bytes end) {
	const uint8_t *failures = failures_of(m, p);
	for (bytes at = s;; at++) {
		if (has_failed(m, failures, at)) return fail(m, p, s, at);
		bytes r = plua_pattern_match(m, at, end + 1);
		if (r) return r;
		if (!matches_char(m, at, p, end)) return fail(m, p, s, at);
	}
}

/* match_optional matches the rest of the pattern after the item, or without it. */
static bytes match_optional(plua_matcher *m, bytes s, bytes p, bytes end) {
	if (has_failed(m, failures_of(m, p), s)) return NULL;
	bytes r = matches_char(m, s, p, end) ? plua_pattern_match(m, s + 1, end + 1) : NULL;
	if (!r) r = plua_pattern_match(m, s, end + 1);
	return r ? r : fail(m, p, s, s);
}

static bytes open_capture(plua_matcher *m, bytes s, bytes p) {
	if (m->captures >= PLUA_CAPTURES) luaL_error(m->L, "too many captures");
	int position = p + 1 < m->pattern_end && p[1] == ')';
	m->capture[m->captures].at = s;
	m->capture[m->captures].len = position ? PLUA_CAPTURE_POSITION : PLUA_CAPTURE_OPEN;
	m->captures++;
	bytes r = plua_pattern_match(m, s, p + 1 + position);
	if (!r) m->captures--;
	return r;
}

static bytes close_capture(plua_matcher *m, bytes s, bytes p) {
	int i = m->captures - 1;
	while (i >= 0 && m->capture[i].len != PLUA_CAPTURE_OPEN) i--;
	if (i < 0) luaL_error(m->L, "invalid pattern capture");
	m->capture[i].len = s - m->capture[i].at;
	bytes r = plua_pattern_match(m, s, p + 1);
	if (!r) m->capture[i].len = PLUA_CAPTURE_OPEN;
	return r;
}

/* match_balanced matches %bxy at s. */
static bytes match_balanced(plua_matcher *m, bytes s, bytes p) {
	if (p + 3 >= m->pattern_end) luaL_error(m->L, "unbalanced pattern");
	if (s >= m->text_end || *s != p[2]) return NULL;
	int open = 1;
	for (s++; s < m->text_end; s++, tick(m)) {
		if (*s == p[3]) {
			if (--open == 0) return s + 1;
		} else if (*s == p[2]) {
			open++;
		}
	}
	return NULL;
}

/* at_frontier reports whether %f[set] at p matches between s-1 and s. */
static int at_frontier(plua_matcher *m, bytes s, bytes p, bytes end) {
	int before = s == m->text ? 0 : s[-1], here = s < m->text_end ? *s : 0;
	return !in_set(before, p, end - 1) && in_set(here, p, end - 1);
}

/* match_back_reference matches the text of capture i at s. */
static bytes match_back_reference(plua_matcher *m, bytes s, int i) {
	if (i < 0 || i >= m->captures || m->capture[i].len == PLUA_CAPTURE_OPEN)
		luaL_error(m->L, "invalid capture index");
	ptrdiff_t n = m->capture[i].len;
	if (n == PLUA_CAPTURE_POSITION) return NULL;
	/* make the next tick check the limits after a long comparison */
	m->steps |= n > STEPS_PER_CHECK ? STEPS_PER_CHECK - 1 : 0;
	if (m->text_end - s < n || memcmp(m->capture[i].at, s, n) != 0) return NULL;
	return s + n;
}

/* match_item matches the single-character item at *p with its suffix. It returns 1 if it
 * advanced *s and *p, where the caller continues, or 0 with the final *result. */
static int match_item(plua_matcher *m, bytes *s, bytes *p, bytes *result) {
	bytes end = item_end(m, *p);
	int suffix = end < m->pattern_end ? *end : 0;
	switch (suffix) {
	case '?':
		if (m->failures) {
			*result = match_optional(m, *s, *p, end);
			return 0;
		}
		if (matches_char(m, *s, *p, end) && (*result = plua_pattern_match(m, *s + 1, end + 1)))
			return 0;
		*p = end + 1;
		return 1;
	case '*': *result = match_longest(m, *s, *p, end); return 0;
	case '+':
		*result = matches_char(m, *s, *p, end) ? match_longest(m, *s + 1, *p, end) : NULL;
		return 0;
	case '-': *result = match_shortest(m, *s, *p, end); return 0;
	}
	*result = NULL;
	if (!matches_char(m, *s, *p, end)) return 0;
	*s += 1, *p = end;
	return 1;
}

/* match_escape is match_item for items that begin with %; %b, %f and %1 do not match exactly one
 * character. */
static int match_escape(plua_matcher *m, bytes *s, bytes *p, bytes *result) {
	int c = *p + 1 < m->pattern_end ? (*p)[1] : 0;
	*result = NULL;
	if (c == 'b') {
		if (!(*s = match_balanced(m, *s, *p))) return 0;
		*p += 4;
		return 1;
	}
	if (c == 'f') {
		*p += 2;
		if (*p >= m->pattern_end || **p != '[')
			luaL_error(m->L, "missing '[' after '%%f' in pattern");
		bytes end = item_end(m, *p);
		if (!at_frontier(m, *s, *p, end)) return 0;
		*p = end;
		return 1;
	}
	if (isdigit(c)) {
		if (!(*s = match_back_reference(m, *s, c - '1'))) return 0;
		*p += 2;
		return 1;
	}
	return match_item(m, s, p, result);
}

static bytes match_here(plua_matcher *m, bytes s, bytes p) {
	bytes result;
	while (p < m->pattern_end) {
		tick(m);
		int goes_on;
		switch (*p) {
		case '(': return open_capture(m, s, p);
		case ')': return close_capture(m, s, p);
		case ESCAPE: goes_on = match_escape(m, &s, &p, &result); break;
		case '$':
			if (p + 1 == m->pattern_end) return s == m->text_end ? s : NULL;
			/* fall through */
		default: goes_on = match_item(m, &s, &p, &result);
		}
		if (!goes_on) return result;
	}
	return s;
}

bytes plua_pattern_match(plua_matcher *m, bytes s, bytes p) {
	if (p >= m->pattern_end) return s;
	if (++m->depth > PLUA_PATTERN_DEPTH) luaL_error(m->L, "pattern too complex");
	bytes r = match_here(m, s, p);
	m->depth--;
	return r;
}

bytes plua_pattern_match_at(plua_matcher *m, bytes s, bytes p) {
	m->captures = m->depth = 0;
	tick(m);
	return plua_pattern_match(m, s, p);
}
