#include "template.h"

#include <stdlib.h>

#include "memory.h"
#include "scan.h"

// Templates are only fast for small documents.
enum {
	NODES_MAX = 1 << 9, // nodes
	TEXT_MAX = 1 << 15  // bytes
};

enum {
	TEXT_AT = 16 // offset of doc_template.text, since same_text_before reads 16 bytes before it
};

// A scalar, and the text before it.
typedef struct template_scalar {
	uint32_t len; // of the text since the preceding scalar, including a string's opening quote
	// mask of the last 16 bytes that belong to that text; more bits for a longer text
	uint32_t ends;
	uint32_t node;
	uint32_t key;    // distance from the scalar back to its key; 0: no key
	uint32_t is;     // kind and flags
	uint32_t quoted; // 1 for a string
} template_scalar;

// An object or array. Its start and end are offsets from the end of the preceding scalar, or from 0
// if there is none.
typedef struct template_container {
	uint32_t node, key, flags;
	uint32_t opens_after, opens_at;
	uint32_t closes_after, closes_at;
} template_container;

static int template_need(doc *d, size_t text, size_t nodes) {
	doc_template *f = &d->template;
	if (text > TEXT_MAX || nodes > NODES_MAX) return 0;
	if (!f->text &&
	    doc_memory_take(
	        d, TEXT_AT + TEXT_MAX + NODES_MAX * (sizeof *f->scalars + sizeof *f->containers)))
		return 0;
	if (!f->text) f->text = calloc(1, TEXT_AT + TEXT_MAX);
	if (!f->scalars) f->scalars = malloc(NODES_MAX * sizeof *f->scalars);
	if (!f->containers) f->containers = malloc(NODES_MAX * sizeof *f->containers);
	return f->text && f->scalars && f->containers;
}

static inline const char *end_of(const doc *d, uint32_t node, const char *text) {
	const doc_node *n = &d->nodes[node];
	return node ? n->text + n->len : text;
}

// close_before sets the ends of all containers, from the innermost on, that end before a node.
static void close_before(
    doc *d, const char *text, uint32_t innermost, uint32_t node, uint32_t scalar) {
	for (uint32_t c = innermost; d->nodes[c].next <= node; c = d->nodes[c].parent) {
		template_container *frame = &d->template.containers[d->nodes[c].other];
		frame->closes_after = scalar;
		frame->closes_at = (uint32_t)(d->nodes[c].text + d->nodes[c].len - end_of(d, scalar, text));
		if (c == 0) break;
	}
}

// add_text appends [from, to).
static uint32_t add_text(doc_template *f, uint32_t used, const char *from, const char *to) {
	memcpy(f->text + used, from, (size_t)(to - from));
	return used + (uint32_t)(to - from);
}

static template_scalar scalar_of(const doc_node *n, uint32_t node, uint32_t len) {
	uint32_t quoted = n->kind == DOC_STRING;
	len += quoted;
	doc_node is = {.flags = n->flags & DOC_KEY_ESCAPED, .kind = n->kind};
	return (template_scalar){.len = len,
	    .ends = len <= 16 ? 0xffff & 0xffff << (16 - len) : UINT32_MAX,
	    .node = node,
	    .key = n->key ? (uint32_t)(n->text - n->key) : 0,
	    .is = is.is,
	    .quoted = quoted};
}

// template_count is the number of templates made, in all documents.
static uint64_t template_count;

void doc_template_learn(doc *d) {
	doc_template *f = &d->template;
	const char *text = d->nodes[0].text;
	if (!template_need(d, d->nodes[0].len, d->count)) return;
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
			f->containers[f->container_count++] =
			    (template_container){i, key, n->flags, scalar, (uint32_t)(n->text - before), 0, 0};
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
	f->number = __atomic_add_fetch(&template_count, 1, __ATOMIC_RELAXED);
	f->matches = 1;
}

// quotes_at returns the quotes among the 64 bytes from `at` on.
static inline uint64_t quotes_at(const uint64_t *quotes, uint32_t at) {
	uint32_t block = at / 64, shift = at % 64;
	return quotes[block] >> shift | quotes[block + 1] << 1 << (63 - shift);
}

// next_quotes advances *at to the next 64 bytes with a quote, and returns their quotes. A quote is
// set after the text.
static inline uint64_t next_quotes(const uint64_t *quotes, uint32_t *at) {
	uint64_t bits = quotes_at(quotes, *at);
	while (__builtin_expect(!bits, 0)) bits = quotes_at(quotes, *at += 64);
	return bits;
}

INLINE doc_node *node_at(const walk *w, const template_scalar *s) {
	doc_node *n = &w->nodes[s->node];
	n->text = w->text + w->at;
	if (s->key) n->key = n->text - s->key;
	n->is = s->is;
	return n;
}

// string matches a string from its opening quote on; w->bits start after that. Without `special`,
// the text after the string reveals a wrong end.
INLINE int string(walk *w, doc_node *n, const int special) {
	uint32_t end = w->at + 1;
	if (__builtin_expect(!w->bits, 0)) w->bits = next_quotes(w->d->quotes, &end);
	uint32_t more = (uint32_t)__builtin_ctzll(w->bits);
	w->bits = w->bits >> more >> 1;
	end += more;
	if (special) {
		int escaped = end < w->len ? doc_check_string(w->d, w->text, w->at + 1, end) : -1;
		if (escaped < 0) return 0;
		n->flags |= (uint16_t)escaped;
	}
	n->len = end + 1 - w->at;
	w->at = end + 1;
	return 1;
}

// match_other matches a scalar of another kind, or one with long text before it, and returns its
// end, or 0.
static __attribute__((noinline)) uint32_t match_other(
    walk w, const template_scalar *s, const char *before, const int special) {
	uint32_t len = s->len - s->quoted;
	if (w.at + len >= w.len || !scan_same(w.text + w.at, before, len)) return 0;
	w.at += len;
	w.bits = 0;
	doc_node *n = node_at(&w, s);
	if (w.text[w.at] != '"') return unquoted(&w, n) == DOC_OK ? w.at : 0;
	n->kind = DOC_STRING;
	return string(&w, n, special) && w.at <= w.len ? w.at : 0;
}

// set_containers sets the containers from the scalars.
INLINE void set_containers(walk *w) {
	const doc_template *f = &w->d->template;
	for (const template_container *frame = f->containers;
	     frame < f->containers + f->container_count; frame++) {
		doc_node *n = &w->nodes[frame->node];
		n->text = end_of(w->d, frame->opens_after, w->text) + frame->opens_at;
		n->len =
		    (uint32_t)(end_of(w->d, frame->closes_after, w->text) + frame->closes_at - n->text);
		n->key = frame->key ? n->text - frame->key : NULL;
		n->flags = (uint16_t)frame->flags;
		n->first = n->last = 0;
		n->u.last_read.index = 0;
	}
}

// same_text_before reports whether the text before a scalar equals the template's. The scalar
// begins at `to`, after the opening quote of a string.
INLINE int same_text_before(
    const walk *w, const template_scalar *s, uint32_t to, const char *before) {
	return to < w->len && scan_same_before(w->text + to, before, s->ends) &&
	       (s->quoted || w->text[to] != '"');
}

INLINE int match_text(walk w, const int special) {
	const doc_template *f = &w.d->template;
	const char *before = f->text + TEXT_AT;
	const template_scalar *s = f->scalars, *end = s + f->scalar_count;
	for (; s < end && w.at < 16; before += s++->len)
		if (!(w.at = match_other(w, s, before, special))) return 0;
	w.bits = quotes_at(w.d->quotes, w.at);
	for (; s < end; s++) {
		before += s->len;
		uint32_t to = w.at + s->len;
		if (__builtin_expect(!same_text_before(&w, s, to, before), 0)) {
			if (!(w.at = match_other(w, s, before - s->len, special))) return 0;
			w.bits = quotes_at(w.d->quotes, w.at);
			continue;
		}
		w.at = to - s->quoted;
		w.bits >>= s->len;
		doc_node *n = node_at(&w, s);
		if (__builtin_expect(s->quoted, 1)) {
			if (!string(&w, n, special)) return 0;
		} else {
			if (unquoted(&w, n)) return 0;
			w.bits = n->len < 64 ? w.bits >> n->len : 0;
		}
	}
	if (w.len - w.at != f->tail || !scan_same(w.text + w.at, before, f->tail)) return 0;
	set_containers(&w);
	return 1;
}

static __attribute__((noinline)) int match_special(walk w) { return match_text(w, 1); }

int doc_template_match(doc *d, const char *text, uint32_t len, int special) {
	if (!d->template.matches) return 0;
	walk w = {.d = d, .text = text, .len = len, .nodes = d->nodes, .bits = d->quotes[0]};
	d->template.matches = __builtin_expect(special, 0) ? match_special(w) : match_text(w, 0);
	if (d->template.matches) d->count = d->last_count;
	else d->template.streak = 0;
	return d->template.matches;
}
