#include "form.h"

#include <stdlib.h>

#include "scan.h"

// What follows is quick only where it is small.
enum { NODES_MAX = 1 << 9, TEXT_MAX = 1 << 15 };

enum { TEXT_AT = 16 }; // of doc_form.text: what is before its first bytes is looked at

// A scalar, and what stands before it.
typedef struct form_scalar {
	uint32_t len;    // of the text since the scalar before, with the quote of a string
	uint32_t ends;   // which of the last 16 bytes are of that text; more bits where that is not all
	uint32_t node;
	uint32_t key;    // how far before the scalar its key begins; 0: it has none
	uint32_t is;     // kind and flags
	uint32_t quoted; // 1: it was a string
} form_scalar;

// An object or array. Where it begins and ends is counted from the end of the scalar
// before, which is 0 where there is none.
typedef struct form_container {
	uint32_t node, key, flags;
	uint32_t opens_after, opens_at;
	uint32_t closes_after, closes_at;
} form_container;

void form_free(doc *d) {
	free(d->form.text);
	free(d->form.scalars);
	free(d->form.containers);
}

static int room(doc_form *f, size_t text, size_t nodes) {
	if (text > TEXT_MAX || nodes > NODES_MAX) return 0;
	if (!f->text) f->text = calloc(1, TEXT_AT + TEXT_MAX);
	if (!f->scalars) f->scalars = malloc(NODES_MAX * sizeof *f->scalars);
	if (!f->containers) f->containers = malloc(NODES_MAX * sizeof *f->containers);
	return f->text && f->scalars && f->containers;
}

static inline const char *end_of(const doc *d, uint32_t node, const char *text) {
	const doc_node *n = &d->nodes[node];
	return node ? n->text + n->len : text;
}

// close_before ends the containers from the innermost one on that end before a node.
static void close_before(doc *d, const char *text, uint32_t innermost, uint32_t node, uint32_t scalar) {
	for (uint32_t c = innermost; d->nodes[c].next <= node; c = d->nodes[c].parent) {
		form_container *frame = &d->form.containers[d->nodes[c].other];
		frame->closes_after = scalar;
		frame->closes_at = (uint32_t)(d->nodes[c].text + d->nodes[c].len - end_of(d, scalar, text));
		if (c == 0) break;
	}
}

// add_text adds what stands between the scalar before and `to`.
static uint32_t add_text(doc_form *f, uint32_t used, const char *from, const char *to) {
	memcpy(f->text + used, from, (size_t)(to - from));
	return used + (uint32_t)(to - from);
}

static form_scalar scalar_of(const doc_node *n, uint32_t node, uint32_t len) {
	uint32_t quoted = n->kind == DOC_STRING;
	len += quoted;
	doc_node is = {.flags = n->flags & DOC_KEY_ESCAPED, .kind = n->kind};
	return (form_scalar){.len = len, .ends = len <= 16 ? 0xffff & 0xffff << (16 - len) : UINT32_MAX,
		.node = node, .key = n->key ? (uint32_t)(n->text - n->key) : 0, .is = is.is, .quoted = quoted};
}

// learnt counts forms, so that no two have the same number, of whichever documents.
static uint64_t learnt;

void form_learn(doc *d) {
	doc_form *f = &d->form;
	const char *text = d->nodes[0].text;
	if (!room(f, d->nodes[0].len, d->count)) return;
	uint32_t used = TEXT_AT, scalar = 0, innermost = 0;
	f->scalar_count = f->container_count = 0;
	for (uint32_t i = 0; i < d->count; i++) {
		doc_node *n = &d->nodes[i];
		uint32_t key = n->key ? (uint32_t)(n->text - n->key) : 0;
		const char *before = end_of(d, scalar, text);
		if (i) close_before(d, text, innermost, i, scalar);
		if (n->kind >= DOC_OBJECT) {
			innermost = i;
			n->other = f->container_count;
			f->containers[f->container_count++] = (form_container){i, key, n->flags, scalar, (uint32_t)(n->text - before), 0, 0};
			continue;
		}
		innermost = n->parent;
		f->scalars[f->scalar_count++] = scalar_of(n, i, (uint32_t)(n->text - before));
		used = add_text(f, used, before, n->text + (n->kind == DOC_STRING));
		scalar = i;
	}
	close_before(d, text, innermost, d->count, scalar);
	const char *end = end_of(d, scalar, text);
	f->tail = (uint32_t)(d->nodes[0].text + d->nodes[0].len - end);
	add_text(f, used, end, end + f->tail);
	f->number = __atomic_add_fetch(&learnt, 1, __ATOMIC_RELAXED);
	f->holds = 1;
}

// window returns the quotes of the 64 bytes from `at` on.
static inline uint64_t window(const uint64_t *quotes, uint32_t at) {
	uint32_t block = at / 64, shift = at % 64;
	return quotes[block] >> shift | quotes[block + 1] << 1 << (63 - shift);
}

// look moves on to a window with a quote. Behind the text there is one.
static inline uint64_t look(const uint64_t *quotes, uint32_t *at) {
	uint64_t bits = window(quotes, *at);
	while (__builtin_expect(!bits, 0)) bits = window(quotes, *at += 64);
	return bits;
}

INLINE doc_node *node_at(const walk *w, const form_scalar *s) {
	doc_node *n = &w->nodes[s->node];
	n->text = w->text + w->at;
	if (s->key) n->key = n->text - s->key;
	n->is = s->is;
	return n;
}

// string follows a string from its opening quote on. w->bits begin behind that. Where
// nobody need be careful, what is wrong with its end is seen by what stands behind it.
INLINE int string(walk *w, doc_node *n, const int careful) {
	uint32_t end = w->at + 1;
	if (__builtin_expect(!w->bits, 0)) w->bits = look(w->d->quotes, &end);
	uint32_t more = (uint32_t)__builtin_ctzll(w->bits);
	w->bits = w->bits >> more >> 1;
	end += more;
	if (careful) {
		int escaped = end < w->len ? check_string(w->d, w->text, w->at + 1, end) : -1;
		if (escaped < 0) return 0;
		n->flags |= (uint16_t)escaped;
	}
	n->len = end + 1 - w->at;
	w->at = end + 1;
	return 1;
}

// other follows a scalar that is not what it was, or has much text before it, and
// returns where it ends, or 0.
static __attribute__((noinline)) uint32_t other(walk w, const form_scalar *s, const char *before, const int careful) {
	uint32_t len = s->len - s->quoted;
	if (w.at + len >= w.len || !scan_same(w.text + w.at, before, len)) return 0;
	w.at += len;
	w.bits = 0;
	doc_node *n = node_at(&w, s);
	if (w.text[w.at] != '"') return plain(&w, n) == DOC_OK ? w.at : 0;
	n->kind = DOC_STRING;
	return string(&w, n, careful) && w.at <= w.len ? w.at : 0;
}

// frames sets the containers, when the scalars are set.
INLINE void frames(walk *w) {
	const doc_form *f = &w->d->form;
	for (const form_container *frame = f->containers; frame < f->containers + f->container_count; frame++) {
		doc_node *n = &w->nodes[frame->node];
		n->text = end_of(w->d, frame->opens_after, w->text) + frame->opens_at;
		n->len = (uint32_t)(end_of(w->d, frame->closes_after, w->text) + frame->closes_at - n->text);
		n->key = frame->key ? n->text - frame->key : NULL;
		n->flags = (uint16_t)frame->flags;
		n->first = n->last = 0;
		n->u.near.index = 0;
	}
}

// is_usual tells whether a scalar that begins at `to`, behind its quote if it has one,
// has before it what it had.
INLINE int is_usual(const walk *w, const form_scalar *s, uint32_t to, const char *before) {
	return to < w->len && scan_ends(w->text + to, before, s->ends) && (s->quoted || w->text[to] != '"');
}

INLINE int follow(walk w, const int careful) {
	const doc_form *f = &w.d->form;
	const char *before = f->text + TEXT_AT;
	const form_scalar *s = f->scalars, *end = s + f->scalar_count;
	for (; s < end && w.at < 16; before += s++->len)
		if (!(w.at = other(w, s, before, careful))) return 0;
	w.bits = window(w.d->quotes, w.at);
	for (; s < end; s++) {
		before += s->len;
		uint32_t to = w.at + s->len;
		if (__builtin_expect(!is_usual(&w, s, to, before), 0)) {
			if (!(w.at = other(w, s, before - s->len, careful))) return 0;
			w.bits = window(w.d->quotes, w.at);
			continue;
		}
		w.at = to - s->quoted;
		w.bits >>= s->len;
		doc_node *n = node_at(&w, s);
		if (__builtin_expect(s->quoted, 1)) {
			if (!string(&w, n, careful)) return 0;
		} else {
			if (plain(&w, n)) return 0;
			w.bits = n->len < 64 ? w.bits >> n->len : 0;
		}
	}
	if (w.len - w.at != f->tail || !scan_same(w.text + w.at, before, f->tail)) return 0;
	frames(&w);
	return 1;
}

static __attribute__((noinline)) int follow_careful(walk w) { return follow(w, 1); }

int form_follow(doc *d, const char *text, uint32_t len, int careful) {
	if (!d->form.holds) return 0;
	walk w = {.d = d, .text = text, .len = len, .nodes = d->nodes, .bits = d->quotes[0]};
	d->form.holds = __builtin_expect(careful, 0) ? follow_careful(w) : follow(w, 0);
	if (d->form.holds) d->count = d->places;
	else d->form.streak = 0;
	return d->form.holds;
}
