/* scan.h: iterates over the nodes of a view in key order, in either direction (private).
 *
 * A scan merges the layers: the upper one wins if two know a node, kills and tombstones hide
 * the layers below, and expired nodes are skipped, as are whole subtrees that a kill hides. The
 * view must outlive the scan; returned pointers refer to the view.
 */
#ifndef NODEDB_SCAN_H
#define NODEDB_SCAN_H

#include "core.h"

typedef struct {
	const ndb_store *store;
	const ndb_view *view;
	int reverse;
	MDB_cursor *lmdb;
	MDB_val lmdb_key, lmdb_value; /* the cursor's record; mv_data NULL: none */
	/* The current node; NULL: none. */
	const char *key;
	size_t len;
	const ndb_entry *entry; /* holds its value; NULL: it is in lmdb_value */
	int error;              /* NDB_E code; the scan then has no current node */
	/* Of each layer of the view: its entry, NULL: none, and where that is. */
	uint32_t layer; /* has the current node, if entry is not NULL */
	ndb_entry *at[NDB_LAYERS_MAX];
	ndb_tree_cursor cursor[NDB_LAYERS_MAX];
} ndb_scan;

int ndb_scan_open(ndb_scan *c, const ndb_store *store, const ndb_view *view, int reverse);
void ndb_scan_close(ndb_scan *c);
/* Continues in another view; the scan then needs a seek. */
int ndb_scan_renew(ndb_scan *c, const ndb_view *view);
/* Moves to the first node with a key >= key; in reverse to the last one with a key < key. */
void ndb_scan_seek(ndb_scan *c, const char *key, size_t len);
void ndb_scan_next(ndb_scan *c);
/* Moves to the start of a subtree, or past the node at position if position_len is not 0. */
void ndb_scan_resume(
    ndb_scan *c, const char *key, size_t len, const char *position, size_t position_len);
/* True if from here to the end of top only LMDB has nodes, and all of them are visible. The caller
 * may then read its leaf pages. */
int ndb_scan_is_plain(const ndb_scan *c, const char *top, size_t top_len);
/* Moves to item `at` of the current leaf page; at == count: to the next page. */
void ndb_scan_leaf(ndb_scan *c, unsigned at, unsigned count);
int ndb_scan_value(const ndb_scan *c, ndb_scalar *out, uint64_t *expiry);

#endif
