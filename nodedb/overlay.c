//go:build cgo && lmdb

/* overlay.c: the copy-on-write B+tree of overlay.h.
 *
 * A node is removed when it is empty, but small nodes are not merged: trees live only as long as a
 * commit or a session.
 */
#include "overlay.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

enum {
	FAN = 32
};

/* The lower bound of a child. Copies of the parent share it. */
typedef struct {
	_Atomic uint32_t refs;
	uint32_t len;
	char key[];
} separator;

struct ndb_tree_node {
	_Atomic uint32_t refs;
	uint16_t count;
	uint16_t height; /* 0: leaf */
	uint64_t generation;
	union {
		ndb_entry *entry;
		ndb_tree_node *child;
		separator *bound;
		/* leaf: FAN entries; otherwise FAN children, then the lower bounds of all but the first */
	} slot[];
};
typedef ndb_tree_node node;
typedef __typeof__(((node *)0)->slot[0]) slot;

static _Atomic uint64_t generations = 1;
static uint64_t next_generation(void) {
	return atomic_fetch_add_explicit(&generations, 1, memory_order_relaxed);
}

/* ---- entries ---- */

ndb_entry *ndb_entry_new(const char *key, size_t len, const ndb_scalar *value, uint64_t expiry) {
	size_t bytes = value->type == NDB_STRING || value->type == NDB_DIGITS ? value->len : 0;
	ndb_entry *e = malloc(sizeof *e + len + bytes);
	if (!e) return NULL;
	atomic_init(&e->refs, 1);
	e->value_len = e->value_cap = (uint32_t)bytes;
	e->key_len = (uint16_t)len;
	e->type = (uint8_t)value->type;
	atomic_init(&e->generation, 0);
	e->expiry = expiry;
	e->number = value->type == NDB_NUMBER ? value->number : 0;
	memcpy(e->data, key, len);
	if (bytes) memcpy(e->data + len, value->bytes, bytes);
	return e;
}

void ndb_entry_unref(ndb_entry *e) {
	if (e && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1) free(e);
}

static void stamp(ndb_entry *e, uint64_t generation) {
	atomic_store_explicit(&e->generation, generation, memory_order_relaxed);
}

static separator *separator_new(const char *key, size_t len) {
	separator *s = malloc(sizeof *s + len);
	if (!s) return NULL;
	atomic_init(&s->refs, 1);
	s->len = (uint32_t)len;
	memcpy(s->key, key, len);
	return s;
}

static void separator_unref(separator *s) {
	if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) free(s);
}

/* ---- nodes ---- */

static size_t node_size(int height) {
	return offsetof(node, slot) + (height ? 2 : 1) * FAN * sizeof(slot);
}

static node *node_new(const ndb_tree *t, int height) {
	node *n = malloc(node_size(height));
	if (!n) return NULL;
	atomic_init(&n->refs, 1);
	n->count = 0;
	n->height = (uint16_t)height;
	n->generation = t->generation;
	return n;
}

ndb_tree_node *ndb_root_ref(ndb_tree_node *n) {
	if (n) atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
	return n;
}

/* The recursion is as deep as the tree, at most NDB_TREE_HEIGHT. */
void ndb_root_unref(ndb_tree_node *n) {
	if (!n || atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1) return;
	for (int i = 0; i < n->count; i++) {
		if (n->height) {
			ndb_root_unref(n->slot[i].child);
			if (i) separator_unref(n->slot[FAN + i].bound);
		} else {
			ndb_entry_unref(n->slot[i].entry);
		}
	}
	free(n);
}

static int is_shared(const node *n) {
	return atomic_load_explicit(&n->refs, memory_order_relaxed) > 1;
}

int ndb_root_is_shared(const ndb_tree_node *n) {
	return n && atomic_load_explicit(&n->refs, memory_order_acquire) > 1;
}

static void shed_entry(ndb_tree *t, const ndb_entry *e) {
	if (atomic_load_explicit(&e->refs, memory_order_relaxed) > 1) t->shed += ndb_entry_size(e);
}

/* Makes *slot a node that only this tree sees. The parent must already be one. */
static int own_node(ndb_tree *t, node **slot) {
	node *n = *slot;
	if (n->generation == t->generation) return NDB_OK;
	if (atomic_load_explicit(&n->refs, memory_order_acquire) ==
	    1) { /* no snapshot shares it any more */
		n->generation = t->generation;
		return NDB_OK;
	}
	node *copy = node_new(t, n->height);
	if (!copy) return ndb_fail(NDB_E_MEMORY, "out of memory");
	copy->count = n->count;
	for (int i = 0; i < n->count; i++) {
		if (n->height) {
			copy->slot[i].child = ndb_root_ref(n->slot[i].child);
			copy->slot[FAN + i].bound = i ? n->slot[FAN + i].bound : NULL;
			if (i)
				atomic_fetch_add_explicit(&n->slot[FAN + i].bound->refs, 1, memory_order_relaxed);
		} else {
			copy->slot[i].entry = ndb_entry_ref(n->slot[i].entry);
		}
	}
	*slot = copy;
	t->shed += node_size(n->height);
	ndb_root_unref(n);
	return NDB_OK;
}

/* Index of the first entry of a leaf that is >= key; *same says whether it is equal. */
static inline int leaf_search(const node *n, const char *key, size_t len, int *same) {
	int low = 0, high = n->count;
	*same = 0;
	if (high > 0) { /* keys often arrive in order */
		const ndb_entry *last = n->slot[high - 1].entry;
		int c = ndb_key_compare(last->data, last->key_len, key, len);
		if (c < 0) return high;
		if (c == 0) return *same = 1, high - 1;
		high--;
	}
	while (low < high) {
		int middle = (low + high) / 2;
		const ndb_entry *e = n->slot[middle].entry;
		int c = ndb_key_compare(e->data, e->key_len, key, len);
		if (c == 0) return *same = 1, middle;
		if (c < 0) low = middle + 1;
		else high = middle;
	}
	return low;
}

/* Index of the child whose range includes key. */
static inline int child_search(const node *n, const char *key, size_t len) {
	int low = 1, high = n->count;
	if (high > 1) {
		const separator *last = n->slot[FAN + high - 1].bound;
		if (ndb_key_compare(last->key, last->len, key, len) <= 0) return high - 1;
		high--;
	}
	while (low < high) {
		int middle = (low + high) / 2;
		const separator *s = n->slot[FAN + middle].bound;
		if (ndb_key_compare(s->key, s->len, key, len) <= 0) low = middle + 1;
		else high = middle;
	}
	return low - 1;
}

/* ---- trees ---- */

void ndb_tree_init(ndb_tree *t) { *t = (ndb_tree){.generation = next_generation()}; }

void ndb_tree_clear(ndb_tree *t) {
	ndb_root_unref(t->root);
	ndb_tree_init(t);
}

ndb_tree_node *ndb_tree_snapshot(ndb_tree *t) {
	ndb_tree_seal(t);
	return ndb_root_ref(t->root);
}

void ndb_tree_fork(ndb_tree *t, ndb_tree *copy) {
	*copy = *t;
	copy->root = ndb_tree_snapshot(t);
	copy->tail = NULL;
	copy->shed = 0;
	copy->generation = next_generation();
}

/* Splits the full child i of n. The rightmost node of a tree moves only its last item, so that keys
 * arriving in order leave full nodes. */
static int split_child(ndb_tree *t, node *n, int i, int rightmost) {
	node *left = n->slot[i].child;
	t->tail = NULL;
	node *right = node_new(t, left->height);
	int keep = rightmost ? FAN - 1 : FAN / 2;
	separator *bound = NULL;
	if (!right) return ndb_fail(NDB_E_MEMORY, "out of memory");
	if (left->height) {
		bound = left->slot[FAN + keep].bound;
	} else {
		const ndb_entry *before = left->slot[keep - 1].entry, *after = left->slot[keep].entry;
		size_t same = 0,
		       shorter = before->key_len < after->key_len ? before->key_len : after->key_len;
		while (same < shorter && before->data[same] == after->data[same]) same++;
		bound = separator_new(after->data, same + 1);
	}
	if (!bound) {
		free(right);
		return ndb_fail(NDB_E_MEMORY, "out of memory");
	}
	right->count = (uint16_t)(FAN - keep);
	if (left->height) {
		memcpy(right->slot, left->slot + keep, right->count * sizeof(slot));
		memcpy(right->slot + FAN, left->slot + FAN + keep, right->count * sizeof(slot));
		right->slot[FAN + 0].bound = NULL;
	} else {
		memcpy(right->slot, left->slot + keep, right->count * sizeof(slot));
	}
	left->count = (uint16_t)keep;
	int move = n->count - (i + 1);
	memmove(n->slot + i + 2, n->slot + i + 1, (size_t)move * sizeof(slot));
	memmove(n->slot + FAN + i + 2, n->slot + FAN + i + 1, (size_t)move * sizeof(slot));
	n->slot[i + 1].child = right;
	n->slot[FAN + i + 1].bound = bound;
	n->count++;
	return NDB_OK;
}

void ndb_tree_seal(ndb_tree *t) {
	if (!t->root) return;
	t->generation = next_generation();
	t->tail = NULL;
}

/* old may be NULL. */
static inline int put(ndb_tree *t, ndb_entry *e, ndb_entry **old) {
	int error = NDB_OK;
	/* A shared entry belongs to no tree, also once it is not shared any more. */
	if (atomic_load_explicit(&e->refs, memory_order_relaxed) == 1) stamp(e, t->generation);
	else if (atomic_load_explicit(&e->generation, memory_order_relaxed) == t->generation)
		stamp(e, 0);
	node *tail = t->tail; /* keys often arrive in order */
	if (tail && tail->count < FAN) {
		const ndb_entry *last = tail->slot[tail->count - 1].entry;
		if (ndb_key_compare(last->data, last->key_len, e->data, e->key_len) < 0) {
			tail->slot[tail->count++].entry = e;
			t->bytes += ndb_entry_size(e), t->count++, t->expiring += e->expiry != 0;
			return NDB_OK;
		}
	}
	if (!t->root && !(t->root = node_new(t, 0))) {
		error = ndb_fail(NDB_E_MEMORY, "out of memory");
		goto fail;
	}
	if ((error = own_node(t, &t->root)) < 0) goto fail;
	if (t->root->count == FAN) {
		node *root =
		    t->root->height + 2 < NDB_TREE_HEIGHT ? node_new(t, t->root->height + 1) : NULL;
		if (!root) {
			error = ndb_fail(NDB_E_MEMORY, "out of memory");
			goto fail;
		}
		root->count = 1;
		root->slot[0].child = t->root;
		root->slot[FAN + 0].bound = NULL;
		t->root = root;
		if ((error = split_child(t, root, 0, 1)) < 0) goto fail;
	}
	node *n = t->root;
	int rightmost = 1;
	while (n->height) {
		int i = child_search(n, e->data, e->key_len);
		rightmost = rightmost && i == n->count - 1;
		if ((error = own_node(t, &n->slot[i].child)) < 0) goto fail;
		if (n->slot[i].child->count == FAN) {
			if ((error = split_child(t, n, i, rightmost)) < 0) goto fail;
			const separator *s = n->slot[FAN + i + 1].bound;
			if (ndb_key_compare(s->key, s->len, e->data, e->key_len) <= 0) i++;
			else rightmost = 0;
		}
		n = n->slot[i].child;
	}
	if (rightmost) t->tail = n;
	int same, i = leaf_search(n, e->data, e->key_len, &same);
	if (same) {
		ndb_entry *before = n->slot[i].entry;
		t->bytes -= ndb_entry_size(before), t->count--, t->expiring -= before->expiry != 0;
		n->slot[i].entry = e;
		if (old) {
			*old = before;
			t->shed += ndb_entry_size(before);
		} else {
			shed_entry(t, before);
			ndb_entry_unref(before);
		}
	} else {
		memmove(n->slot + i + 1, n->slot + i, (size_t)(n->count - i) * sizeof(slot));
		n->slot[i].entry = e;
		n->count++;
	}
	t->bytes += ndb_entry_size(e), t->count++, t->expiring += e->expiry != 0;
	return NDB_OK;
fail:
	ndb_entry_unref(e);
	return error;
}

int ndb_tree_put(ndb_tree *t, ndb_entry *e) { return put(t, e, NULL); }

int ndb_tree_replace(ndb_tree *t, ndb_entry *e, ndb_entry **old) {
	*old = NULL;
	return put(t, e, old);
}

int ndb_tree_adopt(ndb_tree *t, ndb_entry *e) {
	int error = put(t, e, NULL);
	if (error == NDB_OK) stamp(e, t->generation);
	return error;
}

int ndb_tree_overwrite(ndb_tree *t, ndb_entry *e, const ndb_entry *value) {
	if (!ndb_tree_owns(t, e) || value->value_len > e->value_cap) return 0;
	t->expiring += (value->expiry != 0);
	t->expiring -= (e->expiry != 0);
	e->type = value->type, e->number = value->number, e->expiry = value->expiry;
	e->value_len = value->value_len;
	memcpy(e->data + e->key_len, ndb_entry_value(value), value->value_len);
	return 1;
}

/* Subtracts the entries below n from the tree's totals. shared: a snapshot holds an ancestor of
 * n. */
static void discount(ndb_tree *t, const node *n, int shared) {
	shared = shared || is_shared(n);
	if (shared) t->shed += node_size(n->height);
	for (int i = 0; i < n->count; i++) {
		if (n->height) {
			discount(t, n->slot[i].child, shared);
		} else {
			const ndb_entry *e = n->slot[i].entry;
			t->bytes -= ndb_entry_size(e), t->count--, t->expiring -= e->expiry != 0;
			if (shared) t->shed += ndb_entry_size(e);
			else shed_entry(t, e);
		}
	}
}

typedef struct {
	const char *low, *high; /* NULL: no bound */
	size_t low_len, high_len;
} range;

static int cut_node(ndb_tree *t, node **slot, range r) {
	int error = own_node(t, slot);
	if (error < 0) return error;
	node *n = *slot;
	if (n->height == 0) {
		int same;
		int from = r.low ? leaf_search(n, r.low, r.low_len, &same) : 0;
		int to = r.high ? leaf_search(n, r.high, r.high_len, &same) : n->count;
		for (int i = from; i < to; i++) {
			ndb_entry *e = n->slot[i].entry;
			t->bytes -= ndb_entry_size(e), t->count--, t->expiring -= e->expiry != 0;
			shed_entry(t, e);
			ndb_entry_unref(e);
		}
		if (to > from) {
			memmove(n->slot + from, n->slot + to, (size_t)(n->count - to) * sizeof(slot));
			n->count = (uint16_t)(n->count - (to - from));
		}
	} else {
		int from = r.low ? child_search(n, r.low, r.low_len) : 0;
		int to = r.high ? child_search(n, r.high, r.high_len) : n->count - 1;
		for (int i = from; i <= to; i++) {
			range part = {i == from ? r.low : NULL, i == to ? r.high : NULL, r.low_len, r.high_len};
			if (!part.low && !part.high) {
				discount(t, n->slot[i].child, 0);
				ndb_root_unref(n->slot[i].child);
				n->slot[i].child = NULL;
			} else if ((error = cut_node(t, &n->slot[i].child, part)) < 0) {
				break;
			}
		}
		int kept = 0; /* close the gaps, even after an error */
		for (int i = 0; i < n->count; i++) {
			if (!n->slot[i].child) {
				if (i) separator_unref(n->slot[FAN + i].bound);
				continue;
			}
			if (kept == 0 && i) separator_unref(n->slot[FAN + i].bound);
			n->slot[kept].child = n->slot[i].child;
			n->slot[FAN + kept].bound = kept ? n->slot[FAN + i].bound : NULL;
			kept++;
		}
		n->count = (uint16_t)kept;
	}
	if (n->count == 0) {
		ndb_root_unref(n);
		*slot = NULL;
	}
	return error;
}

int ndb_tree_cut(ndb_tree *t, const char *low, size_t low_len, const char *high, size_t high_len) {
	ndb_tree_cursor c;
	ndb_entry *first = ndb_cursor_seek(&c, t->root, low, low_len);
	if (!first || ndb_key_compare(first->data, first->key_len, high, high_len) >= 0) return NDB_OK;
	t->tail = NULL;
	int error = cut_node(t, &t->root, (range){low, high, low_len, high_len});
	while (t->root && t->root->height && t->root->count == 1) {
		node *above = t->root;
		t->root = ndb_root_ref(above->slot[0].child);
		ndb_root_unref(above);
	}
	return error;
}

/* ---- reading ---- */

ndb_entry *ndb_root_find(const ndb_tree_node *n, const char *key, size_t len) {
	if (!n) return NULL;
	while (n->height) n = n->slot[child_search(n, key, len)].child;
	int same, i = leaf_search(n, key, len, &same);
	return same ? n->slot[i].entry : NULL;
}

static ndb_entry *cursor_entry(const ndb_tree_cursor *c) {
	return c->node[c->depth - 1]->slot[c->at[c->depth - 1]].entry;
}

/* Descends from the node at the given depth along its first or last items. */
static ndb_entry *descend(ndb_tree_cursor *c, const node *n, int depth, int last) {
	for (;;) {
		c->node[depth] = n;
		c->at[depth] = last ? n->count - 1 : 0;
		depth++;
		if (!n->height) break;
		n = n->slot[c->at[depth - 1]].child;
	}
	c->depth = depth;
	return cursor_entry(c);
}

ndb_entry *ndb_cursor_first(ndb_tree_cursor *c, const ndb_tree_node *root) {
	c->depth = 0;
	return root ? descend(c, root, 0, 0) : NULL;
}

ndb_entry *ndb_cursor_next(ndb_tree_cursor *c) {
	for (int d = c->depth - 1; d >= 0; d--) {
		if (c->at[d] + 1 >= c->node[d]->count) continue;
		c->at[d]++;
		if (d == c->depth - 1) return cursor_entry(c);
		return descend(c, c->node[d]->slot[c->at[d]].child, d + 1, 0);
	}
	c->depth = 0;
	return NULL;
}

ndb_entry *ndb_cursor_previous(ndb_tree_cursor *c) {
	for (int d = c->depth - 1; d >= 0; d--) {
		if (c->at[d] == 0) continue;
		c->at[d]--;
		if (d == c->depth - 1) return cursor_entry(c);
		return descend(c, c->node[d]->slot[c->at[d]].child, d + 1, 1);
	}
	c->depth = 0;
	return NULL;
}

/* Moves the cursor to key, or to its place in a leaf, which may be just after the last entry. */
static void locate(ndb_tree_cursor *c, const node *n, const char *key, size_t len) {
	int depth = 0, same;
	for (; n->height; n = n->slot[c->at[depth - 1]].child) {
		c->node[depth] = n;
		c->at[depth++] = child_search(n, key, len);
	}
	c->node[depth] = n;
	c->at[depth++] = leaf_search(n, key, len, &same);
	c->depth = depth;
}

ndb_entry *ndb_cursor_seek(
    ndb_tree_cursor *c, const ndb_tree_node *root, const char *key, size_t len) {
	c->depth = 0;
	if (!root) return NULL;
	locate(c, root, key, len);
	if (c->at[c->depth - 1] < c->node[c->depth - 1]->count) return cursor_entry(c);
	c->at[c->depth - 1]--;
	return ndb_cursor_next(c);
}

ndb_entry *ndb_cursor_seek_before(
    ndb_tree_cursor *c, const ndb_tree_node *root, const char *key, size_t len) {
	c->depth = 0;
	if (!root) return NULL;
	locate(c, root, key, len);
	return ndb_cursor_previous(c);
}

/* Moves the cursor past the subtree of the node at depth d without visiting it. */
static ndb_entry *skip_node(ndb_tree_cursor *c, int d) {
	for (; d > 0; d--) {
		const node *above = c->node[d - 1];
		if (c->at[d - 1] + 1 < above->count) {
			c->at[d - 1]++;
			return descend(c, above->slot[c->at[d - 1]].child, d, 0);
		}
	}
	c->depth = 0;
	return NULL;
}

/* Skips a node that both trees share when both cursors enter it at its first item. One tree was
 * made from the other, so a shared node has the same keys at the same place in both orders. */
int ndb_root_diff(const ndb_tree_node *base, const ndb_tree_node *root,
    int (*visit)(void *user, ndb_entry *e), void *user) {
	ndb_tree_cursor a, b;
	ndb_entry *x = ndb_cursor_first(&a, base), *y = ndb_cursor_first(&b, root);
	while (y) {
		int order = x ? ndb_key_compare(x->data, x->key_len, y->data, y->key_len) : 1;
		if (order < 0) {
			x = ndb_cursor_next(&a);
			continue;
		}
		if (order == 0) {
			/* At equal keys, look for the highest shared node that starts at both cursors. */
			int found = 0;
			for (int up = NDB_TREE_HEIGHT; up >= 1 && !found; up--) {
				int d = b.depth - up, e = a.depth - up;
				if (d < 0 || e < 0 || a.node[e] != b.node[d]) continue;
				int start = 1;
				for (int i = d; i < b.depth && start; i++) start = b.at[i] == 0;
				for (int i = e; i < a.depth && start; i++) start = a.at[i] == 0;
				if (!start) continue;
				x = skip_node(&a, e), y = skip_node(&b, d);
				found = 1;
			}
			if (found) continue;
			if (x != y) {
				int result = visit(user, y);
				if (result != NDB_OK) return result;
			}
			x = ndb_cursor_next(&a), y = ndb_cursor_next(&b);
			continue;
		}
		int result = visit(user, y);
		if (result != NDB_OK) return result;
		y = ndb_cursor_next(&b);
	}
	return NDB_OK;
}
