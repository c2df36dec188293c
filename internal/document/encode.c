// The splice encoder: it copies unwritten parts of the text in runs.

#include <string.h>

#include "memory.h"
#include "tree.h"

// A run is text to be copied.
typedef struct {
	const char *from, *to;
} run;

static int encode_value(doc *d, uint32_t node, doc_buf *out);

// encode_put is encode_value for a value that was put into a container. Its depth was checked then,
// except for containers outside of the document.
static int encode_put(doc *d, uint32_t node, doc_buf *out) {
	if (d->around && d->depth + doc_tree_height(d, node) > DOC_MAX_DEPTH) return DOC_TOO_DEEP;
	return encode_value(d, node, out);
}

static inline int run_flush(run *r, doc_buf *out) {
	size_t len = (size_t)(r->to - r->from);
	const char *from = r->from;
	r->from = r->to;
	return doc_buf_put(out, from, len);
}

// run_extend appends [from, to) to the run. If the two are not contiguous, it first flushes the
// run.
static inline int run_extend(run *r, const char *from, const char *to, doc_buf *out) {
	if (r->to != from) {
		int error = run_flush(r, out);
		if (error) return error;
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

// next_written returns the first child from i on that was written, or contains something written,
// or `end`.
static inline uint32_t next_written(const doc *d, uint32_t i, uint32_t end) {
	uint64_t bits = i < 64 ? (d->removed | d->changed) >> i : 0;
	if (bits)
		return i + (uint32_t)__builtin_ctzll(bits) < end ? i + (uint32_t)__builtin_ctzll(bits)
		                                                 : end;
	if (end <= 64) return end;
	while (i < end && !(d->nodes[i].flags & (DOC_REMOVED | DOC_REPLACED | DOC_DIRTY)))
		i = d->nodes[i].next;
	return i;
}

// last_removed returns the last in the series of removed children that starts with i.
static inline uint32_t last_removed(const doc *d, uint32_t container, uint32_t i, uint32_t end) {
	if (i >= 64) return i;
	uint64_t kept = ~(d->removed >> i); // never 0, since node 0 is not a child
	uint32_t last = i + (uint32_t)__builtin_ctzll(kept) - 1;
	if (last >= end) last = end - 1;
	return d->nodes[last].parent == container ? last : i;
}

// copy_children copies the children in the text that were not removed. It leaves the run at the end
// of the copied text, and stores the end of the last child in *last.
static inline int copy_children(
    doc *d, uint32_t container, run *r, const char **last, int *kept, doc_buf *out) {
	uint32_t first = container + 1, end = d->nodes[container].next;
	int error = DOC_OK;
	for (uint32_t i = first, next; i < end && !error; i = next) {
		const doc_node *n = &d->nodes[i];
		const char *from = *kept || i == first ? *last : start(n);
		next = next_written(d, i, end);
		if (next > i) {
			const doc_node *c = &d->nodes[container];
			*last = before_space(
			    next == end ? c->text + c->len - 1 : before_space(start(&d->nodes[next])) - 1);
			*kept = 1;
			error = run_extend(r, from, *last, out);
			continue;
		}
		if (n->flags & DOC_REMOVED) {
			if (i == first) r->to = start(n); // keeps the white space after the bracket
			n = &d->nodes[last_removed(d, container, i, end)];
			*last = n->text + n->len;
			next = n->next;
			continue;
		}
		*kept = 1;
		*last = n->text + n->len;
		next = n->next;
		error = run_extend(r, from, n->text, out);
		d->field = i;
		if (!error) error = run_flush(r, out);
		if (!error) error = encode_put(d, value_of(d, i), out);
		*r = (run){*last, *last};
	}
	return error;
}

static int encode_added(doc *d, uint32_t object, int *kept, doc_buf *out) {
	int error = DOC_OK;
	for (uint32_t i = d->nodes[object].first; i && !error; i = d->nodes[i].next) {
		const doc_node *n = &d->nodes[i];
		if (n->flags & DOC_REMOVED) continue;
		if ((n->flags & (DOC_ENCODED | DOC_REPLACED)) == DOC_ENCODED) {
			const char *from = (*kept)++ ? n->key - 2 : n->key - 1;
			run r = {from, n->text + n->len};
			error = run_flush(&r, out);
			continue;
		}
		if ((*kept)++) error = doc_buf_add(out, ",", 1);
		if (!error) error = doc_quote(out, d->nodes[i].key, d->nodes[i].key_len);
		if (!error) error = doc_buf_add(out, ":", 1);
		d->field = i;
		if (!error) error = encode_put(d, value_of(d, i), out);
	}
	return error;
}

static int splice(doc *d, uint32_t container, doc_buf *out) {
	const doc_node *n = &d->nodes[container];
	const char *end = n->text + n->len, *last = n->text + 1;
	run r = {n->text, last};
	int kept = 0;
	int error = copy_children(d, container, &r, &last, &kept, out);
	if (!error && n->first) {
		error = run_flush(&r, out);
		if (!error) error = encode_added(d, container, &kept, out);
	}
	if (!error) error = run_extend(&r, kept ? last : end - 1, end, out);
	return error ? error : run_flush(&r, out);
}

static int encode_list(doc *d, const doc_list *list, doc_buf *out) {
	int error = doc_buf_add(out, "[", 1);
	for (uint32_t i = 0; i < list->len && !error; i++) {
		if (i) error = doc_buf_add(out, ",", 1);
		if (!error) error = encode_put(d, value_of(d, list->at[i]), out);
	}
	return error ? error : doc_buf_add(out, "]", 1);
}

static int encode_container(doc *d, uint32_t node, doc_buf *out) {
	const doc_node *n = &d->nodes[node];
	if (d->depth == DOC_MAX_DEPTH) return DOC_TOO_DEEP;
	d->depth++;
	int error = n->flags & DOC_LISTED ? encode_list(d, n->u.list, out) : splice(d, node, out);
	d->depth--;
	return error;
}

static int encode_value(doc *d, uint32_t node, doc_buf *out) {
	const doc_node *n = &d->nodes[node];
	if (n->flags & DOC_DIRTY && n->kind >= DOC_OBJECT) return encode_container(d, node, out);
	if (n->kind == DOC_EXTERNAL) return d->encode_external(d->context, n->count, out);
	if (n->flags & DOC_UNQUOTED) return doc_quote(out, n->text, n->len);
	if (n->flags & DOC_DOUBLE && !n->text) return doc_put_number(out, n->u.num);
	return doc_buf_add(out, n->text, n->len);
}

// An external value may refer back to its document, which is then encoded inside itself.
int doc_encode(doc *d, uint32_t node, uint32_t depth, doc_buf *out) {
	uint32_t outer = d->depth, around = d->around;
	d->depth = d->around = depth;
	int error = encode_put(d, node, out);
	d->depth = outer;
	d->around = around;
	return error;
}
