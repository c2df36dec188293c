/* Extensions of LMDB for the node database: reading leaf pages in place, a map that grows while
 * readers are active, recovery from a failed write of the meta page, and a guard against damaged
 * files.
 *
 * They are compiled in one file with LMDB, so they always match the layout of its structures.
 */
#ifndef LMDB_EXTEND_H
#define LMDB_EXTEND_H

#include <stddef.h>
#include <stdint.h>

#include "lmdb.h"

/* The number of the last commit of any process, in shared memory. NULL if the file is on media that
 * cannot be written. */
const volatile size_t *lmdb_last_commit(MDB_env *env);

/* Size of the file lock.mdb in bytes, for a number of readers. */
size_t lmdb_lock_file_size(unsigned readers);

/* Checks the two meta pages of a file before LMDB opens it, since LMDB trusts them. Returns
 * MDB_CORRUPTED, with a reason, or a system error. */
int lmdb_check_meta(const char *file, char *why, size_t room);

/* Makes LMDB check each page of the file before its first use: a damaged page gives MDB_CORRUPTED.
 * Call it once, before the environment is opened. */
int lmdb_guard(MDB_env *env);
void lmdb_close(MDB_env *env); /* mdb_env_close for an environment with a guard */

/* Checks the meta pages, and all pages that the transaction reaches: each is sound, is used once or free, and has keys
 * that belong at its place in the tree; the counts agree. Calls fault for each violation. */
typedef void (*lmdb_fault)(void *user, const char *line);
int lmdb_audit(MDB_txn *txn, lmdb_fault fault, void *user);

/* Counts the pages listed as free. */
int lmdb_free_pages(MDB_txn *txn, size_t *count);

size_t lmdb_map_size(MDB_env *env);

/* The number of pages in use as of the last commit of any process. */
size_t lmdb_pages(MDB_env *env);

/* Maps the file again with size bytes; 0: with the size in the last commit. The caller must
 * unmap the old map when no transaction that began before uses it any more. No write transaction
 * may be open or begin meanwhile. *old is NULL if nothing changed. */
int lmdb_remap(MDB_env *env, size_t size, void **old, size_t *old_size);

/* After a commit has failed to write its meta page, LMDB refuses all further work. This allows
 * work again. Repeating the commit from the start repairs the file: the failed one overwrote
 * nothing that the valid meta page reaches. */
void lmdb_forgive(MDB_env *env);

/* True if a write transaction has changed something; otherwise its commit has no effect. */
int lmdb_is_changed(MDB_txn *txn);

/* Locks other processes out until the environment is closed: their opens wait. Returns 0 if another
 * process has it open. */
int lmdb_lock_out(MDB_env *env);

/* The current leaf page of a cursor in a read transaction. */
typedef struct {
	const char *page;
	unsigned at, count; /* index of the cursor's item, number of items */
} lmdb_leaf;
void lmdb_leaf_get(MDB_cursor *cursor, lmdb_leaf *out);
/* Moves the cursor to another item of its page. */
void lmdb_leaf_set(MDB_cursor *cursor, unsigned at);

size_t lmdb_page_size(const MDB_cursor *cursor);

/* The layout of a leaf page; extend.c checks that it matches LMDB's. */
enum { LMDB_PAGE_HEADER = 16, LMDB_NODE_HEADER = 8, LMDB_NODE_BIG = 1 };

static inline const char *lmdb_leaf_node(const char *page, unsigned i) {
	return page + ((const uint16_t *)(const void *)(page + LMDB_PAGE_HEADER))[i];
}

static inline const char *lmdb_node_key(const char *node, size_t *len) {
	*len = ((const uint16_t *)(const void *)node)[3];
	return node + LMDB_NODE_HEADER;
}

/* The value of a node; NULL if it has pages of its own (see lmdb_node_big). */
static inline const char *lmdb_node_value(const char *node, size_t *len) {
	const uint16_t *h = (const uint16_t *)(const void *)node;
	if (h[2] & LMDB_NODE_BIG) return NULL;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*len = (size_t)h[0] | (size_t)h[1] << 16;
#else
	*len = (size_t)h[1] | (size_t)h[0] << 16;
#endif
	return node + LMDB_NODE_HEADER + h[3];
}
int lmdb_node_big(MDB_cursor *cursor, const char *node, MDB_val *out);

#endif
