/* scan.h: the nodes of a view in the order of their keys, either way (private).
 *
 * A scan merges the layers: the upper one wins where two know a node, kills and tombstones
 * hide what is below, and what has expired is left out. It jumps over what a kill hides. Its
 * view must stay while it is used; what it returns points into the view.
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
	ndb_tree_cursor own_at, frozen_at;
	ndb_entry *own, *frozen;
	/* The node on which the scan stands; NULL: none. */
	const char *key;
	size_t len;
	const ndb_entry *entry; /* where its value is; NULL: in lmdb_value */
	int error;              /* NDB_E code, after which the scan stands on nothing */
} ndb_scan;

int ndb_scan_open(ndb_scan *c, const ndb_store *store, const ndb_view *view, int reverse);
void ndb_scan_close(ndb_scan *c);
/* Goes on in another view; the scan has to be placed again. */
int ndb_scan_renew(ndb_scan *c, const ndb_view *view);
/* To the first node with a key >= key; in reverse to the last one with a key < key. */
void ndb_scan_seek(ndb_scan *c, const char *key, size_t len);
void ndb_scan_next(ndb_scan *c);
/* To the start of a subtree, or behind the node at position, if there is one. */
void ndb_scan_resume(
    ndb_scan *c, const char *key, size_t len, const char *position, size_t position_len);
/* True if from here to the end of top only LMDB has nodes, all of them visible: the caller may
 * read its leaf pages. */
int ndb_scan_is_plain(const ndb_scan *c, const char *top, size_t top_len);
/* Moves to item `at` of the leaf page that the scan stands on; at == count: to the next page. */
void ndb_scan_leaf(ndb_scan *c, unsigned at, unsigned count);
int ndb_scan_value(const ndb_scan *c, ndb_scalar *out, uint64_t *expiry);

#endif
