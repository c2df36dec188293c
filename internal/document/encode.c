// The splice encoder: what was not written is copied in runs from the text.

#include <string.h>

#include "memory.h"
#include "tree.h"

// A run is text that is about to be copied.
typedef struct { const char *from, *to; } run;

static int value(doc *d, uint32_t node, doc_buf *out);

static inline int run_flush(run *r, doc_buf *out) {
	size_t len = (size_t)(r->to - r->from);
	const char *from = r->from;
	r->from = r->to;
	return doc_buf_put(out, from, len);
}

// run_extend adds [from, to), copying what is there when it does not touch.
static inline int run_extend(run *r, const char *from, const char *to, doc_buf *out) {
	if (r->to != from) {
		int fault = run_flush(r, out);
		if (fault) return fault;
		r->from = from;
	}
	r->to = to;
	return DOC_OK;
}

static inline const char *start(const doc_node *n) { return n->key ? n->key - 1 : n->text; }

static const char *before_space(const char *p) {
	while (p[-1] == ' ' || p[-1] == '\n' || p[-1] == '\t' || p[-1] == '\r') p--;
	return p;
}

// next_written returns the first child from i on with a write in or to it, or `end`. No
// node inside of a child has one when the child has none.
static inline uint32_t next_written(const doc *d, uint32_t i, uint32_t end) {
	uint64_t bits = i < 64 ? (d->removed | d->changed) >> i : 0;
	if (bits) return i + (uint32_t)__builtin_ctzll(bits) < end ? i + (uint32_t)__builtin_ctzll(bits) : end;
	if (end <= 64) return end;
	while (i < end && !(d->nodes[i].flags & (DOC_REMOVED | DOC_REPLACED | DOC_DIRTY))) i = d->nodes[i].next;
	return i;
}

// last_removed returns the last of several children in a row that are gone, of which i is
// the first.
static inline uint32_t last_removed(const doc *d, uint32_t container, uint32_t i, uint32_t end) {
	if (i >= 64) return i;
	uint64_t kept = ~(d->removed >> i); // never 0, for no container's child is node 0
	uint32_t last = i + (uint32_t)__builtin_ctzll(kept) - 1;
	if (last >= end) last = end - 1;
	return d->nodes[last].parent == container ? last : i;
}

// children copies the children in the text that are still there, and leaves the
// run where the copying stopped. *last is where the last child ended.
static inline int children(doc *d, uint32_t container, run *r, const char **last, int *kept, doc_buf *out) {
	uint32_t first = container + 1, end = d->nodes[container].next;
	int fault = DOC_OK;
	for (uint32_t i = first, next; i < end && !fault; i = next) {
		const doc_node *n = &d->nodes[i];
		const char *from = *kept || i == first ? *last : start(n);
		next = next_written(d, i, end);
		if (next > i) {
			const doc_node *c = &d->nodes[container];
			*last = before_space(next == end ? c->text + c->len - 1 : before_space(start(&d->nodes[next])) - 1);
			*kept = 1;
			fault = run_extend(r, from, *last, out);
			continue;
		}
		if (n->flags & DOC_REMOVED) {
			if (i == first) r->to = start(n); // the white space after the bracket stays
			n = &d->nodes[last_removed(d, container, i, end)];
			*last = n->text + n->len;
			next = n->next;
			continue;
		}
		*kept = 1;
		*last = n->text + n->len;
		next = n->next;
		fault = run_extend(r, from, n->text, out);
		d->field = i;
		if (!fault) fault = run_flush(r, out);
		if (!fault) fault = value(d, value_of(d, i), out);
		*r = (run){*last, *last};
	}
	return fault;
}

static int added(doc *d, uint32_t object, int *kept, doc_buf *out) {
	int fault = DOC_OK;
	for (uint32_t i = d->nodes[object].first; i && !fault; i = d->nodes[i].next) {
		const doc_node *n = &d->nodes[i];
		if (n->flags & DOC_REMOVED) continue;
		if ((n->flags & (DOC_WHOLE | DOC_REPLACED)) == DOC_WHOLE) {
			const char *from = (*kept)++ ? n->key - 2 : n->key - 1;
			run r = {from, n->text + n->len};
			fault = run_flush(&r, out);
			continue;
		}
		if ((*kept)++) fault = doc_buf_add(out, ",", 1);
		if (!fault) fault = doc_quote(out, d->nodes[i].key, d->nodes[i].key_len);
		if (!fault) fault = doc_buf_add(out, ":", 1);
		d->field = i;
		if (!fault) fault = value(d, value_of(d, i), out);
	}
	return fault;
}

static int splice(doc *d, uint32_t container, doc_buf *out) {
	const doc_node *n = &d->nodes[container];
	const char *end = n->text + n->len, *last = n->text + 1;
	run r = {n->text, last};
	int kept = 0;
	int fault = children(d, container, &r, &last, &kept, out);
	if (!fault && n->first) {
		fault = run_flush(&r, out);
		if (!fault) fault = added(d, container, &kept, out);
	}
	if (!fault) fault = run_extend(&r, kept ? last : end - 1, end, out);
	return fault ? fault : run_flush(&r, out);
}

static int listed(doc *d, const doc_list *list, doc_buf *out) {
	int fault = doc_buf_add(out, "[", 1);
	for (uint32_t i = 0; i < list->len && !fault; i++) {
		if (i) fault = doc_buf_add(out, ",", 1);
		if (!fault) fault = value(d, value_of(d, list->at[i]), out);
	}
	return fault ? fault : doc_buf_add(out, "]", 1);
}

static int value(doc *d, uint32_t node, doc_buf *out) {
	const doc_node *n = &d->nodes[node];
	if (n->flags & DOC_DIRTY && n->kind >= DOC_OBJECT)
		return n->flags & DOC_LISTED ? listed(d, n->u.list, out) : splice(d, node, out);
	if (n->kind == DOC_FOREIGN) return d->encode_foreign(d->context, n->count, out);
	if (n->flags & DOC_BARE) return doc_quote(out, n->text, n->len);
	if (n->flags & DOC_DOUBLE && !n->text) return doc_put_number(out, n->u.num);
	return doc_buf_add(out, n->text, n->len);
}

int doc_encode(doc *d, uint32_t node, doc_buf *out) { return value(d, node, out); }

// The copy is made in a buffer of the document, because encode_foreign may leave.
uint32_t doc_copy(doc *d, uint32_t node, int *fault) {
	d->scratch.len = 0;
	d->scratch.max = d->max - d->held;
	*fault = doc_encode(d, node, &d->scratch);
	return *fault ? 0 : doc_adopt(d, d->scratch.data, d->scratch.len, fault);
}
