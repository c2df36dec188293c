/* core.h: declarations that the files of the core share (private).
 *
 * A read searches layers from the top down. The first layer that knows the node decides:
 *   own:     inside a transaction, its changes and pending as of begin; in a delta, its changes;
 *   deltas:  in a delta, the frozen deltas of the unit that are not committed, the latest first;
 *   pending: outside a transaction, and in a delta;
 *   frozen:  the changes that the committer is writing;
 *   base:    a read transaction of LMDB.
 * pending holds all acknowledged changes of this process that the committer has not taken yet.
 * A layer has entries and kills. A kill hides a node and its descendants in the layers below.
 * Kills of one layer never overlap.
 *
 * Concurrency. store->lock guards the fields marked below. It is never held while LMDB writes
 * or syncs. A session captures references under the lock and then reads without it. A "Lock:"
 * note says what a function requires: "held" on entry and on return, "dropped while …" in
 * between, or "not held". A function without a note may be called either way.
 *
 * The files call each other only downwards, in this order:
 *
 *   check, backup, slices, nodes, snapshot   complete functions of nodedb.h
 *   store                          opens and closes a folder
 *   unit                           the state of a pipeline: deltas in flight, and their committer
 *   session                        opens and closes sessions
 *   release                        the thread that releases unused snapshots
 *   iter, lock, transaction        functions of nodedb.h that keep state in the session
 *   change, access                 how a session changes nodes, and what it sees
 *   undo                           restores state on rollback
 *   commit, lease                  the committer thread, and the right to write
 *   shared, locktable, process     state shared by the processes of a folder
 *   delta                          the encoding of a layer
 *   reads, cache, sweep, scan, view, filter, index, sum, overlay, zwrite, key, number, error
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

/* A memory map of the file. A snapshot reads through LMDB's current map, so it keeps the map that
 * was current when it was taken, and every newer one. */
typedef struct ndb_map {
	_Atomic uint32_t refs;
	void *retired; /* unmapped with the last reference; NULL: LMDB's current map */
	size_t size;
	struct ndb_map *newer; /* holds a reference to it */
} ndb_map;

/* A read transaction of LMDB. Sessions that read the same state share it. */
typedef struct {
	_Atomic uint32_t refs;
	MDB_txn *txn;
	size_t number; /* of the last commit that it includes */
	ndb_map *map;
	uint64_t nodes, expiring; /* record counts of the two sub-databases */
} ndb_snapshot;

typedef struct ndb_filter ndb_filter;
typedef struct ndb_index ndb_index;
typedef struct {
	ndb_tree entries, kills;
	/* Of the entries; NULL: none. Frozen deltas of a unit have a filter; the unit's pending and
	 * frozen layers have an index. */
	ndb_filter *filter;
	ndb_index *index;
} ndb_layer;

/* The roots of a layer. */
typedef struct {
	ndb_tree_node *entries, *kills;
	ndb_filter *filter;
	ndb_index *index;
} ndb_roots;

enum {
	NDB_DELTAS_MAX = 16,                 /* of a unit in flight */
	NDB_LAYERS_MAX = NDB_DELTAS_MAX + 2, /* with pending and frozen */
};

/* The trees that a reader searches: the layers, from the top down, then base. */
typedef struct {
	ndb_snapshot *base; /* NULL: for trees in memory */
	uint64_t now;       /* ms since 1970 by which nodes expire; 0: the current time */
	uint32_t count;     /* of layers; the rest of the array is undefined */
	ndb_roots layers[NDB_LAYERS_MAX];
} ndb_view;

typedef struct ndb_unit ndb_unit;

struct ndb_store {
	/* Set by ndb_open. */
	ndb_store *next; /* in the list of open stores */
	uint64_t device, inode;
	uint32_t opens;
	char *folder;
	ndb_options options;
	ndb_shared *shared; /* NULL: opened read-only, in a folder that this process cannot write */
	MDB_env *env;
	MDB_dbi nodes, expiry, meta;
	int sums;                           /* records have checksums: from format 2 on */
	int unit_folder;                    /* it has the record of a unit */
	ndb_unit *unit;                     /* NULL: not opened as a unit */
	const volatile size_t *last_commit; /* number of the last commit of any process */
	size_t only_commit;                 /* last_commit points here if the medium is not writable */

	_Atomic uint64_t version;    /* changes with every change of pending, frozen or base */
	_Atomic uint32_t superseded; /* how often pending changes were dropped */
	/* in the state of a pipeline, the time by which its nodes expire; 0: the current time */
	_Atomic uint64_t clock;
	_Atomic uint32_t readers; /* deltas that wait for the lock, to read */

	pthread_mutex_t lock;
	/* Guarded by lock: */
	pthread_cond_t work, done; /* wakes the committer; wakes threads that wait for it */
	pthread_cond_t held;       /* wakes the releaser, which sleeps while no snapshot is held */
	ndb_snapshot *base;        /* NULL: released, which happens only without the lease */
	size_t base_released;      /* number of the released base; 0: base is not NULL */
	int sweeps;                /* the last base had nodes that expire */
	int releaser_runs, releaser_sleeps, releaser_stops;
	pthread_t releaser;
	ndb_layer frozen, pending;
	/* number of the last change, of the last one in frozen, of the last durable one */
	uint64_t number, frozen_number, durable;
	uint64_t sync_to;          /* commit at once up to this number */
	uint64_t dirty_since;      /* monotonic ms of the oldest change in pending; 0: none */
	uint64_t commits, foreign; /* commits by this process; changes of base by others */
	int failure;               /* NDB_E code of the last attempt to commit frozen; 0: none */
	uint64_t attempts;         /* failed attempts */
	char failure_text[256];
	ndb_session *sessions, *exclusive;
	uint64_t exclusive_since;
	uint32_t transactions; /* number of open ones, which the log serves */
	/* changes committed in memory since the oldest of them began */
	struct {
		ndb_entry *entry;
		int kill;
	} * log;
	uint64_t log_start, log_end; /* numbers of the first item and after the last */
	size_t log_cap, log_bytes;
	uint64_t lost_from, lost_to; /* numbers of dropped changes: (from, to] */
	int lease;      /* this process has the right to write; without it pending is empty */
	int acquiring;  /* a thread is acquiring it */
	int draining;   /* changes wait until the lease is handed over */
	int committing; /* the committer is writing */
	int merging;    /* a delta is being merged into pending, with pauses */
	uint64_t moved; /* changes when pending becomes frozen, and with frozen and base */
	uint64_t next_sweep;
	int committer_runs, stop;
	pthread_t committer;

	/* number of the last commit of any process, as known by the lease holder */
	size_t expected;

	pthread_mutex_t map_lock; /* held while LMDB writes or the file is mapped again */
	ndb_map *map;             /* guarded by map_lock */
	ndb_map *
	    replaced; /* of a unit: the oldest map before it that is not unmapped; guarded by map_lock */
};

/* converts an LMDB or system error to an NDB_E code, with a message */
int ndb_lmdb_error(int rc, const char *doing);
int ndb_snapshot_open(ndb_store *store, ndb_snapshot **out);
static inline ndb_snapshot *ndb_snapshot_ref(ndb_snapshot *s) {
	if (s) atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}
void ndb_snapshot_unref(ndb_snapshot *s);
/* Wakes the releaser: a session, iterator or the store now holds a snapshot. Lock: held. */
static inline void ndb_store_held(ndb_store *store) {
	if (store->releaser_sleeps) pthread_cond_signal(&store->held);
}
/* Maps the file again with at least size bytes; 0: with the size in the last commit. This process
 * must not have an open write transaction. Returns an LMDB error code. map_lock: held. */
int ndb_store_remap_locked(ndb_store *store, size_t size);
/* Unmaps the replaced maps that no snapshot uses, or all of them if the store is being closed. Returns
 * whether some are left. map_lock: not held. */
int ndb_store_unmap(ndb_store *store, int closing);
/* Makes base the last commit of any process. Lock: held. */
int ndb_store_refresh(ndb_store *store);

/* ---- filter.c ---- */
void ndb_filter_build(ndb_layer *l); /* of a layer that does not change any more */
int ndb_filter_may_have(const ndb_filter *f, uint64_t hash); /* 0: no key has this ndb_hash */
uint64_t ndb_filter_bytes(const ndb_filter *f);
ndb_filter *ndb_filter_ref(ndb_filter *f); /* NULL is allowed */
void ndb_filter_unref(ndb_filter *f);

/* ---- index.c ---- */
/* Makes room for one more entry, with a key of this hash, in the layer's index, which it creates if
 * necessary. */
int ndb_index_reserve(ndb_layer *l, uint64_t hash);
typedef struct {
	uint64_t hash;    /* ndb_hash of the key */
	ndb_entry *entry; /* NULL: free */
} ndb_index_slot;
/* The slot of a key, or the free one where it belongs. */
ndb_index_slot *ndb_index_find(ndb_index *x, uint64_t hash, const char *key, size_t len);
/* Puts e into the slot of its key. Call ndb_index_reserve before ndb_index_find. */
void ndb_index_fill(ndb_index *x, ndb_index_slot *s, uint64_t hash, ndb_entry *e);
void ndb_index_remove(ndb_index *x, const char *key, size_t len); /* while the entry exists */
/* Request the memory that ndb_index_find will read; the second one after the first has arrived. */
void ndb_index_prefetch(const ndb_index *x, uint64_t hash);
void ndb_index_prefetch_entry(const ndb_index *x, uint64_t hash);
uint64_t ndb_index_bytes(const ndb_index *x);
ndb_index *ndb_index_ref(ndb_index *x); /* NULL is allowed */
void ndb_index_unref(ndb_index *x);

static inline ndb_roots ndb_layer_roots(const ndb_layer *l) {
	return (ndb_roots){l->entries.root, l->kills.root, l->filter, l->index};
}
static inline void ndb_roots_ref(const ndb_roots *r) {
	ndb_root_ref(r->entries);
	ndb_root_ref(r->kills);
	ndb_filter_ref(r->filter);
	ndb_index_ref(r->index);
}
static inline void ndb_roots_unref(const ndb_roots *r) {
	ndb_root_unref(r->entries);
	ndb_root_unref(r->kills);
	ndb_filter_unref(r->filter);
	ndb_index_unref(r->index);
}
/* Adds a layer below the others, unless it is empty. It may only be used while the view is. */
static inline void ndb_view_add(ndb_view *v, ndb_roots layer) {
	if (layer.entries || layer.kills) v->layers[v->count++] = layer;
}
void ndb_layer_init(ndb_layer *l);
void ndb_layer_clear(ndb_layer *l);
/* Makes copy an independent layer with the contents of l. */
void ndb_layer_fork(ndb_layer *l, ndb_layer *copy);
/* Kills a node and its descendants in the layer; below says whether there are layers below it. */
int ndb_layer_kill(ndb_layer *l, const char *key, size_t len, int below);
/* Merges entries, at most NDB_ADOPT_MAX, of a layer that does not change any more. It may be repeated
 * after an error. */
int ndb_layer_adopt(ndb_layer *l, ndb_entry *const *entries, uint32_t count);
enum {
	NDB_ADOPT_MAX = 64
};
static inline uint64_t ndb_layer_bytes(const ndb_layer *l) {
	return l->entries.bytes + l->kills.bytes;
}
static inline int ndb_layer_empty(const ndb_layer *l) { return !l->entries.root && !l->kills.root; }
static inline int ndb_layer_is_shared(const ndb_layer *l) {
	return ndb_root_is_shared(l->entries.root) || ndb_root_is_shared(l->kills.root);
}
/* The kill that hides key, or NULL. */
const ndb_entry *ndb_kill_of(const ndb_tree_node *kills, const char *key, size_t len);

/* memcpy for short strings: a call would cost more than the copy. */
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

/* pthread_cond_timedwait until a time of ndb_monotonic_ms. m: held, dropped during the wait. */
static inline void ndb_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t ms) {
	uint64_t at = ms - 1; /* see ndb_monotonic_ms */
	struct timespec t = {(time_t)(at / 1000), (long)(at % 1000) * 1000000};
	pthread_cond_timedwait(c, m, &t);
}

static inline uint64_t ndb_view_now(const ndb_view *v) { return v->now ? v->now : ndb_now_ms(); }

/* The record of a unit in the meta sub-database; see unit.c. Its presence marks the folder. */
typedef struct {
	uint64_t applied, begun, clock;
	uint64_t mark; /* of the delta with the number applied */
} ndb_unit_record;
/* NDB_NONE: the folder is that of an ordinary store. */
int ndb_unit_read(ndb_store *store, MDB_txn *txn, ndb_unit_record *out);
int ndb_unit_write(ndb_store *store, MDB_txn *txn, ndb_unit_record record); /* an LMDB code */

/* A snapshot that is being loaded into a folder; see snapshot.c. */
typedef struct {
	uint64_t chunks;        /* that are in the file */
	ndb_unit_record record; /* of the unit once all are */
} ndb_unit_loading;
/* NDB_NONE: no snapshot is being loaded. */
int ndb_loading_read(ndb_store *store, MDB_txn *txn, ndb_unit_loading *out);
/* NULL: removes the record. Returns an LMDB code. */
int ndb_loading_write(ndb_store *store, MDB_txn *txn, const ndb_unit_loading *l);

/* The encoding of a value in LMDB. */
size_t ndb_stored_size(const ndb_entry *e, int sums);
void ndb_stored_write(const ndb_entry *e, int sums, char *out);
int ndb_stored_is_text(const char *data);
int ndb_stored_has_sum(const char *data);
/* Copies a value in its stored form, without its checksum; returns its length. */
size_t ndb_stored_without_sum(const char *data, size_t len, char *out);
/* For options.verify: NDB_E_CORRUPT if the checksum does not match. */
int ndb_stored_verify(
    const ndb_store *store, const char *key, size_t key_len, const char *data, size_t len);
/* False if the checksum does not match, or is missing from a record that must have one. */
int ndb_stored_is_sound(int sums, const char *key, size_t key_len, const char *data, size_t len);
int ndb_stored_read(const char *data, size_t len, ndb_scalar *out, uint64_t *expiry);
/* True if the record has expired at time now; 0: at the current time. */
int ndb_stored_expired(const char *data, size_t len, uint64_t now);

/* Every bit of the hash depends on every byte: keys of siblings differ only in their last bytes,
 * which are the high bytes of the last word. A random seed keeps an attacker from choosing keys
 * that collide. Never 0. */
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

/* Looks key up in layers: NDB_OK with the *entry that holds the value; NDB_NONE if a layer hides
 * the node; NDB_MORE if none knows it. hash is that of the key; 0: not computed yet. now is that of
 * a view. *expiry is 0 if the node does not expire. */
int ndb_layers_find(const ndb_roots *layers, uint32_t count, uint64_t now, uint64_t hash,
    const char *key, size_t len, ndb_scalar *out, uint64_t *expiry, ndb_entry **entry);
/* Looks key up in LMDB: NDB_OK or NDB_NONE. The value follows the key after one byte, if both are
 * short. */
int ndb_base_find(const ndb_store *store, const ndb_snapshot *base, uint64_t now, const char *key,
    size_t len, ndb_scalar *out, uint64_t *expiry);
/* Looks key up in the view: NDB_OK or NDB_NONE. *entry is NULL if the value is in LMDB. */
int ndb_view_find(const ndb_store *store, const ndb_view *v, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry, ndb_entry **entry);
int ndb_view_get(const ndb_store *store, const ndb_view *v, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry);
/* Takes references to all that the view refers to, and gives them back. */
void ndb_view_hold(ndb_view *v);
void ndb_view_release(ndb_view *v);

/* ---- sum.c ---- */
uint32_t ndb_crc32c(const char *data, size_t len);
uint16_t ndb_record_sum(const char *key, size_t key_len, const char *value, size_t len);
/* the same without the processor's CRC instruction */
uint16_t ndb_record_sum_by_table(const char *key, size_t key_len, const char *value, size_t len);

/* ---- delta.c ---- */
/* Bytes of the encoded layer. */
size_t ndb_layer_encoded(const ndb_layer *l, uint64_t clock);
/* Encodes a layer and the time of its changes; out has room for its encoded bytes. */
void ndb_layer_encode(const ndb_layer *l, uint64_t clock, char *out);
/* Encodes records of LMDB as the entries of a layer. Zeroed: empty. */
typedef struct {
	char *bytes; /* of malloc */
	size_t used, cap;
	char key[NDB_KEY_MAX]; /* the last one */
	size_t key_len;
	uint64_t count;
} ndb_encoder;
int ndb_encoder_add(ndb_encoder *e, const char *key, size_t key_len, const char *value, size_t len);
/* Makes bytes the encoded layer, of `used` bytes. The caller frees it, also after an error. */
int ndb_encoder_finish(ndb_encoder *e, uint64_t clock);
/* Decodes into an empty layer. NDB_E_CORRUPT: out is left empty. */
int ndb_layer_decode(const char *data, size_t len, ndb_layer *out, uint64_t *clock);

/* ---- reads.c: the nodes that a transaction has read ---- */
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
	int everything; /* too much was read to record: all nodes count as read */
	int any;
} ndb_reads;
void ndb_reads_reset(ndb_reads *r);
void ndb_reads_free(ndb_reads *r);
void ndb_reads_point(ndb_reads *r, const char *key, size_t len);
/* Records all keys from low to high, both included. */
void ndb_reads_range(
    ndb_reads *r, const char *low, size_t low_len, const char *high, size_t high_len);
/* True if both views give the same values for everything read. It compares a limited number of
 * nodes, and returns 0 if more were read. */
int ndb_reads_same(
    const ndb_reads *r, const ndb_store *store, const ndb_view *before, const ndb_view *now);
/* True if a change of key (a kill: of key and all below it) affects a node that was read. */
int ndb_reads_meet(const ndb_reads *r, const char *key, size_t len, int kill);

/* ---- a session ---- */
typedef struct { /* the state that a rollback restores */
	uint32_t undo, killed;
	uint64_t edits;
} ndb_mark_state;

typedef struct {                /* a change of own, for its undo */
	ndb_entry *added, *removed; /* with the same key; NULL: none */
	int kill;                   /* they are kills */
} ndb_undo_record;

typedef struct { /* a tree in memory that a rollback restores */
	int level;
	size_t name_len; /* including the 0 byte; 0: all trees */
	char name[NDB_NAME_MAX + 2];
	ndb_tree tree; /* the saved state */
	uint64_t shed; /* ndb_session_shed at that time */
} ndb_local_state;

typedef struct { /* a value that a lookup found */
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
	uint32_t superseded;           /* store->superseded when last reported to the caller */
	int read_only;                 /* changes of stored nodes fail */
	int view_level;                /* level of the enclosing read-only transaction; 0: none */
	const volatile uint32_t *stop; /* waits end when *stop is not 0; NULL: never */
	int level;
	int in_transaction; /* level is not 0; changed under the lock, for the releaser */
	/* Base; in a transaction also the layers below own, except a unit's pending layer, which follows
	 * the first `above` layers. */
	ndb_view view;
	uint32_t above;
	int delta;                  /* in a transaction: it is the delta of a unit */
	uint64_t unit_moved;        /* of the unit when view was taken */
	_Atomic uint64_t version;   /* store->version when view was taken; changed under the lock */
	size_t number;              /* of view.base, which the releaser may have released */
	_Atomic uint64_t reads_now; /* see release.c */
	uint64_t reads_seen;        /* the releaser's last observation of it */
	int releasing;              /* the releaser is about to check it */
	int clean;                  /* outside a transaction: pending and frozen were empty */
	ndb_layer own;              /* in a transaction: pending as of begin, plus the changes */
	ndb_tree_node *begin_entries, *begin_kills; /* roots of own at begin */
	uint64_t begin_bytes, begin_foreign, begin_log, begin_number;
	uint64_t clock;     /* in a transaction: ms since 1970 at its begin; 0 outside */
	int broken;         /* NDB_E code of a change that failed half way: roll back */
	uint32_t conflicts; /* consecutive */
	ndb_entry **killed; /* keys killed by this transaction, in order */
	uint32_t killed_count, killed_cap;
	uint64_t killed_bytes;
	uint64_t edits;        /* of own by this transaction that are not undone */
	ndb_undo_record *undo; /* the changes of own since the first mark */
	uint32_t undo_count, undo_cap;
	uint64_t undo_bytes; /* of entries that they have removed */
	ndb_mark_state *marks;
	uint32_t mark_count, mark_cap;
	uint32_t level_mark[NDB_LEVELS + 1]; /* first mark of each inner transaction */
	ndb_reads reads;
	ndb_tree local; /* trees in memory */
	ndb_local_state *local_states;
	uint32_t local_state_count, local_state_cap;
	/* shed by trees that local and own have replaced; see ndb_session_shed */
	uint64_t shed_local, shed_stored;
	/* Bytes given to pending; those of them that are durable; and a checkpoint: given_mark bytes
	 * are durable when change given_mark_number is. */
	uint64_t given, given_durable, given_mark, given_mark_number;
	uint64_t pending_limit; /* limit on bytes that are not durable; 0: only the store's limit */
	uint64_t changes;       /* counts changes of local, own and level */
	ndb_cached *cache;      /* see cache.c */
	uint32_t cache_slots, cache_misses;
	uint64_t stamp;        /* changes when cache slots may be outdated */
	ndb_entry *held;       /* the entry that the last result points into */
	char value[512];       /* a copy of the last result, outside transactions */
	uint32_t lock_session; /* its number in the lock table; 0: it has never taken a lock */
	ndb_iter *iterators;   /* the open ones */
	uint64_t iterator_bytes;
	char text[NDB_NUMBER_TEXT];
	char key[NDB_KEY_MAX + 16]; /* the last result may point into it */
};

/* Counts the bytes that left the trees the session sees (its trees in memory, or stored nodes)
 * while a snapshot may still have held them. The memory that only one snapshot keeps alive is
 * bounded both by the bytes shed since it was taken and by its own size. */
static inline uint64_t ndb_session_shed(const ndb_session *s, int stored) {
	if (!stored) return s->shed_local + s->local.shed;
	return s->shed_stored + s->own.entries.shed + s->own.kills.shed + s->given_durable;
}
/* Bytes that the transaction has added to own, and keeps to undo changes. */
static inline uint64_t ndb_session_own_bytes(const ndb_session *s) {
	uint64_t own = s->level ? ndb_layer_bytes(&s->own) : 0;
	return (own > s->begin_bytes ? own - s->begin_bytes : 0) + s->undo_bytes;
}
/* True if reads of stored nodes must be recorded, to find conflicts. */
static inline int ndb_session_records(const ndb_session *s) {
	return s->level && s->store && !s->view_level && !s->delta;
}

/* Takes the lock for a delta's read. A merge of another delta gives it away between its steps. */
static inline void ndb_unit_lock(ndb_store *store) {
	if (pthread_mutex_trylock(&store->lock) == 0) return;
	atomic_fetch_add_explicit(&store->readers, 1, memory_order_relaxed);
	pthread_mutex_lock(&store->lock);
	atomic_fetch_sub_explicit(&store->readers, 1, memory_order_relaxed);
}
/* Waits until no delta is merged in part. Lock: held, dropped while it waits. */
static inline void ndb_unit_settle(ndb_store *store) {
	while (NDB_UNLIKELY(store->merging)) pthread_cond_wait(&store->done, &store->lock);
}

/* ---- access.c ---- */
/* Begins a call. After pending changes were dropped it fails once, to report that. Lock: not
 * held. */
int ndb_session_enter(ndb_session *s);
int ndb_no_store(void); /* NDB_E_ARGUMENT: the session has trees in memory only */
static inline int ndb_is_stored(const char *key, size_t len) { return len == 0 || key[0] == '^'; }

/* The view that the session sees, borrowed for one call. After an error, do not call
 * ndb_session_view_end. Lock: not held on entry; it may be held until ndb_session_view_end with the
 * same state, so keep that short. */
enum {
	NDB_VIEW_LOCKED = 1, /* the lock is held */
	NDB_VIEW_READING = 2 /* ndb_read_begin was called */
};
int ndb_session_view(ndb_session *s, int stored, ndb_view *out, int *state);
void ndb_session_view_end(ndb_session *s, int state);
/* They enclose a call that captures a view and reads it: in a delta the lock is held meanwhile,
 * since pending changes in place. Lock: not held on entry of ndb_session_hold. */
static inline int ndb_session_holds(const ndb_session *s, int stored) { return stored && s->delta; }
static inline void ndb_session_hold(ndb_session *s, int stored) {
	if (NDB_UNLIKELY(ndb_session_holds(s, stored))) ndb_unit_lock(s->store);
}
static inline void ndb_session_unhold(ndb_session *s, int stored) {
	if (NDB_UNLIKELY(ndb_session_holds(s, stored))) pthread_mutex_unlock(&s->store->lock);
}
/* The same with references of its own, for longer use. *version is that of ndb_session_version. The
 * view may be read only between ndb_session_hold and ndb_session_unhold, while the version is
 * unchanged. */
int ndb_session_capture(ndb_session *s, int stored, ndb_view *out, uint64_t *version);
/* Changes whenever the view of the session may have changed. */
uint64_t ndb_session_version(const ndb_session *s, int stored);

/* A lookup inside a change, in the layers that it changes. Lock: held outside a transaction. */
int ndb_change_look(ndb_session *s, const char *key, size_t len, ndb_scalar *out, uint64_t *expiry);

/* ---- change.c ---- */
/* NDB_OK, or an error that says why the session may not change stored nodes. */
int ndb_change_allowed(const ndb_session *s);
/* Begins and ends a change. Lock: not held on entry of ndb_change_begin, which takes it outside a
 * transaction; ndb_change_end releases it. */
int ndb_change_begin(ndb_session *s, const char *key, size_t len);
int ndb_change_put(ndb_session *s, ndb_entry *e); /* takes ownership of e */
int ndb_change_kill(ndb_session *s, const char *key, size_t len);
/* Removes the keys from low (included) to high of a tree in memory; after an error, none. */
int ndb_change_cut(
    ndb_session *s, const char *low, size_t low_len, const char *high, size_t high_len);
int ndb_change_end(ndb_session *s, const char *key, int result); /* returns result */

/* Overwrites a value that this transaction has set, if no snapshot or mark can see the entry. */
int ndb_change_in_place(ndb_session *s, const char *key, size_t len, const ndb_scalar *value);

/* ---- undo.c ---- */
/* Saves the trees in memory with a name (including the 0 byte; name_len 0: all) for the open
 * transaction, unless it has saved them already. */
int ndb_locals_save(ndb_session *s, const char *name, size_t name_len);
/* Restores the trees saved by transactions from the given level on, the latest first. */
int ndb_locals_restore(ndb_session *s, int level);
/* After a commit at the given level: passes its saved trees to the outer transaction, if any. */
void ndb_locals_keep(ndb_session *s, int level);
/* Prepares for up to count more records of changes of own. */
int ndb_undo_reserve(ndb_session *s, uint32_t count);
/* Records a change of own. Takes ownership of removed. Call ndb_undo_reserve before. */
void ndb_undo_add(ndb_session *s, ndb_entry *added, ndb_entry *removed, int kill);
/* Undoes the changes from a record on. After an error, s->broken is set. */
void ndb_undo_to(ndb_session *s, uint32_t count);
/* Marks for internal use. A mark's number is the value of mark_count before the push. */
int ndb_mark_push(ndb_session *s);
void ndb_mark_undo(ndb_session *s, uint32_t mark);
void ndb_mark_pop(ndb_session *s, uint32_t mark);
/* Discards the changes and reads of the transaction. Lock: not held. */
void ndb_changes_drop(ndb_session *s);
/* Lets other transactions continue if this one runs alone. Lock: held. */
void ndb_exclusive_release(ndb_session *s);
/* Ends the transaction and keeps its changes. Lock: held, if there is a store. */
void ndb_transaction_leave(ndb_session *s);
void ndb_transaction_free(ndb_session *s); /* discards an open transaction. Lock: not held */

/* ---- iter.c ---- */
/* An upper bound of the bytes that only the session's open iterators keep alive. */
uint64_t ndb_iterators_pinned(const ndb_session *s);
/* True if an iterator of the session holds a snapshot. Sets *idle if one was not filled since the
 * last call that passed idle. Lock: held. */
int ndb_iters_hold(ndb_session *s, int *idle);
/* Releases what idle iterators hold; their next fill searches again from their last item. Lock:
 * held; the session must not be reading. */
void ndb_iters_release(ndb_session *s);

/* ---- release.c ---- */

/* They enclose a read of the session's snapshot outside a transaction: the releaser waits. */
extern int ndb_read_fences; /* the kernel has no barrier for all threads, so readers need a fence */
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
/* key points to memory that stays valid: in the entry or in LMDB. */
void ndb_cache_put(ndb_session *s, uint64_t hash, const char *key, size_t len,
    const ndb_scalar *value, ndb_entry *entry);
void ndb_cache_drop(ndb_session *s, uint64_t hash, const char *key, size_t len);

/* ---- lease.c ---- */
/* Acquires the right to write, and sets base to the last commit of any process. Lock: held, dropped
 * while it waits or commits a fence: check all state again. */
int ndb_lease_acquire(ndb_store *store, const ndb_session *s);
/* The same if no process has it; returns 1 if it succeeded. Lock: held. */
int ndb_lease_try(ndb_store *store);
/* Gives the lease back; nothing may be pending. Lock: held, dropped to let another process take
 * it. */
void ndb_lease_release(ndb_store *store);
static inline int ndb_lease_lost(const ndb_store *store) {
	return atomic_load_explicit(&store->shared->file->lease.owner, memory_order_relaxed) !=
	       store->shared->me;
}
/* Drops all changes that are not durable, since another process may write. Lock: held. */
void ndb_lease_superseded(ndb_store *store);
/* Renews the lease: tells other processes that this one lives, for ahead_ms from now. */
void ndb_lease_beat(ndb_store *store, uint64_t ahead_ms);
static inline int ndb_lease_wanted(const ndb_store *store) {
	return atomic_load_explicit(&store->shared->file->lease.requests, memory_order_relaxed) != 0;
}

/* ---- sweep.c ---- */
/* Deletes nodes that have expired by time now, up to *limit records of the expiry index, which it
 * counts down, in an open write transaction. Returns an LMDB error code. */
int ndb_sweep(ndb_store *store, MDB_txn *txn, uint64_t now, uint32_t *limit);
/* True if the snapshot has an expired node. */
int ndb_sweep_due(ndb_store *store, const ndb_snapshot *s);

/* ---- unit.c ---- */
static inline void ndb_unit_set_clock(ndb_store *store, uint64_t clock) {
	atomic_store_explicit(&store->clock, clock ? clock : 1, memory_order_relaxed);
}
int ndb_unit_start(ndb_store *store);   /* after its base is opened */
void ndb_unit_retire(ndb_store *store); /* drops its deltas and closes its sessions */
void ndb_unit_free(ndb_store *store);   /* after the committer has stopped */
/* The number and the mark of the last delta that the file may have parts of. Fails if the unit
 * cannot be read. */
int ndb_unit_begun(ndb_store *store, uint64_t *begun, uint64_t *mark);
/* Makes the unit one that only a load can use. Unless a load was found in it, it must be new. */
int ndb_unit_claim_load(ndb_store *store, int found);

/* ---- store.c ---- */
/* NDB_OK if the file has data, NDB_NONE if it is absent or empty, NDB_E_DISK if stat fails. */
int ndb_find_file(const char *file);
/* Renames part to file. Fails if file has data. */
int ndb_publish_file(const char *part, const char *file);
/* Syncs the folder and its parent, since another process may have created them and died before it
 * synced. Skips a folder that this process may not read, or whose file system cannot sync it. */
int ndb_sync_names(const char *folder);

/* ---- commit.c ---- */
/* A place in a layer that is written in several transactions. Zeroed: its start. */
typedef struct {
	ndb_tree_cursor kills, entries;
	const ndb_entry *kill, *entry; /* the next ones */
	int started;
} ndb_layer_place;
/* Writes up to limit changes of a layer, kills first, each in key order. Returns an LMDB error
 * code. The layer is written when at has neither a kill nor an entry. */
int ndb_layer_write(
    ndb_store *store, MDB_txn *txn, const ndb_layer *l, ndb_layer_place *at, uint64_t limit);
int ndb_committer_start(ndb_store *store); /* if it is not running. Lock: held */
/* Prepares a change outside a transaction, or a commit: waits for space and for the right to write,
 * and sets base to the last commit of any process. Lock: not held; held on return, unless it
 * fails. */
int ndb_store_lock_write(ndb_store *store, ndb_session *s);
/* Ends a change: counts it, wakes the committer. Lock: held. */
void ndb_store_changed(ndb_store *store);
/* Logs a change for open transactions. Lock: held. */
void ndb_store_log(ndb_store *store, ndb_entry *e, int kill);
void ndb_store_trim_log(ndb_store *store); /* lock: held */
/* Waits until all changes up to number are durable. Lock: not held. */
int ndb_store_flush(ndb_store *store, uint64_t number);
void ndb_committer_stop(ndb_store *store); /* lock: not held */
/* Counts bytes that the session has added to pending. Lock: held. */
void ndb_session_gave(ndb_session *s, uint64_t bytes);
/* Bytes that the session has added to pending and that are not durable yet. Lock: held. */
uint64_t ndb_session_waiting(ndb_session *s);

#endif
