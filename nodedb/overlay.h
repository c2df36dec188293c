/* overlay.h: an in-memory ordered map from keys to values, with constant-time snapshots (private).
 *
 * A tree is a B+tree of reference-counted nodes and entries. A snapshot is one more reference to
 * the root; a later change first copies the nodes on its path. Nodes created since the last
 * snapshot carry the tree's generation, belong to that tree alone, and are changed in place.
 *
 * Concurrency: only one thread at a time may use a tree. Snapshots are immutable; any thread may
 * read and release them.
 */
#ifndef NODEDB_OVERLAY_H
#define NODEDB_OVERLAY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nodedb.h"

/* A node's value as set by a transaction or the process. Type NDB_ABSENT: the node has no value,
 * whatever the layers below hold. */
typedef struct {
	_Atomic uint32_t refs;
	uint32_t value_len, value_cap;
	uint16_t key_len;
	uint8_t type;
	_Atomic uint64_t generation; /* of the tree that may change it in place; see ndb_tree_owns */
	uint64_t expiry;             /* ms since 1970; 0: never */
	double number;               /* NDB_NUMBER */
	char data[];                 /* key, then value */
} ndb_entry;

typedef struct ndb_tree_node ndb_tree_node;

typedef struct {
	ndb_tree_node *root; /* NULL: empty */
	ndb_tree_node *tail; /* the last leaf, if no snapshot shares it; NULL: unknown */
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
/* Memory of an entry, with its slot in a node and malloc's overhead. */
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
/* Returns a reference to the current root; NULL if the tree is empty. */
ndb_tree_node *ndb_tree_snapshot(ndb_tree *t);
/* Makes copy an independent tree with the contents of t. */
void ndb_tree_fork(ndb_tree *t, ndb_tree *copy);
ndb_tree_node *ndb_root_ref(ndb_tree_node *root); /* NULL is allowed */
void ndb_root_unref(ndb_tree_node *root);
int ndb_root_is_shared(const ndb_tree_node *root); /* others hold it too; not if it is NULL */

/* Takes ownership of e, also on failure. Returns NDB_OK or NDB_E_MEMORY. */
int ndb_tree_put(ndb_tree *t, ndb_entry *e);
/* The same; *old receives the replaced entry, or NULL. */
int ndb_tree_replace(ndb_tree *t, ndb_entry *e, ndb_entry **old);
/* ndb_tree_put of an entry that other trees share which will not change any more: once they are gone,
 * the tree may change it in place. */
int ndb_tree_adopt(ndb_tree *t, ndb_entry *e);
/* Gives an entry of the tree the value and expiry of another. Returns 0, and changes nothing, if the
 * tree may not change it in place, or the value is too large for it. */
int ndb_tree_overwrite(ndb_tree *t, ndb_entry *e, const ndb_entry *value);
/* Makes the tree copy its entries before it changes them, as if a snapshot shared them. */
void ndb_tree_seal(ndb_tree *t);
/* Removes the entries from low (included) to high. */
int ndb_tree_cut(ndb_tree *t, const char *low, size_t low_len, const char *high, size_t high_len);
/* True if the tree may change e in place: no snapshot shares it. */
static inline int ndb_tree_owns(const ndb_tree *t, const ndb_entry *e) {
	return atomic_load_explicit(&e->generation, memory_order_relaxed) == t->generation &&
	       atomic_load_explicit(&e->refs, memory_order_acquire) == 1;
}

ndb_entry *ndb_root_find(const ndb_tree_node *root, const char *key, size_t len);

#define NDB_TREE_HEIGHT 16
typedef struct {
	const ndb_tree_node *node[NDB_TREE_HEIGHT]; /* from the root to a leaf */
	int at[NDB_TREE_HEIGHT];
	int depth; /* 0: at no entry */
} ndb_tree_cursor;
/* Each moves the cursor and returns its entry, or NULL. */
/* first >= key */
ndb_entry *ndb_cursor_seek(
    ndb_tree_cursor *c, const ndb_tree_node *root, const char *key, size_t len);
/* last < key */
ndb_entry *ndb_cursor_seek_before(
    ndb_tree_cursor *c, const ndb_tree_node *root, const char *key, size_t len);
ndb_entry *ndb_cursor_first(ndb_tree_cursor *c, const ndb_tree_node *root);
ndb_entry *ndb_cursor_next(ndb_tree_cursor *c);
ndb_entry *ndb_cursor_previous(ndb_tree_cursor *c);

/* Calls visit with each entry of root that base does not share. Subtrees that both share are
 * skipped. Stops at a result other than NDB_OK and returns it. */
int ndb_root_diff(const ndb_tree_node *base, const ndb_tree_node *root,
    int (*visit)(void *user, ndb_entry *e), void *user);

static inline int ndb_key_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
	int c = __builtin_memcmp(a, b, a_len < b_len ? a_len : b_len);
	return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* True if key is top or a descendant of it. A key that continues top with 0xFF is not one: it
 * encodes a decimal whose integer part is top's last subscript. */
static inline int ndb_key_within(const char *key, size_t len, const char *top, size_t top_len) {
	return len >= top_len && __builtin_memcmp(key, top, top_len) == 0 &&
	       (len == top_len || (unsigned char)key[top_len] != 0xFF);
}

/* Writes to end the key, of len + 1 bytes, that follows key and all its descendants. */
static inline void ndb_key_end(char *end, const char *key, size_t len) {
	memcpy(end, key, len);
	end[len] = (char)0xFF;
}

#endif
