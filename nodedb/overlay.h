/* overlay.h: an ordered map in memory from keys to values, with snapshots in no time (private).
 *
 * A tree is a B+tree whose nodes and entries are counted references. A snapshot is one more
 * reference to the root; what a later change would touch is copied first, along one path.
 * What a tree has created since its last snapshot carries the tree's generation, belongs to
 * it alone, and is changed in place.
 *
 * Concurrency: a tree has one user at a time. Snapshots are immutable; any thread may read
 * and release them.
 */
#ifndef NODEDB_OVERLAY_H
#define NODEDB_OVERLAY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nodedb.h"

/* A node's value as a transaction or the process has set it. Type NDB_ABSENT says that the
 * node has no value, whatever is below. */
typedef struct {
	_Atomic uint32_t refs;
	uint32_t value_len, value_cap;
	uint16_t key_len;
	uint8_t type;
	uint64_t generation;
	uint64_t expiry; /* ms since 1970; 0: never */
	double number;   /* NDB_NUMBER */
	char data[];     /* key, then value */
} ndb_entry;

typedef struct ndb_tree_node ndb_tree_node;

typedef struct {
	ndb_tree_node *root; /* NULL: empty */
	ndb_tree_node *tail; /* the last leaf, if only this tree sees it; NULL: unknown */
	uint64_t generation;
	uint64_t bytes, count, expiring; /* of the entries */
	uint64_t
	    shed; /* bytes that left the tree while a snapshot held them, since the tree was made */
} ndb_tree;

ndb_entry *ndb_entry_new(const char *key, size_t len, const ndb_scalar *value, uint64_t expiry);
void ndb_entry_unref(ndb_entry *e);
static inline ndb_entry *ndb_entry_ref(ndb_entry *e) {
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	return e;
}
/* Memory of an entry, with its place in a node and what malloc adds. */
static inline size_t ndb_entry_size(const ndb_entry *e) {
	return sizeof *e + e->key_len + e->value_cap + 32;
}
static inline const char *ndb_entry_value(const ndb_entry *e) { return e->data + e->key_len; }
static inline void ndb_entry_scalar(const ndb_entry *e, ndb_scalar *out) {
	out->type = e->type, out->number = e->number, out->bytes = e->data + e->key_len,
	out->len = e->value_len;
}

void ndb_tree_init(ndb_tree *t);
void ndb_tree_clear(ndb_tree *t);
/* A reference to the root as it is now; NULL if the tree is empty. */
ndb_tree_node *ndb_tree_snapshot(ndb_tree *t);
/* Makes copy a tree of its own with the content of t. */
void ndb_tree_fork(ndb_tree *t, ndb_tree *copy);
ndb_tree_node *ndb_root_ref(ndb_tree_node *root); /* NULL is allowed */
void ndb_root_unref(ndb_tree_node *root);

/* Takes e, whatever it returns: NDB_OK, or NDB_E_MEMORY. */
int ndb_tree_put(ndb_tree *t, ndb_entry *e);
/* Removes the entries from low (included) to high. */
int ndb_tree_cut(ndb_tree *t, const char *low, size_t low_len, const char *high, size_t high_len);
/* True if the tree may change e in place: nobody else sees it. */
static inline int ndb_tree_owns(const ndb_tree *t, const ndb_entry *e) {
	return e->generation == t->generation &&
	       atomic_load_explicit(&e->refs, memory_order_relaxed) == 1;
}

ndb_entry *ndb_root_find(const ndb_tree_node *root, const char *key, size_t len);

#define NDB_TREE_HEIGHT 16
typedef struct {
	const ndb_tree_node *node[NDB_TREE_HEIGHT]; /* from the root to a leaf */
	int at[NDB_TREE_HEIGHT];
	int depth; /* 0: at no entry */
} ndb_tree_cursor;
/* Each returns the entry on which the cursor then stands, or NULL. */
/* first >= key */
ndb_entry *ndb_cursor_seek(
    ndb_tree_cursor *c, const ndb_tree_node *root, const char *key, size_t len);
/* last < key */
ndb_entry *ndb_cursor_seek_before(
    ndb_tree_cursor *c, const ndb_tree_node *root, const char *key, size_t len);
ndb_entry *ndb_cursor_first(ndb_tree_cursor *c, const ndb_tree_node *root);
ndb_entry *ndb_cursor_next(ndb_tree_cursor *c);
ndb_entry *ndb_cursor_previous(ndb_tree_cursor *c);

/* Calls visit with each entry of root that is not, as the same entry, in base. What both
 * share is not walked. Stops at a result other than NDB_OK and returns it. */
int ndb_root_diff(const ndb_tree_node *base, const ndb_tree_node *root,
    int (*visit)(void *user, ndb_entry *e), void *user);

static inline int ndb_key_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
	int c = __builtin_memcmp(a, b, a_len < b_len ? a_len : b_len);
	return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* True if key is that of the node top or of one below it. What begins with the bytes of top
 * and 0xFF is a decimal that begins with the integer top. */
static inline int ndb_key_within(const char *key, size_t len, const char *top, size_t top_len) {
	return len >= top_len && __builtin_memcmp(key, top, top_len) == 0 &&
	       (len == top_len || (unsigned char)key[top_len] != 0xFF);
}

/* Writes the place behind all keys within key, of len + 1 bytes, to end. */
static inline void ndb_key_end(char *end, const char *key, size_t len) {
	memcpy(end, key, len);
	end[len] = (char)0xFF;
}

#endif
