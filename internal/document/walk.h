// A walk over the text of a document, which both ways of indexing use.

#ifndef PERIGEE_WALK_H
#define PERIGEE_WALK_H

#include "document.h"

#define INLINE static inline __attribute__((always_inline))

// A walk moves from token to token. Its address must not escape, so that it stays in registers.
typedef struct {
	doc *d;
	const char *text;
	doc_node *nodes; // d->nodes
	uint64_t bits;   // the remaining quotes of the block at `base`
	uint32_t base;
	uint32_t len;
	uint32_t at;        // the current offset
	uint32_t count;     // number of nodes so far
	uint32_t container; // the node of the innermost open bracket
	uint32_t children;  // number of its children so far
	uint32_t depth;
} walk;

// doc_check_string checks the text between quotes. It returns 0, DOC_ESCAPED if it has escapes, or
// a negative doc_error.
int doc_check_string(doc *d, const char *text, uint32_t from, uint32_t to);

static inline int is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static inline int is_digit(char c) { return (unsigned)(c - '0') < 10; }

static __attribute__((cold, unused)) int fail(doc *d, int error, uint32_t offset) {
	d->offset = offset;
	return error;
}

INLINE int number(walk *w) {
	const char *p = w->text + w->at;
	if (*p == '-') p++;
	if (*p == '0') p++;
	else if (is_digit(*p)) do
			p++;
		while (is_digit(*p));
	else goto bad;
	if (is_digit(*p)) goto bad;
	if (*p == '.') {
		if (!is_digit(*++p)) goto bad;
		do p++;
		while (is_digit(*p));
	}
	if (*p == 'e' || *p == 'E') {
		p++;
		if (*p == '+' || *p == '-') p++;
		if (!is_digit(*p)) goto bad;
		do p++;
		while (is_digit(*p));
	}
	w->at = (uint32_t)(p - w->text);
	return DOC_OK;
bad:
	return fail(w->d, DOC_BAD_NUMBER, (uint32_t)(p - w->text));
}

INLINE int literal(walk *w, const char *word, uint32_t n) {
	const char *p = w->text + w->at;
	uint32_t left = w->len - w->at, i = 0;
	while (i < n && i < left && p[i] == word[i]) i++;
	if (i < n) return fail(w->d, i == left ? DOC_CUT_SHORT : DOC_WANT_VALUE, w->at + i);
	w->at += n;
	return DOC_OK;
}

// unquoted walks over a scalar other than a string.
INLINE int unquoted(walk *w, doc_node *n) {
	uint32_t from = w->at;
	int error = DOC_OK;
	switch (w->text[from]) {
	case '-':
	case '0':
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
	case '7':
	case '8':
	case '9':
		n->kind = DOC_NUMBER;
		error = number(w);
		break;
	case 't':
		n->kind = DOC_TRUE;
		error = literal(w, "true", 4);
		break;
	case 'f':
		n->kind = DOC_FALSE;
		error = literal(w, "false", 5);
		break;
	case 'n':
		n->kind = DOC_NULL;
		error = literal(w, "null", 4);
		break;
	default: return fail(w->d, DOC_WANT_VALUE, from);
	}
	n->len = w->at - from;
	return error;
}

#endif
