#include <stdarg.h>
#include <stdatomic.h>

#include "lmdb.h"

/* mdb.c, as edited by guard.sed, calls these. */
static int guard_spoil(MDB_txn *txn);
static int guard_page(MDB_cursor *cursor, const void *page, size_t number);
static int guard_large(MDB_cursor *cursor, const void *page, size_t size);
static int guard_database(MDB_txn *txn, const MDB_val *record);
static int guard_free_pages(MDB_txn *txn, const MDB_val *record);
struct MDB_meta;
static void guard_sum(struct MDB_meta *meta);
static void guard_sum_next(struct MDB_meta *next, const struct MDB_meta *last);

#include "mdb.c" /* as guard.sed has edited it */

#include "extend.h"

_Static_assert(PAGEHDRSZ == LMDB_PAGE_HEADER, "page header");
_Static_assert(NODESIZE == LMDB_NODE_HEADER, "node header");
_Static_assert(offsetof(MDB_node, mn_flags) == 4 && offsetof(MDB_node, mn_ksize) == 6, "node fields");
_Static_assert(F_BIGDATA == LMDB_NODE_BIG, "node flags");
_Static_assert(sizeof(((MDB_txninfo *)0)->mti_txnid) == sizeof(size_t), "number of a commit");

const volatile size_t *lmdb_last_commit(MDB_env *env) { return env->me_txns ? &env->me_txns->mti_txnid : NULL; }

size_t lmdb_lock_file_size(unsigned readers) { return (readers - 1) * sizeof(MDB_reader) + sizeof(MDB_txninfo); }

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
	/* Other threads read these without a lock; the old map and the new one both work for them. */
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

/* The next page in the same parent, or NULL. */
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
	/* The processor cannot predict the next page: prefetch its pointers, and its first nodes, which
	 * are at its end. */
	const char *next = next_page(cursor);
	if (!next) return;
	for (int i = 0; i < POINTER_LINES; i++) __builtin_prefetch(next + i * LINE);
	for (int i = 1; i <= NODE_LINES; i++) __builtin_prefetch(next + cursor->mc_txn->mt_env->me_psize - i * LINE);
}

void lmdb_leaf_set(MDB_cursor *cursor, unsigned at) { cursor->mc_ki[cursor->mc_top] = (indx_t)at; }

size_t lmdb_page_size(const MDB_cursor *cursor) { return cursor->mc_txn->mt_env->me_psize; }

int lmdb_node_big(MDB_cursor *cursor, const char *node, MDB_val *out) {
	return mdb_node_read(cursor, (MDB_node *)node, out);
}

/* ---- the guard: LMDB trusts its file, so this code checks it ----
 *
 * A page is checked when this process first reads it from the file. Its bit is then set: only a
 * working LMDB changes the page from then on, so it needs no further check. */

enum { GUARD_BYTES = 32 << 20 }; /* size of the bits, for a file of 1 TiB; unused ones take no memory */

typedef struct {
	_Atomic uint64_t *bits;
	_Atomic size_t file_pages; /* the file has at least this many */
} guard;

int lmdb_guard(MDB_env *env) {
	guard *g = calloc(1, sizeof *g);
	if (!g) return ENOMEM;
	g->bits = mmap(NULL, GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (g->bits == MAP_FAILED) g->bits = NULL; /* then every read of a page checks it */
	return mdb_env_set_userctx(env, g);
}

void lmdb_close(MDB_env *env) {
	guard *g = mdb_env_get_userctx(env);
	mdb_env_close(env);
	if (g && g->bits) munmap(g->bits, GUARD_BYTES);
	free(g);
}

/* Marks a write transaction as failed. Read transactions are shared by threads and stay
 * unchanged. */
static int guard_spoil(MDB_txn *txn) {
	if (!F_ISSET(txn->mt_flags, MDB_TXN_RDONLY)) txn->mt_flags |= MDB_TXN_ERROR;
	return MDB_CORRUPTED;
}

static int is_in_file(MDB_env *env, size_t number, size_t pages) {
	guard *g = env->me_userctx;
	if (g && number + pages <= atomic_load_explicit(&g->file_pages, memory_order_relaxed)) return 1;
	struct stat about;
	if (fstat(env->me_fd, &about) != 0) return 0;
	size_t has = (size_t)about.st_size / env->me_psize;
	if (g) atomic_store_explicit(&g->file_pages, has, memory_order_relaxed);
	return number + pages <= has;
}

static int is_database(const MDB_txn *txn, const MDB_db *db) {
	return db->md_flags == 0 && db->md_depth < CURSOR_STACK - 1 &&
		(db->md_root == P_INVALID || (db->md_root >= NUM_METAS && db->md_root < txn->mt_next_pgno));
}

static int guard_database(MDB_txn *txn, const MDB_val *record) {
	MDB_db db;
	if (record->mv_size != sizeof db) return MDB_CORRUPTED;
	memcpy(&db, record->mv_data, sizeof db);
	return is_database(txn, &db) ? 0 : MDB_CORRUPTED;
}

static int guard_large(MDB_cursor *cursor, const void *page, size_t size) {
	const MDB_page *p = page;
	return IS_OVERFLOW(p) && size <= p->mp_pages * (size_t)cursor->mc_txn->mt_env->me_psize - PAGEHDRSZ ? 0 : MDB_CORRUPTED;
}

static int guard_free_pages(MDB_txn *txn, const MDB_val *record) {
	const MDB_ID *list = record->mv_data;
	if (record->mv_size < sizeof *list || list[0] > record->mv_size / sizeof *list - 1) return MDB_CORRUPTED;
	MDB_ID before = txn->mt_next_pgno;
	for (MDB_ID i = 1; i <= list[0]; before = list[i++])
		if (list[i] >= before || list[i] < NUM_METAS) return MDB_CORRUPTED;
	return 0;
}

/* The size of the node at offset `at`, or 0 if it is invalid. */
static size_t node_size(const MDB_cursor *cursor, const MDB_page *p, size_t at, int first) {
	const MDB_txn *txn = cursor->mc_txn;
	const MDB_env *env = txn->mt_env;
	const MDB_node *node = (const MDB_node *)((const char *)p + at);
	if (at & 1 || at + NODESIZE > env->me_psize) return 0;
	size_t size = NODESIZE + node->mn_ksize;
	int is_free = cursor->mc_dbi == FREE_DBI && cursor->mc_db; /* a copy's cursor has no database */
	if (is_free && !(IS_BRANCH(p) && first) && node->mn_ksize != sizeof(size_t)) return 0;
	if (node->mn_ksize == 0 && !(IS_BRANCH(p) && first)) return 0;
	if (IS_LEAF(p)) {
		if (node->mn_flags == F_BIGDATA) size += sizeof(pgno_t);
		else if (node->mn_flags == F_SUBDATA || node->mn_flags == 0) size += NODEDSZ(node);
		else return 0;
		if (node->mn_flags == F_SUBDATA) {
			MDB_val record = {NODEDSZ(node), (char *)NODEDATA(node)};
			if (at + size > env->me_psize || guard_database(cursor->mc_txn, &record)) return 0;
		}
	}
	size = EVEN(size);
	return size > env->me_nodemax || at + size > env->me_psize ? 0 : size;
}

/* True if LMDB could have written the page: its nodes fill it from `upper` to its end, each has one
 * pointer, and none extends beyond the page. */
static int is_sound(const MDB_cursor *cursor, const MDB_page *p, size_t number) {
	const MDB_txn *txn = cursor->mc_txn;
	MDB_env *env = txn->mt_env;
	if (number >= txn->mt_next_pgno || !is_in_file(env, number, 1) || p->mp_pgno != number) return 0;
	if (p->mp_flags == P_OVERFLOW)
		return p->mp_pages > 0 && p->mp_pages <= txn->mt_next_pgno - number && is_in_file(env, number, p->mp_pages);
	size_t lower = p->mp_lower, upper = p->mp_upper, page = env->me_psize;
	if ((p->mp_flags != P_BRANCH && p->mp_flags != P_LEAF) || lower <= PAGEHDRSZ || lower & 1 || upper & 1 || upper < lower || upper > page)
		return 0;
	unsigned nodes = NUMKEYS(p), seen = 0;
	if (IS_BRANCH(p) && nodes < 2 && cursor->mc_dbi != FREE_DBI) return 0;
	uint64_t starts[MAX_PAGESIZE / 2 / 64];
	memset(starts, 0, page / 2 / 8);
	for (unsigned i = 0; i < nodes; i++) {
		size_t at = p->mp_ptrs[i];
		if (at < upper || at >= page || !node_size(cursor, p, at, i == 0)) return 0;
		starts[at / 2 / 64] |= (uint64_t)1 << (at / 2 % 64);
	}
	for (size_t at = upper; at < page; seen++) {
		if (!(starts[at / 2 / 64] >> (at / 2 % 64) & 1)) return 0;
		at += node_size(cursor, p, at, at == p->mp_ptrs[0]);
	}
	return seen == nodes;
}

static int guard_page(MDB_cursor *cursor, const void *page, size_t number) {
	guard *g = cursor->mc_txn->mt_env->me_userctx;
	int has_bit = g && g->bits && number < (size_t)GUARD_BYTES * 8 && cursor->mc_dbi != FREE_DBI; /* few pages */
	if (has_bit && atomic_load_explicit(&g->bits[number / 64], memory_order_relaxed) >> (number % 64) & 1) return 0;
	if (!is_sound(cursor, page, number)) return MDB_CORRUPTED;
	if (has_bit) atomic_fetch_or_explicit(&g->bits[number / 64], (uint64_t)1 << (number % 64), memory_order_relaxed);
	return 0;
}

/* ---- the meta pages ---- */

static int refuse(char *why, size_t room, const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why, room, format, arguments);
	va_end(arguments);
	return MDB_CORRUPTED;
}

static const MDB_meta *meta_of(const MDB_metabuf *buffer) {
	return (const MDB_meta *)METADATA((const MDB_page *)(const void *)buffer);
}

/* Checks the fields that no commit changes. */
static int check_header(const MDB_metabuf *buffer, unsigned number, size_t page, char *why, size_t room) {
	const MDB_page *p = (const MDB_page *)(const void *)buffer;
	const MDB_meta *m = meta_of(buffer);
	if (!F_ISSET(p->mp_flags, P_META) || m->mm_magic != MDB_MAGIC) return refuse(why, room, "page %u is not one of LMDB's meta pages", number);
	if (m->mm_version != MDB_DATA_VERSION) return refuse(why, room, "its LMDB format is %u, not %u", m->mm_version, MDB_DATA_VERSION);
	if (m->mm_psize != page) return refuse(why, room, "meta page %u is damaged", number);
	return 0;
}

/* Checks the fields that the last commit wrote. */
static int check_commit(const MDB_meta *m, unsigned number, size_t page, off_t size, char *why, size_t room) {
	if (m->mm_mapsize >> 47 || m->mm_last_pg >> 40 ||
		(m->mm_dbs[FREE_DBI].md_flags & 0x7F) != MDB_INTEGERKEY || m->mm_dbs[MAIN_DBI].md_flags)
		return refuse(why, room, "meta page %u is damaged", number);
	for (int i = 0; i < CORE_DBS; i++) {
		const MDB_db *db = &m->mm_dbs[i];
		if (db->md_root == P_INVALID) continue;
		if (db->md_depth >= CURSOR_STACK - 1 || db->md_root < NUM_METAS || db->md_root > m->mm_last_pg)
			return refuse(why, room, "meta page %u is damaged", number);
		if (((off_t)db->md_root + 1) * (off_t)page > size)
			return refuse(why, room, "it has %lld bytes, fewer than its last commit needs: it was truncated", (long long)size);
	}
	return 0;
}

/* A meta page has a checksum in a field that LMDB does not use: FNV-1a of what a commit writes there,
 * never 0. */
static uint32_t sum_of(const MDB_meta *meta) {
	MDB_meta copy = *meta;
	copy.mm_dbs[MAIN_DBI].md_pad = 0;
	uint32_t sum = 2166136261u;
	for (size_t i = offsetof(MDB_meta, mm_mapsize); i < sizeof copy; i++)
		sum = (sum ^ ((const unsigned char *)&copy)[i]) * 16777619u;
	return sum ? sum : 1;
}

static uint32_t sum_in(const MDB_meta *meta) { return meta->mm_dbs[MAIN_DBI].md_pad; }

static void guard_sum(MDB_meta *meta) { meta->mm_dbs[MAIN_DBI].md_pad = sum_of(meta); }

/* Versions before checksums write the field as the last commit has it: 0, or a checksum that is wrong
 * for their commit. The commit after such a wrong one has none, so that check_sums can tell. */
static void guard_sum_next(MDB_meta *next, const MDB_meta *last) {
	guard_sum(next);
	if (sum_in(last) && sum_in(last) != sum_of(last)) next->mm_dbs[MAIN_DBI].md_pad = 0;
}

/* Two pages with one checksum, or one without: a version before checksums has written one of them. */
static int check_sums(const MDB_meta *first, const MDB_meta *second, char *why, size_t room) {
	if (!sum_in(first) || !sum_in(second) || sum_in(first) == sum_in(second)) return 0;
	if (sum_in(first) != sum_of(first)) return refuse(why, room, "meta page 0 is damaged");
	if (sum_in(second) != sum_of(second)) return refuse(why, room, "meta page 1 is damaged");
	return 0;
}

/* True if the pages have the numbers of two successive commits, or of none: even commits are in page
 * 0, odd ones in page 1. A damaged number would make LMDB use an older commit. */
static int are_successive(const MDB_meta *even, const MDB_meta *odd) {
	size_t a = even->mm_txnid, b = odd->mm_txnid;
	return (a == 0 && b == 0) || (!(a & 1) && (a < b ? b - a : a - b) == 1);
}

typedef struct {
	MDB_metabuf first, second;
	size_t got, page; /* bytes read of the first; the page size, 0 if it is invalid */
	off_t size; /* of the file */
} meta_pages;

static int read_metas(int fd, meta_pages *m) {
	memset(m, 0, sizeof *m);
	ssize_t got = pread(fd, &m->first, sizeof m->first, 0);
	if (got < 0) return errno;
	m->got = (size_t)got;
	size_t page = meta_of(&m->first)->mm_psize;
	if (page >= 512 && page <= MAX_PAGESIZE && !(page & (page - 1))) m->page = page;
	if (m->page && pread(fd, &m->second, sizeof m->second, (off_t)page) < 0) return errno;
	struct stat about; /* after the reads: another process may extend the file */
	if (fstat(fd, &about) != 0) return errno;
	m->size = about.st_size;
	return 0;
}

/* LMDB uses the page of the last commit. A failed commit leaves the other page as it was; versions
 * before checksums left an arbitrary mix of old and new values there, with the old number. */
static int check_metas(const meta_pages *m, char *why, size_t room) {
	if (m->got != sizeof m->first || (m->page && m->size < 2 * (off_t)m->page))
		return refuse(why, room, "it has only %lld bytes", (long long)m->size);
	if (!m->page) return refuse(why, room, "meta page 0 is damaged");
	const MDB_meta *even = meta_of(&m->first), *odd = meta_of(&m->second);
	int rc = check_header(&m->first, 0, m->page, why, room);
	if (rc == 0) rc = check_header(&m->second, 1, m->page, why, room);
	if (rc == 0) rc = check_sums(even, odd, why, room);
	if (rc) return rc;
	if (!are_successive(even, odd)) return refuse(why, room, "the numbers of its last commits do not match");
	unsigned last = even->mm_txnid < odd->mm_txnid;
	return check_commit(last ? odd : even, last, m->page, m->size, why, room);
}

/* Another process may commit between and during the reads: a fault counts if it stays the same. */
static int check_open_metas(int fd, char *why, size_t room) {
	enum { TRIES = 100 };
	meta_pages before, now;
	int rc = read_metas(fd, &now);
	for (int i = 0; rc == 0 && (rc = check_metas(&now, why, room)) == MDB_CORRUPTED && i < TRIES; i++) {
		before = now;
		usleep(1000);
		if ((rc = read_metas(fd, &now)) == 0 && memcmp(&before, &now, sizeof now) == 0) return MDB_CORRUPTED;
	}
	return rc;
}

int lmdb_check_meta(const char *file, char *why, size_t room) {
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return errno;
	int rc = check_open_metas(fd, why, room);
	close(fd);
	return rc;
}

/* ---- an audit of all pages ---- */

typedef struct {
	MDB_txn *txn;
	MDB_cursor cursor; /* tells is_sound the database of the page */
	uint8_t *used;     /* one byte per page */
	lmdb_fault fault;
	void *user;
	size_t branches, leaves, large, entries;
} audit;

static void tell(audit *a, const char *format, ...) {
	char line[200];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	a->fault(a->user, line);
}

/* Marks pages as used. Returns 0 if one of them is already marked or does not exist. */
static int mark_used(audit *a, size_t number, size_t pages, const char *as) {
	for (size_t i = number; i < number + pages; i++) {
		if (i < NUM_METAS || i >= a->txn->mt_next_pgno) {
			tell(a, "page %zu, %s, does not exist", i, as);
			return 0;
		}
		if (a->used[i]++) {
			a->used[i] = 1;
			tell(a, "page %zu, %s, is used twice", i, as);
			return 0;
		}
	}
	return 1;
}

static void audit_database(audit *a, MDB_dbi dbi, const MDB_db *db, const char *name);

static void audit_record(audit *a, const MDB_node *node, const MDB_val *key, const MDB_db *db) {
	MDB_val data = {NODEDSZ(node), NODEDATA(node)};
	if (F_ISSET(node->mn_flags, F_BIGDATA)) {
		pgno_t number;
		memcpy(&number, NODEDATA(node), sizeof number);
		MDB_page *p = (MDB_page *)(a->txn->mt_env->me_map + number * a->txn->mt_env->me_psize);
		if (number >= a->txn->mt_next_pgno || !is_sound(&a->cursor, p, number) || guard_large(&a->cursor, p, data.mv_size)) {
			tell(a, "page %zu, of a large value, is damaged", (size_t)number);
			return;
		}
		if (!mark_used(a, number, p->mp_pages, "of a large value")) return;
		a->large += p->mp_pages;
		data.mv_data = METADATA(p);
	}
	if (a->cursor.mc_dbi == FREE_DBI) {
		if (guard_free_pages(a->txn, &data)) {
			tell(a, "a list of free pages is damaged");
			return;
		}
		const MDB_ID *list = data.mv_data;
		for (MDB_ID i = 1; i <= list[0]; i++) mark_used(a, list[i], 1, "which is listed as free");
	} else if (F_ISSET(node->mn_flags, F_SUBDATA)) {
		char name[32];
		MDB_db sub;
		snprintf(name, sizeof name, "%.*s", (int)(key->mv_size < 20 ? key->mv_size : 20), (const char *)key->mv_data);
		memcpy(&sub, data.mv_data, sizeof sub);
		if (db != &a->txn->mt_dbs[MAIN_DBI]) tell(a, "the database %s is inside another database", name);
		else audit_database(a, MAIN_DBI, &sub, name);
	}
}

/* Checks a subtree whose keys are in [low, high). */
static void audit_page(audit *a, size_t number, unsigned levels, const MDB_val *low, const MDB_val *high, const MDB_db *db) {
	MDB_env *env = a->txn->mt_env;
	const MDB_page *p = (const MDB_page *)(env->me_map + number * env->me_psize);
	if (!mark_used(a, number, 1, "of a tree")) return;
	if (!is_sound(&a->cursor, p, number) || (levels == 1) != IS_LEAF(p) || IS_OVERFLOW(p)) {
		tell(a, "page %zu is damaged", number);
		return;
	}
	MDB_cmp_func *compare = a->txn->mt_dbxs[a->cursor.mc_dbi].md_cmp;
	unsigned nodes = NUMKEYS(p);
	if (levels == 1) a->leaves++, a->entries += nodes;
	else a->branches++;
	const MDB_val *before = low;
	MDB_val keys[2];
	for (unsigned i = 0; i < nodes; i++) {
		MDB_node *node = NODEPTR(p, i);
		MDB_val *key = &keys[i & 1];
		int first = levels > 1 && i == 0; /* the first key of a branch page counts as the lowest */
		key->mv_size = NODEKSZ(node), key->mv_data = NODEKEY(node);
		/* ndb_check verifies the order within a leaf, since it can name the nodes. */
		if (!first && ((before && compare(key, before) < (before != low)) || (high && compare(key, high) >= 0)))
			tell(a, "key %u of page %zu is out of order", i, number);
		if (levels == 1) {
			audit_record(a, node, key, db);
			continue;
		}
		MDB_val next;
		if (i + 1 < nodes) {
			MDB_node *after = NODEPTR(p, i + 1);
			next.mv_size = NODEKSZ(after), next.mv_data = NODEKEY(after);
		}
		audit_page(a, NODEPGNO(node), levels - 1, first ? low : key, i + 1 < nodes ? &next : high, db);
		if (!first) before = key;
	}
}

static void audit_database(audit *a, MDB_dbi dbi, const MDB_db *db, const char *name) {
	audit outer = *a;
	a->cursor = (MDB_cursor){.mc_txn = a->txn, .mc_dbi = dbi, .mc_db = (MDB_db *)db};
	a->branches = a->leaves = a->large = a->entries = 0;
	if (db->md_root == P_INVALID) {
		if (db->md_entries) tell(a, "the database %s has no pages for its %zu records", name, db->md_entries);
	} else if (db->md_root >= a->txn->mt_next_pgno || db->md_depth == 0) {
		tell(a, "the database %s has no root", name);
	} else {
		audit_page(a, db->md_root, db->md_depth, NULL, NULL, db);
		if (a->entries != db->md_entries) tell(a, "the database %s has %zu records, but counts %zu", name, a->entries, db->md_entries);
		if (a->branches != db->md_branch_pages || a->leaves != db->md_leaf_pages || a->large != db->md_overflow_pages)
			tell(a, "the database %s has %zu pages, but counts %zu", name, a->branches + a->leaves + a->large,
				(size_t)(db->md_branch_pages + db->md_leaf_pages + db->md_overflow_pages));
	}
	a->cursor = outer.cursor;
	a->branches = outer.branches, a->leaves = outer.leaves, a->large = outer.large, a->entries = outer.entries;
}

int lmdb_audit(MDB_txn *txn, lmdb_fault fault, void *user) {
	audit a = {.txn = txn, .fault = fault, .user = user};
	char why[120];
	int rc = check_open_metas(txn->mt_env->me_fd, why, sizeof why);
	if (rc == MDB_CORRUPTED) tell(&a, "%s", why);
	else if (rc) return rc;
	a.used = calloc(1, txn->mt_next_pgno);
	if (!a.used) return ENOMEM;
	audit_database(&a, FREE_DBI, &txn->mt_dbs[FREE_DBI], "of free pages");
	audit_database(&a, MAIN_DBI, &txn->mt_dbs[MAIN_DBI], "of databases");
	size_t lost = 0;
	for (size_t i = NUM_METAS; i < txn->mt_next_pgno; i++) lost += !a.used[i];
	if (lost) tell(&a, "%zu pages are neither used nor listed as free", lost);
	free(a.used);
	return 0;
}

int lmdb_free_pages(MDB_txn *txn, size_t *count) {
	MDB_cursor *c;
	MDB_val key, pages;
	*count = 0;
	int rc = mdb_cursor_open(txn, FREE_DBI, &c);
	if (rc) return rc;
	while ((rc = mdb_cursor_get(c, &key, &pages, MDB_NEXT)) == 0 && (rc = guard_free_pages(txn, &pages)) == 0)
		*count += *(const size_t *)pages.mv_data;
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND ? 0 : rc;
}
