#include "pattern_cache.h"

#include <string.h>

#include "pattern.h"

typedef const unsigned char *bytes;

enum {
	CHAR,
	ANY,
	SET,
	OPEN,
	CLOSE,
	END,
	DONE
};
enum {
	STEPS_MAX = 1 << 14 /* about ten microseconds */
};

/* Compilation of patterns */

typedef struct {
	plua_compiled_pattern *q;
	bytes p, end;
	int ops, sets, open;
} compiler;

/* add_set compiles the item from c->p to end to a set of characters. */
static int add_set(compiler *c, plua_pattern_op *op, bytes end) {
	if (c->sets == PLUA_CACHED_SETS) return 0;
	uint64_t *set = c->q->sets[c->sets];
	memset(set, 0, sizeof c->q->sets[0]);
	for (int x = 0; x < 256; x++)
		if (plua_pattern_item_matches(x, c->p, end)) set[x >> 6] |= (uint64_t)1 << (x & 63);
	op->kind = SET;
	op->c = (uint8_t)c->sets++;
	return 1;
}

static int is_letter(int c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

static int add_item(compiler *c, plua_pattern_op *op) {
	bytes end = plua_pattern_item_end(c->p, c->end);
	if (!end) return 0;
	if (*c->p == '%' && c->p[1] >= '0' && c->p[1] <= '9') return 0;
	if (*c->p == '%' && (c->p[1] == 'b' || c->p[1] == 'f')) return 0;
	if (*c->p == '.') op->kind = ANY;
	else if (*c->p != '%' && *c->p != '[') *op = (plua_pattern_op){.kind = CHAR, .c = *c->p};
	else if (*c->p == '%' && !is_letter(c->p[1]))
		*op = (plua_pattern_op){.kind = CHAR, .c = c->p[1]};
	else if (!add_set(c, op, end)) return 0;
	c->p = end;
	if (end < c->end && strchr("*+-?", *end) && *end) op->repeat = *c->p++;
	return 1;
}

static int add_capture(compiler *c, plua_pattern_op *op, int opened[]) {
	if (*c->p++ == '(') {
		if (c->q->captures == PLUA_CACHED_CAPTURES || (c->p < c->end && *c->p == ')')) return 0;
		*op = (plua_pattern_op){.kind = OPEN, .c = c->q->captures};
		opened[c->open++] = c->q->captures++;
		return 1;
	}
	if (c->open == 0) return 0;
	*op = (plua_pattern_op){.kind = CLOSE, .c = (uint8_t)opened[--c->open]};
	return 1;
}

/* set_next_chars records the character that must follow a repeated item, so that other positions
 * are skipped. */
static void set_next_chars(plua_pattern_op *ops, int count) {
	for (int i = 0; i < count; i++) {
		int next = i + 1;
		while (ops[next].kind == OPEN || ops[next].kind == CLOSE) next++;
		ops[i].has_next = ops[next].kind == CHAR && (!ops[next].repeat || ops[next].repeat == '+');
		ops[i].next = ops[next].c;
	}
}

/* compile returns 0 for a pattern that only pattern.c can handle. */
static int compile(plua_compiled_pattern *q, const char *pattern, size_t n) {
	int opened[PLUA_CACHED_CAPTURES];
	compiler c = {.q = q, .p = (bytes)pattern, .end = (bytes)pattern + n};
	q->captures = 0;
	q->anchored = n && *pattern == '^';
	c.p += q->anchored;
	while (c.p < c.end) {
		if (c.ops == PLUA_CACHED_OPS - 2) return 0;
		plua_pattern_op *op = &q->ops[c.ops++];
		*op = (plua_pattern_op){0};
		if (*c.p == '$' && c.p + 1 == c.end) op->kind = END, c.p++;
		else if (*c.p == '(' || *c.p == ')' ? !add_capture(&c, op, opened) : !add_item(&c, op))
			return 0;
	}
	q->ops[c.ops] = (plua_pattern_op){.kind = DONE};
	set_next_chars(q->ops, c.ops);
	return c.open == 0;
}

/* lookup returns the compiled pattern, or NULL if compile cannot handle it. */
static const plua_compiled_pattern *lookup(
    plua_pattern_cache *cache, const char *pattern, size_t n) {
	uintptr_t at = (uintptr_t)pattern;
	plua_compiled_pattern *q = &cache->patterns[(at >> 4 ^ at >> 10) % PLUA_CACHED_PATTERNS];
	if (q->address != pattern || q->len != n || memcmp(q->text, pattern, n) != 0) {
		if (n > PLUA_CACHED_TEXT) return NULL;
		q->address = pattern;
		q->len = n;
		memcpy(q->text, pattern, n);
		q->usable = (uint8_t)compile(q, pattern, n);
	}
	return q->usable ? q : NULL;
}

/* Matching of compiled patterns */

typedef struct {
	const plua_compiled_pattern *q;
	bytes text, end;
	plua_range *captures;
	int steps; /* steps left; below 0 the match is abandoned, and pattern.c repeats it with limits */
} matcher;

static inline int matches_char(const matcher *m, const plua_pattern_op *op, bytes s) {
	switch (op->kind) {
	case CHAR: return *s == op->c;
	case ANY: return 1;
	default: return m->q->sets[op->c][*s >> 6] >> (*s & 63) & 1;
	}
}

static inline bytes end_of_run(matcher *m, const plua_pattern_op *op, bytes s) {
	bytes at = s;
	if (op->kind == ANY) return m->end;
	while (at < m->end && matches_char(m, op, at)) at++;
	m->steps -= (int)(at - s);
	return at;
}

static bytes match(matcher *m, const plua_pattern_op *op, bytes s);

static bytes match_greedy(matcher *m, const plua_pattern_op *op, bytes s, bytes least) {
	for (bytes at = end_of_run(m, op, s); at >= least && m->steps-- > 0; at--) {
		if (op->has_next && (at == m->end || *at != op->next)) continue;
		bytes r = match(m, op + 1, at);
		if (r) return r;
	}
	return NULL;
}

static bytes match_lazy(matcher *m, const plua_pattern_op *op, bytes s) {
	for (; m->steps-- > 0; s++) {
		if (!op->has_next || (s < m->end && *s == op->next)) {
			bytes r = match(m, op + 1, s);
			if (r) return r;
		}
		if (s == m->end || !matches_char(m, op, s)) return NULL;
	}
	return NULL;
}

/* match matches the operations from op on at s and returns the end, or NULL. A successful match
 * writes all captures on its path, so a failed attempt need not restore any. */
static bytes match(matcher *m, const plua_pattern_op *op, bytes s) {
	for (;; op++) {
		switch (op->kind) {
		case DONE: return s;
		case END:
			if (s != m->end) return NULL;
			continue;
		case OPEN: m->captures[op->c].from = (int32_t)(s - m->text) + 1; continue;
		case CLOSE: m->captures[op->c].to = (int32_t)(s - m->text); continue;
		}
		switch (op->repeat) {
		case '*': return match_greedy(m, op, s, s);
		case '+':
			return s < m->end && matches_char(m, op, s) ? match_greedy(m, op, s, s + 1) : NULL;
		case '-': return match_lazy(m, op, s);
		case '?':
			if (s < m->end && matches_char(m, op, s)) {
				bytes r = match(m, op + 1, s + 1);
				if (r) return r;
			}
			continue;
		}
		if (s == m->end || !matches_char(m, op, s)) return NULL;
		s++;
	}
}

/* skip_to_first returns the first position from s where the pattern can match. */
static bytes skip_to_first(const matcher *m, bytes s) {
	const plua_pattern_op *op = m->q->ops;
	if (op->kind != CHAR || (op->repeat && op->repeat != '+')) return s;
	return memchr(s, op->c, (size_t)(m->end - s));
}

int plua_pattern_cache_find(plua_pattern_cache *cache, const char *text, size_t n,
    const char *pattern, size_t pn, double init) {
	const plua_compiled_pattern *q = lookup(cache, pattern, pn);
	if (!q || n >= INT32_MAX || !(init >= 1 && init <= (double)n + 1)) return PLUA_NOT_CACHED;
	bytes s = (bytes)text + (size_t)init - 1, end;
	matcher m = {q, (bytes)text, (bytes)text + n, cache->found.capture, STEPS_MAX};
	do {
		if (!q->anchored && !(s = skip_to_first(&m, s))) return 0;
		end = match(&m, q->ops, s);
	} while (!end && m.steps-- > 0 && s++ < m.end && !q->anchored);
	if (m.steps <= 0) return PLUA_NOT_CACHED;
	if (!end) return 0;
	cache->found.whole = (plua_range){(int32_t)(s - m.text) + 1, (int32_t)(end - m.text)};
	return q->captures ? q->captures : PLUA_FOUND_WHOLE;
}
