#include "mdb.c"

#include "extend.h"

_Static_assert(PAGEHDRSZ == LMDB_PAGE_HEADER, "page header");
_Static_assert(NODESIZE == LMDB_NODE_HEADER, "node header");
_Static_assert(offsetof(MDB_node, mn_flags) == 4 && offsetof(MDB_node, mn_ksize) == 6, "node fields");
_Static_assert(F_BIGDATA == LMDB_NODE_BIG, "node flags");
_Static_assert(sizeof(((MDB_txninfo *)0)->mti_txnid) == sizeof(size_t), "number of a commit");

const volatile size_t *lmdb_last_commit(MDB_env *env) { return &env->me_txns->mti_txnid; }

size_t lmdb_map_size(MDB_env *env) { return env->me_mapsize; }

size_t lmdb_pages(MDB_env *env) { return mdb_env_pick_meta(env)->mm_last_pg + 1; }

int lmdb_remap(MDB_env *env, size_t size, void **old, size_t *old_size) {
	*old = NULL, *old_size = 0;
	if (env->me_txn) return EINVAL;
	MDB_meta *meta = mdb_env_pick_meta(env);
	size_t least = (meta->mm_last_pg + 1) * env->me_psize;
	if (!size) size = meta->mm_mapsize;
	if (size < least) size = least;
	if (size <= env->me_mapsize) return MDB_SUCCESS;
	char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, env->me_fd, 0);
	if (map == MAP_FAILED) return errno;
	*old = env->me_map, *old_size = env->me_mapsize;
	MDB_meta *first = METADATA((MDB_page *)map);
	MDB_meta *second = (MDB_meta *)((char *)first + env->me_psize);
	/* Other threads read through these without a lock; either map serves them. */
	__atomic_store_n(&env->me_map, map, __ATOMIC_RELEASE);
	__atomic_store_n(&env->me_metas[0], first, __ATOMIC_RELEASE);
	__atomic_store_n(&env->me_metas[1], second, __ATOMIC_RELEASE);
	__atomic_store_n(&env->me_mapsize, size, __ATOMIC_RELEASE);
	__atomic_store_n(&env->me_maxpg, size / env->me_psize, __ATOMIC_RELEASE);
	return MDB_SUCCESS;
}

void lmdb_forgive(MDB_env *env) { env->me_flags &= ~MDB_FATAL_ERROR; }

int lmdb_is_changed(MDB_txn *txn) {
	return txn->mt_u.dirty_list[0].mid != 0 || (txn->mt_flags & (MDB_TXN_DIRTY | MDB_TXN_SPILLS)) != 0;
}

int lmdb_lock_out(MDB_env *env) {
	int exclusive = 0;
	return mdb_env_excl_lock(env, &exclusive) == 0 && exclusive == 1;
}

/* The page that follows in the same parent, or NULL. */
static const char *next_page(const MDB_cursor *cursor) {
	if (cursor->mc_top == 0) return NULL;
	const MDB_page *parent = cursor->mc_pg[cursor->mc_top - 1];
	unsigned next = cursor->mc_ki[cursor->mc_top - 1] + 1u;
	if (next >= NUMKEYS(parent)) return NULL;
	const MDB_env *env = cursor->mc_txn->mt_env;
	return env->me_map + NODEPGNO(NODEPTR(parent, next)) * env->me_psize;
}

void lmdb_leaf_get(MDB_cursor *cursor, lmdb_leaf *out) {
	enum { LINE = 64, POINTER_LINES = 3, NODE_LINES = 4 };
	MDB_page *page = cursor->mc_pg[cursor->mc_top];
	out->page = (const char *)page;
	out->at = cursor->mc_ki[cursor->mc_top];
	out->count = NUMKEYS(page);
	/* No hardware foresees which page follows: its pointers, and its first nodes at the end. */
	const char *next = next_page(cursor);
	if (!next) return;
	for (int i = 0; i < POINTER_LINES; i++) __builtin_prefetch(next + i * LINE);
	for (int i = 1; i <= NODE_LINES; i++) __builtin_prefetch(next + cursor->mc_txn->mt_env->me_psize - i * LINE);
}

void lmdb_leaf_set(MDB_cursor *cursor, unsigned at) { cursor->mc_ki[cursor->mc_top] = (indx_t)at; }

int lmdb_node_big(MDB_cursor *cursor, const char *node, MDB_val *out) {
	return mdb_node_read(cursor, (MDB_node *)node, out);
}
