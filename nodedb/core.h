/* core.h: what the files of the core share (private).
 *
 * A read looks through three layers, the first that knows a node decides:
 *   the session's own changes over pending, or pending itself outside a transaction;
 *   frozen, what the committer is writing;
 *   base, a read transaction of LMDB.
 * pending holds all that this process has acknowledged and the committer has not taken yet.
 * A layer has entries and kills: a kill hides what the layers below it hold of a node and
 * its descendants. Kills of a layer do not lie within each other.
 *
 * Concurrency. store->lock guards what the comments say. It is never held while LMDB writes
 * or syncs. A session captures references under it and then reads without it. "Lock:" says what a
 * function expects of it: "held" on entry and on return, "dropped while …" in between, "not held";
 * without a note the function may be called either way.
 *
 * The files call each other only downwards, in this order:
 *
 *   check, backup, slices, nodes   whole calls of nodedb.h
 *   store, session                 open and close
 *   release                        the thread that lets go of snapshots
 *   iter, lock, transaction        calls of nodedb.h that keep state in the session
 *   change, access                 how a session changes nodes, and what it sees
 *   undo                           what a rollback puts back
 *   commit, lease                  the thread that writes, and the right to write
 *   shared, locktable, process     what the processes of a folder share
 *   reads, cache, sweep, scan, view, sum, overlay, zwrite, key, number, error
 */
#ifndef NODEDB_CORE_H
#define NODEDB_CORE_H

#include <lmdb.h>
#include <lmdb_extend.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "error.h"
#include "nodedb.h"
#include "overlay.h"
#include "shared.h"

#define NDB_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- view.c: snapshots of LMDB, and the layers over them ---- */

/* The memory map of the file. It stays while a snapshot lives that began with it or with an
 * older one: all of them read through the map that is LMDB's at the time. */
typedef struct ndb_map {
	_Atomic uint32_t refs;
	void *retired; /* to unmap when refs are gone; NULL: LMDB's own */
	size_t size;
	struct ndb_map *newer; /* which it has a reference to */
} ndb_map;

/* A read transaction of LMDB, shared by all sessions that read this state. */
typedef struct {
	_Atomic uint32_t refs;
	MDB_txn *txn;
	size_t number; /* of the commit that it shows */
	ndb_map *map;
	uint64_t nodes, expiring; /* records of the two sub-databases */
} ndb_snapshot;

typedef struct {
	ndb_tree entries, kills;
} ndb_layer;

/* What a reader looks through. Kills of the own layer hide frozen and base. */
typedef struct {
	ndb_snapshot *base; /* NULL: of trees in memory */
	ndb_tree_node *frozen, *frozen_kills;
	ndb_tree_node *own, *own_kills;
	uint64_t now; /* ms since 1970 by which nodes expire: of a transaction; 0: the present */
} ndb_view;

typedef struct ndb_commit_log ndb_commit_log;

struct ndb_store {
	/* Set by ndb_open. */
	ndb_store *next; /* in the list of open stores */
	uint64_t device, inode;
	uint32_t opens;
	char *folder;
	ndb_options options;
	ndb_shared *shared; /* NULL: read only, in a folder that this process may not write */
	MDB_env *env;
	MDB_dbi nodes, expiry, meta;
	int sums;                           /* records have checksums: from format 2 on */
	const volatile size_t *last_commit; /* of any process */
	size_t only_commit; /* what last_commit points to on media that cannot be written */

	_Atomic uint64_t version;    /* moves with every change of pending, frozen or base */
	_Atomic uint32_t superseded; /* how often pending changes were dropped */

	pthread_mutex_t lock;
	/* Guarded by lock: */
	pthread_cond_t work, done; /* for the committer; for those who wait for it */
	pthread_cond_t held;       /* for the releaser, which sleeps while nothing is held */
	ndb_snapshot *base;        /* NULL: released; not while this process has the lease */
	size_t base_released;      /* number of the base that was released; 0: there is a base */
	int sweeps;                /* the last base had nodes that expire */
	int releaser_runs, releaser_sleeps, releaser_stops;
	pthread_t releaser;
	ndb_layer frozen, pending;
	/* of the last change, the last in frozen, the last that is durable */
	uint64_t number, frozen_number, durable;
	uint64_t sync_to;          /* commit at once up to this number */
	uint64_t dirty_since;      /* monotonic ms of the oldest change in pending; 0: empty */
	uint64_t commits, foreign; /* commits of this process; changes of base by others */
	int failure;               /* NDB_E code of the last attempt to commit frozen; 0: none */
	uint64_t attempts;         /* that failed */
	char failure_text[256];
	ndb_session *sessions, *exclusive;
	uint64_t exclusive_since;
	uint32_t transactions; /* open ones: the log below is kept for them */
	/* what was committed in memory since the oldest of them began */
	struct {
		ndb_entry *entry;
		int kill;
	} * log;
	uint64_t log_start, log_end; /* numbers of the first item and behind the last */
	size_t log_cap, log_bytes;
	uint64_t lost_from, lost_to; /* numbers of changes that were dropped: (from, to] */
	int lease;      /* this process has the right to write; pending is empty without it */
	int acquiring;  /* a thread is about to get it */
	int draining;   /* no changes until it was handed over */
	int committing; /* the committer writes */
	uint64_t next_sweep;
	int committer_runs, stop;
	pthread_t committer;

	/* number of the last commit of any process, as the holder of the lease knows it */
	size_t expected;

	pthread_mutex_t map_lock; /* held while LMDB writes, and to map the file again */
	ndb_map *map;             /* guarded by map_lock */
};

/* an LMDB or system error as an NDB_E code, with a message */
int ndb_lmdb_error(int rc, const char *doing);
int ndb_snapshot_open(ndb_store *store, ndb_snapshot **out);
static inline ndb_snapshot *ndb_snapshot_ref(ndb_snapshot *s) {
	if (s) atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}
void ndb_snapshot_unref(ndb_snapshot *s);
/* Something that reads holds a snapshot: the releaser looks when it can let go of it.
 * Lock: held. */
static inline void ndb_store_held(ndb_store *store) {
	if (store->releaser_sleeps) pthread_cond_signal(&store->held);
}
/* Maps the file with at least size bytes; 0: as large as the last commit says. No write
 * transaction of this process is open. */
int ndb_store_remap_locked(ndb_store *store, size_t size); /* an error of LMDB. map_lock: held */
/* Makes base the last commit of any process. Lock: held. */
int ndb_store_refresh(ndb_store *store);

void ndb_layer_init(ndb_layer *l);
void ndb_layer_clear(ndb_layer *l);
/* Makes copy a layer of its own with the content of l. */
void ndb_layer_fork(ndb_layer *l, ndb_layer *copy);
/* Kills a node and what is below it in the layer; below tells whether layers lie under it. */
int ndb_layer_kill(ndb_layer *l, const char *key, size_t len, int below);
static inline uint64_t ndb_layer_bytes(const ndb_layer *l) {
	return l->entries.bytes + l->kills.bytes;
}
static inline int ndb_layer_empty(const ndb_layer *l) { return !l->entries.root && !l->kills.root; }
/* The kill that hides key, or NULL. */
const ndb_entry *ndb_kill_of(const ndb_tree_node *kills, const char *key, size_t len);

/* memcpy for what is short most of the time: the call costs more than the bytes. */
static inline void ndb_copy(char *to, const char *from, size_t len) {
	uint64_t a, b;
	uint32_t c, d;
	if (len > 16) {
		memcpy(to, from, len);
	} else if (len >= 8) {
		memcpy(&a, from, 8), memcpy(&b, from + len - 8, 8);
		memcpy(to, &a, 8), memcpy(to + len - 8, &b, 8);
	} else if (len >= 4) {
		memcpy(&c, from, 4), memcpy(&d, from + len - 4, 4);
		memcpy(to, &c, 4), memcpy(to + len - 4, &d, 4);
	} else {
		for (size_t i = 0; i < len; i++) to[i] = from[i];
	}
}

static inline uint64_t ndb_now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
static inline uint64_t ndb_monotonic_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + 1;
}

/* pthread_cond_timedwait until a time of ndb_monotonic_ms. m: held, dropped while it waits. */
static inline void ndb_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t ms) {
	uint64_t at = ms - 1; /* see ndb_monotonic_ms */
	struct timespec t = {(time_t)(at / 1000), (long)(at % 1000) * 1000000};
	pthread_cond_timedwait(c, m, &t);
}

static inline uint64_t ndb_view_now(const ndb_view *v) { return v->now ? v->now : ndb_now_ms(); }

/* A value as it stands in LMDB. */
#define NDB_STORED_HEADER 17
size_t ndb_stored_size(const ndb_entry *e, int sums);
void ndb_stored_write(const ndb_entry *e, int sums, char *out);
int ndb_stored_is_text(const char *data);
/* For options.verify: NDB_E_CORRUPT if it is not sound. */
int ndb_stored_verify(
    const ndb_store *store, const char *key, size_t key_len, const char *data, size_t len);
/* False if the record is not what its checksum was made of, or has none where records have sums. */
int ndb_stored_is_sound(int sums, const char *key, size_t key_len, const char *data, size_t len);
int ndb_stored_read(const char *data, size_t len, ndb_scalar *out, uint64_t *expiry);
/* True if the record's time to live is over at now; 0: at present. */
int ndb_stored_expired(const char *data, size_t len, uint64_t now);

/* All bits depend on all bytes: the keys of siblings differ in their last bytes only, which are
 * the high ones of the last word. Seeded, so that who chooses the keys does not choose where they
 * collide. Not 0. */
extern uint64_t ndb_hash_seed;
static inline uint64_t ndb_hash(const char *key, size_t len) {
	uint64_t h = ndb_hash_seed ^ len * 0x9E3779B97F4A7C15u, w = 0;
	while (len >= 8) {
		memcpy(&w, key, 8);
		h = (h ^ w) * 0xFF51AFD7ED558CCDu;
		h ^= h >> 32;
		key += 8, len -= 8;
	}
	w = 0;
	if (len) memcpy(&w, key, len);
	h = (h ^ w) * 0xC4CEB9FE1A85EC53u;
	h = (h ^ h >> 32) * 0xC4CEB9FE1A85EC53u;
	return (h ^ h >> 32) | 1;
}

/* Looks key up in the view: NDB_OK or NDB_NONE. *expiry is 0 without a time to live. *entry is
 * where the value was found, NULL: in LMDB, one byte behind the key if the value is short. */
int ndb_view_find(const ndb_store *store, const ndb_view *v, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry, ndb_entry **entry);
int ndb_view_get(const ndb_store *store, const ndb_view *v, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry);
void ndb_view_release(ndb_view *v);

/* ---- sum.c ---- */
uint16_t ndb_record_sum(const char *key, size_t key_len, const char *value, size_t len);
/* the same without the processor's help */
uint16_t ndb_record_sum_by_table(const char *key, size_t key_len, const char *value, size_t len);

/* ---- reads.c: what a transaction has read ---- */
typedef struct {
	char *bytes;
	size_t used, cap;
	struct {
		uint64_t hash;
		uint32_t at, len;
	} * points; /* hash table */
	uint32_t point_count, point_cap;
	struct {
		uint32_t low, low_len, high, high_len;
	} * ranges;
	uint32_t range_count, range_cap;
	int everything; /* more than is worth remembering */
	int any;
} ndb_reads;
void ndb_reads_reset(ndb_reads *r);
void ndb_reads_free(ndb_reads *r);
void ndb_reads_point(ndb_reads *r, const char *key, size_t len);
/* All keys from low to high, both included. */
void ndb_reads_range(
    ndb_reads *r, const char *low, size_t low_len, const char *high, size_t high_len);
/* True if both views give what was read. It compares a bounded number of nodes: if more were
 * read, it returns 0. */
int ndb_reads_same(
    const ndb_reads *r, const ndb_store *store, const ndb_view *before, const ndb_view *now);
/* True if the change of key (a kill: of all below it) concerns what was read. */
int ndb_reads_meet(const ndb_reads *r, const char *key, size_t len, int kill);

/* ---- a session ---- */
typedef struct { /* what a rollback puts back */
	ndb_layer own;
	uint32_t killed;
	uint64_t shed; /* ndb_session_shed at the mark */
} ndb_mark_state;

typedef struct { /* a tree in memory that a rollback puts back */
	int level;
	size_t name_len; /* with the 0 behind it; 0: all trees */
	char name[NDB_NAME_MAX + 2];
	ndb_tree tree; /* as it was */
	uint64_t shed; /* ndb_session_shed then */
} ndb_local_state;

typedef struct { /* a value that was found */
	uint64_t hash, stamp;
	const char *key;
	ndb_entry *entry; /* NULL: in LMDB */
	uint32_t key_len;
	ndb_scalar value;
} ndb_cached;

enum {
	NDB_LEVELS = 128
};

struct ndb_session {
	ndb_store *store; /* NULL: trees in memory only */
	ndb_session *next, *previous;
	uint32_t superseded; /* as the session has last reported */
	int read_only;       /* changes of stored nodes are refused */
	int view_level;      /* of the transaction that only reads, with all inside it; 0: none */
	const volatile uint32_t *stop; /* waits end when it is not 0; NULL: they do not */
	int level;
	int in_transaction;         /* level is not 0; changed with the lock, for the releaser */
	ndb_view view;              /* base; in a transaction frozen, too */
	_Atomic uint64_t version;   /* of the store, when view was taken; changed with the lock */
	size_t number;              /* of view.base; the releaser may have freed that */
	_Atomic uint64_t reads_now; /* see release.c */
	uint64_t reads_seen;        /* by the releaser */
	int releasing;              /* the releaser is about to look at it */
	int clean;                  /* outside a transaction: pending and frozen were empty then */
	ndb_layer own;              /* in a transaction: pending as it was at begin, and the changes */
	ndb_tree_node *begin_entries, *begin_kills; /* roots of own at begin */
	uint64_t begin_bytes, begin_foreign, begin_log, begin_number;
	uint64_t clock;     /* in a transaction: ms since 1970 at its begin; 0 outside */
	int broken;         /* NDB_E code of a change that was only half made: only rollback helps */
	uint32_t conflicts; /* in a row */
	ndb_entry **killed; /* what this transaction has killed, in order */
	uint32_t killed_count, killed_cap;
	uint64_t killed_bytes;
	ndb_mark_state *marks;
	uint32_t mark_count, mark_cap;
	uint32_t level_mark[NDB_LEVELS + 1]; /* of an inner transaction: its first mark */
	ndb_reads reads;
	ndb_tree local; /* trees in memory */
	ndb_local_state *local_states;
	uint32_t local_state_count, local_state_cap;
	/* of trees that local and own were before; see ndb_session_shed */
	uint64_t shed_local, shed_stored;
	/* Bytes that it has given to pending; those that are durable; a mark between: the bytes before
   * it are durable when the change of that number is. */
	uint64_t given, given_durable, given_mark, given_mark_number;
	uint64_t pending_limit; /* of the bytes that wait; 0: only that of the store */
	uint64_t changes;       /* of local and own, and of level */
	ndb_cached *cache;      /* see cache.c */
	uint32_t cache_slots, cache_misses;
	uint64_t stamp;        /* moves when slots of the cache may be wrong */
	ndb_entry *held;       /* the entry that the last result points into */
	char value[512];       /* a copy of the last result, outside transactions */
	uint32_t lock_session; /* its number in the table of locks; 0: it has locked nothing yet */
	ndb_iter *iterators;   /* the open ones */
	uint64_t iterator_bytes;
	char text[NDB_NUMBER_TEXT];
	char key[NDB_KEY_MAX + 16]; /* that the last result points into */
};

/* Counts bytes that left what the session sees, while somebody may hold them: of its trees in
 * memory, or of stored nodes. What a snapshot alone keeps alive is no more than what was shed since
 * it was taken, and no more than what it holds. */
static inline uint64_t ndb_session_shed(const ndb_session *s, int stored) {
	if (!stored) return s->shed_local + s->local.shed;
	return s->shed_stored + s->own.entries.shed + s->own.kills.shed + s->given_durable;
}
/* Bytes of own that the transaction has put there. */
static inline uint64_t ndb_session_own_bytes(const ndb_session *s) {
	uint64_t own = s->level ? ndb_layer_bytes(&s->own) : 0;
	return own > s->begin_bytes ? own - s->begin_bytes : 0;
}

/* ---- access.c ---- */
/* Begins a call: reports once that changes were dropped. Lock: not held. */
int ndb_session_enter(ndb_session *s);
int ndb_no_store(void); /* NDB_E_ARGUMENT: the session has trees in memory only */
static inline int ndb_is_stored(const char *key, size_t len) { return len == 0 || key[0] == '^'; }

/* What the session sees, borrowed for one call. An error needs no end. Lock: not held; it may be
 * taken until the call of ndb_session_view_end with the same state, so do little. */
enum {
	NDB_VIEW_LOCKED = 1, /* the lock is held */
	NDB_VIEW_READING = 2 /* ndb_read_begin was called */
};
int ndb_session_view(ndb_session *s, int stored, ndb_view *out, int *state);
void ndb_session_view_end(ndb_session *s, int state);
/* The same with references of its own, for longer; *version is that of ndb_session_version.
 * Lock: not held. */
int ndb_session_capture(ndb_session *s, int stored, ndb_view *out, uint64_t *version);
/* Moves whenever what the session sees may have changed. */
uint64_t ndb_session_version(const ndb_session *s, int stored);

/* What a change finds: inside a change, a lookup in what it changes. Lock: held outside a
 * transaction. */
int ndb_change_look(ndb_session *s, const char *key, size_t len, ndb_scalar *out, uint64_t *expiry);

/* ---- change.c ---- */
/* Why the session may not change stored nodes, or NDB_OK. */
int ndb_change_allowed(const ndb_session *s);
/* Begin and end of a change. Lock: not held on entry of the first; outside a transaction it is
 * taken, and held until the end. */
int ndb_change_begin(ndb_session *s, const char *key, size_t len);
int ndb_change_put(ndb_session *s, ndb_entry *e); /* takes e */
int ndb_change_kill(ndb_session *s, const char *key, size_t len);
/* Removes the keys of a tree in memory from low (included) to high; all of them, or after an error none. */
int ndb_change_cut(
    ndb_session *s, const char *low, size_t low_len, const char *high, size_t high_len);
int ndb_change_end(ndb_session *s, const char *key, int result); /* returns result */

/* Sets the value where the transaction has set it before, if nobody can see the difference. */
int ndb_change_in_place(ndb_session *s, const char *key, size_t len, const ndb_scalar *value);

/* ---- undo.c ---- */
/* Remembers the trees in memory of a name (with the 0 behind it; name_len 0: of all) for the
 * open transaction, unless it does already. */
int ndb_locals_save(ndb_session *s, const char *name, size_t name_len);
/* Puts back the trees that transactions from the given level on restore, the latest first. */
int ndb_locals_restore(ndb_session *s, int level);
/* After a commit of the given level: its outer transaction restores the trees, or nobody. */
void ndb_locals_keep(ndb_session *s, int level);
/* A mark of the core's own: pushed, undone to, popped by its number, which is mark_count before. */
int ndb_mark_push(ndb_session *s);
void ndb_mark_undo(ndb_session *s, uint32_t mark);
void ndb_mark_pop(ndb_session *s, uint32_t mark);
/* Forgets what the transaction has changed and read. Lock: not held. */
void ndb_changes_drop(ndb_session *s);
/* Lets other transactions go on, if this one runs alone. Lock: held. */
void ndb_exclusive_release(ndb_session *s);
/* Ends the transaction and keeps its changes. Lock: held, if there is a store. */
void ndb_transaction_leave(ndb_session *s);
void ndb_transaction_free(ndb_session *s); /* drops an open transaction. Lock: not held */

/* ---- iter.c ---- */
/* Bytes that only the session's open iterators keep alive, or more. */
uint64_t ndb_iterators_pinned(const ndb_session *s);
/* Tells whether an iterator of the session holds a snapshot; *idle if one was not filled since
 * the last call with idle. Lock: held. */
int ndb_iters_hold(ndb_session *s, int *idle);
/* Lets go of what idle iterators hold: their next fill looks behind their last item. Lock: held;
 * the session does not read. */
void ndb_iters_release(ndb_session *s);

/* ---- release.c ---- */

/* Between them the session reads its snapshot outside a transaction, and the releaser leaves it. */
extern int ndb_read_fences; /* the kernel has no barrier for all threads: make one here */
static inline void ndb_read_begin(ndb_session *s) {
	uint64_t n = atomic_load_explicit(&s->reads_now, memory_order_relaxed);
	atomic_store_explicit(&s->reads_now, n + 1, memory_order_relaxed);
	if (NDB_UNLIKELY(ndb_read_fences)) atomic_thread_fence(memory_order_seq_cst);
	atomic_signal_fence(memory_order_seq_cst);
}
static inline void ndb_read_end(ndb_session *s) {
	uint64_t n = atomic_load_explicit(&s->reads_now, memory_order_relaxed);
	atomic_store_explicit(&s->reads_now, n + ((uint64_t)1 << 16) - 1, memory_order_release);
}
int ndb_releaser_start(ndb_store *store);
void ndb_releaser_stop(ndb_store *store); /* lock: not held */

/* ---- cache.c ---- */
ndb_cached *ndb_cache_find(const ndb_session *s, uint64_t hash, const char *key, size_t len);
/* key is where the bytes stay: in the entry or in LMDB. */
void ndb_cache_put(ndb_session *s, uint64_t hash, const char *key, size_t len,
    const ndb_scalar *value, ndb_entry *entry);
void ndb_cache_drop(ndb_session *s, uint64_t hash, const char *key, size_t len);

/* ---- lease.c ---- */
/* Gets the right to write, and with it a base that shows all that others have committed.
 * Lock: held, dropped while it waits or commits a fence: look at everything again. */
int ndb_lease_acquire(ndb_store *store, const ndb_session *s);
/* The same if nobody has it; 1 if it was got. Lock: held. */
int ndb_lease_try(ndb_store *store);
/* Gives it back, when nothing waits to be committed. Lock: held, dropped while another process
 * takes it. */
void ndb_lease_release(ndb_store *store);
static inline int ndb_lease_lost(const ndb_store *store) {
	return atomic_load_explicit(&store->shared->file->lease.owner, memory_order_relaxed) !=
	       store->shared->me;
}
/* Drops all changes that are not durable: another process may write. Lock: held. */
void ndb_lease_superseded(ndb_store *store);
/* Tells others that this process is alive and will be for ahead_ms. */
void ndb_lease_beat(ndb_store *store, uint64_t ahead_ms);
static inline int ndb_lease_wanted(const ndb_store *store) {
	return atomic_load_explicit(&store->shared->file->lease.requests, memory_order_relaxed) != 0;
}

/* ---- sweep.c ---- */
/* Deletes up to limit expired nodes in an open write transaction; an error of LMDB. */
int ndb_sweep(ndb_store *store, MDB_txn *txn, uint32_t limit);
/* True if the snapshot has a node whose time is over. */
int ndb_sweep_due(ndb_store *store, const ndb_snapshot *s);

/* ---- store.c ---- */
/* NDB_OK if the file has data, NDB_NONE if it is absent or empty, NDB_E_DISK if that cannot be told. */
int ndb_find_file(const char *file);
/* Renames part to file. Fails if file has data. */
int ndb_publish_file(const char *part, const char *file);
/* Syncs the folder and its parent. Another process may have created them and died before it
 * synced. Skips a folder that this process may not read, or whose file system cannot sync it. */
int ndb_sync_names(const char *folder);

/* ---- commit.c ---- */
int ndb_committer_start(ndb_store *store); /* if it does not run. Lock: held */
/* Waits for room and for the right to write, and makes base the last commit of any process, for a
 * change outside a transaction or a commit. Lock: not held; held on return, unless it fails. */
int ndb_store_lock_write(ndb_store *store, ndb_session *s);
/* Ends a change: counts it, wakes the committer. Lock: held. */
void ndb_store_changed(ndb_store *store);
/* Notes a change for open transactions. Lock: held. */
void ndb_store_log(ndb_store *store, ndb_entry *e, int kill);
void ndb_store_trim_log(ndb_store *store); /* lock: held */
/* Waits until all up to number is durable. Lock: not held. */
int ndb_store_flush(ndb_store *store, uint64_t number);
void ndb_committer_stop(ndb_store *store); /* lock: not held */
/* Counts bytes that the session has given to pending. Lock: held. */
void ndb_session_gave(ndb_session *s, uint64_t bytes);
/* Bytes that the session has given to pending and that wait to be durable. Lock: held. */
uint64_t ndb_session_waiting(ndb_session *s);

#endif
