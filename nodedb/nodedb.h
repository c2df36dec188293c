/* nodedb: a hierarchical, transactional, embedded database.
 *
 * A node has a name, up to 31 subscripts, an optional value, and optional children. Nodes are
 * ordered as M orders them: "" first, then numbers by value, then strings by bytes. Names
 * that begin with ^ are stored in LMDB and shared by all processes that open the folder;
 * other names are trees in the memory of one session.
 *
 * This is the C core. The Go package in this folder and the Lua modules in lua/ use it.
 *
 * Concurrency. Many threads may use one store. Only one thread at a time may use a session and
 * the objects it returns. Sessions of one store run in parallel.
 *
 * Memory. A function reads its keys and scalars only during the call. A returned ndb_scalar
 * points into the store and stays valid until the next call on the same session (for an
 * iterator: until its next fill).
 *
 * Errors. A function returns NDB_OK, a result > 0 where its comment says so, or an NDB_E code
 * < 0. After an error ndb_message() returns a sentence that describes it. No function calls
 * back (except ndb_check), longjmps or exits.
 */
#ifndef NODEDB_H
#define NODEDB_H

#include <stddef.h>
#include <stdint.h>

typedef struct ndb_store ndb_store; /* an open folder */
/* one user of a store: a transaction, locks, trees in memory */
typedef struct ndb_session ndb_session;
typedef struct ndb_iter ndb_iter; /* an iteration over siblings, descendants or a range */

enum {
	NDB_OK = 0,
	NDB_MORE = 1,        /* a function that works in slices is not finished: call it again */
	NDB_NONE = 2,        /* no such node, no next node, or condition not met */
	NDB_E_ARGUMENT = -1, /* a bad name, too many subscripts, an invalid number */
	NDB_E_KEY = -2,      /* the path is longer than NDB_KEY_MAX bytes */
	NDB_E_VALUE = -3,    /* the value is longer than NDB_VALUE_MAX bytes */
	NDB_E_FULL = -4,     /* the transaction is larger than options.transaction_bytes */
	NDB_E_CONFLICT = -5, /* another transaction changed nodes that this one read: run it again */
	NDB_E_TIMEOUT = -6,  /* a lock was not free in time */
	NDB_E_LEVEL = -7,    /* no transaction is open, or an inner one still is */
	/* The disk is full, or a write or sync failed. A failed change or commit has no effect. For
	 * ndb_wait and ndb_sync see their comments. */
	NDB_E_DISK = -8,
	NDB_E_CORRUPT = -9, /* the folder's data is damaged */
	NDB_E_MEMORY = -10,
	/* this process was suspended for so long that another took over the right to write */
	NDB_E_SUPERSEDED = -11,
	NDB_E_MERGE = -12,  /* source and target of a merge overlap */
	NDB_E_NUMBER = -13, /* the result is out of the range of numbers */
	NDB_E_LOCKS = -14,  /* the lock table is full */
	NDB_E_IN_USE = -15, /* the folder of a unit is open already */
	/* a unit cannot be read before the deltas that were being written are applied again */
	NDB_E_INCOMPLETE = -16,
	NDB_E_NEWER = -17 /* a later version has written the folder, or the delta */
};

#define NDB_SUBSCRIPTS_MAX 31
#define NDB_NAME_MAX 31  /* bytes, without the ^ */
#define NDB_KEY_MAX 1900 /* bytes of an encoded path */
#define NDB_VALUE_MAX (64u << 20)
#define NDB_BATCH 256 /* items of one fill of an iterator */

/* A subscript or a value. NUMBER is an integer up to 2^53, or a decimal that is the shortest
 * spelling of its double. DIGITS is any other canonical number, as text: at most 18 significant
 * digits, from 1E-43 to below 1E47. A longer number, or one out of that range, is a STRING. A
 * double passed in means its exact value if it is an integer below 10^18, and otherwise its
 * shortest spelling. A double too large or too small for a number becomes the STRING of its
 * digits. */
enum {
	NDB_ABSENT,
	NDB_NUMBER,
	NDB_DIGITS,
	NDB_STRING,
	NDB_FALSE,
	NDB_TRUE
};
typedef struct {
	double number;
	const char *bytes;
	uint32_t len;
	uint32_t type;
} ndb_scalar;

/* ---- errors (error.c) ---- */
const char *ndb_format(void);        /* of new folders: "perigee nodedb 2" */
const char *ndb_message(void);       /* describes this thread's last error */
const char *ndb_code_name(int code); /* "NDB_E_TIMEOUT" */

/* ---- keys (key.c): one path as one string, ordered by memcmp ---- */

/* A key is the name, a 0 byte, and the encoded subscripts. The descendants of a node are
 * the keys between its own key and that key followed by 0xFF. Appends return the new length, or
 * an NDB_E code. cap is the capacity of key; NDB_KEY_MAX is enough for every valid path. */
int ndb_key_name(char *key, size_t cap, const char *name, size_t len);
int ndb_key_append(char *key, size_t len, size_t cap, const ndb_scalar *subscript);
/* A string that spells a canonical number is that number: 3, 3.0 and "3" are one subscript;
 * "3.0" and "03" are strings. FALSE, TRUE and ABSENT are not valid subscripts. */

/* Decodes the subscript at *at (0: the name) and moves *at past it; NDB_NONE at the end.
 * text receives the bytes of a string and must hold NDB_KEY_MAX bytes. Malformed keys give
 * NDB_E_CORRUPT. */
int ndb_key_decode(const char *key, size_t len, size_t *at, ndb_scalar *out, char *text);
int ndb_key_depth(const char *key, size_t len);  /* number of subscripts, or NDB_E_CORRUPT */
int ndb_key_parent(const char *key, size_t len); /* length of the parent's key; 0 for a name */
/* Length of the encoded subscript at offset at, or NDB_E_CORRUPT. */
int ndb_key_subscript_len(const char *key, size_t len, size_t at);

/* ---- numbers (number.c): M's rules in exact decimal, 18 significant digits ---- */

/* Writes the scalar as canonical text (".5", "-1.5"; 1E46 is written out in digits). Returns the
 * length, or an NDB_E code. As in M, other bytes count as their longest numeric prefix. */
#define NDB_NUMBER_TEXT 400
int ndb_number_text(const ndb_scalar *value, char *text);
/* sum = value + by; text receives its digits, sum is NUMBER or DIGITS. */
int ndb_number_add(const ndb_scalar *value, const ndb_scalar *by, ndb_scalar *sum, char *text);
/* 1 if the bytes spell a canonical number, which *out then holds. */
int ndb_number_canonical(const char *bytes, size_t len, ndb_scalar *out);

/* ---- text (zwrite.c): M's ZWRITE format, which dumps use ---- */
/* Each returns the length. If cap is too small, it returns the length needed and writes nothing
 * beyond cap. Parsers return an NDB_E code and set *at to the offset of the invalid byte. */
long ndb_zwrite_key(const char *key, size_t len, char *out, size_t cap);
long ndb_zwrite_scalar(const ndb_scalar *value, char *out, size_t cap);
/* returns the length of the key */
int ndb_zwrite_parse_key(const char *text, size_t len, size_t *at, char *key);
int ndb_zwrite_parse_scalar(const char *text, size_t len, size_t *at, ndb_scalar *out, char *bytes);

/* ---- store (store.c) ---- */
/* If this process already has the folder open for writing, the open shares that store. The caller
 * must then make its sessions read-only with ndb_session_read_only. */
enum {
	NDB_READ_ONLY_SESSIONS = 2
};
typedef struct {
	/* 1, or NDB_READ_ONLY_SESSIONS: also beside an open for writing in this process */
	int read_only;
	/* ms until changes outside transactions are durable and visible to other processes; 0: 10 */
	int flush_ms;
	uint64_t transaction_bytes; /* limit on the memory of one transaction's changes; 0: 256 MiB */
	/* limit on uncommitted changes of the process, at which writers wait; 0: 256 MiB */
	uint64_t pending_bytes;
	/* check each value read from the file against its checksum; stores of format 1 have none */
	int verify;
	/* for tests and bulk loads: a machine crash may lose everything since the last sync */
	int no_sync;
	/* Open the folder as a unit, see below. flush_ms is then the age at which committed deltas are
	 * written, 0: 30 s, and transaction_bytes limits a delta. */
	int unit;
	int never_wait; /* of a unit: its owner keeps what waits for the disk below pending_bytes */
	uint32_t slice_nodes; /* of a unit: changes in one transaction of LMDB; 0: 65,536 */
} ndb_options;

int ndb_open(const char *folder, const ndb_options *options, ndb_store **out);
int ndb_close(ndb_store *store); /* commits pending changes; close all sessions first */
/* Waits until all changes acknowledged before the call are durable. NDB_E_DISK as for ndb_wait. */
int ndb_sync(ndb_store *store);

typedef struct {
	uint64_t nodes, map_bytes, used_bytes, free_bytes, pending_bytes, commits, expiring;
	uint32_t readers, locks, depth, processes;
} ndb_statistics;
int ndb_stat(ndb_store *store, ndb_statistics *out);
/* writes a consistent, compact copy into a new folder, while others write */
int ndb_backup(ndb_store *store, const char *folder);
typedef int (*ndb_report)(void *user, const char *line);
/* Reads the whole store: the meta pages and all pages are sound, keys decode and are in order, values
 * decode, counts agree, the expiry index is complete. Calls report with each fault and returns the
 * number of faults. It cannot tell a meta page that was replaced by an older version of itself. */
int ndb_check(ndb_store *store, ndb_report report, void *user);
int ndb_compact(const char *folder); /* no process may have the folder open */

/* ---- sessions and transactions (session.c) ---- */
/* store may be NULL: trees in memory only */
int ndb_session_open(ndb_store *store, ndb_session **out);
void ndb_session_close(ndb_session *s); /* rolls back, releases its locks, closes its iterators */
/* Call it before the session is idle: outside a transaction it releases the session's snapshot.
 * LMDB cannot reuse pages that a snapshot still needs, so an idle session that keeps one makes
 * the file grow. Inside a transaction it does nothing. */
void ndb_idle(ndb_session *s);
/* An upper bound of the memory that the session holds: the changes and reads of its transaction,
 * its trees in memory, its iterators, and data kept alive only by iterators, marks and saved
 * trees. A host that limits memory per user adds it to that user's total. */
uint64_t ndb_session_bytes(const ndb_session *s);
/* The part of ndb_session_bytes that the changes and reads of the transaction take, which
 * options.transaction_bytes limits. */
uint64_t ndb_change_bytes(const ndb_session *s);
/* Limits the session. Its changes wait while pending_bytes of its own changes are not durable (0:
 * only the store's limit applies). A change or commit stops waiting with NDB_E_TIMEOUT once *stop,
 * which another thread may set, is not 0 (NULL: never). */
void ndb_session_limits(ndb_session *s, uint64_t pending_bytes, const volatile uint32_t *stop);
/* Makes all later changes of stored nodes by this session fail, as in a read-only store. */
void ndb_session_read_only(ndb_session *s);

/* Outside a transaction each change is a transaction of its own, which all sessions of this
 * process see at once. Inside, reads come from one snapshot and the session's own changes.
 * Transactions nest; an inner commit adds its changes to the outer transaction. The outermost
 * commit makes the changes visible to this process and returns their number, which ndb_wait
 * takes, or it returns NDB_E_CONFLICT. After a conflict the session is back at its begin, with a
 * new snapshot: run the transaction again. After the second conflict in a row the transaction
 * runs alone: changes of other sessions wait until it ends, and fail with NDB_E_TIMEOUT after
 * 10 s.
 *
 * Conflicts with changes of this process are found by the nodes read; conflicts with changes of
 * other processes by the values read. A transaction that read very many nodes conflicts with any
 * change. Within a transaction, nodes expire by the time at which it began. */
int ndb_begin(ndb_session *s);
/* A read-only transaction: stored nodes may not be changed, also by transactions nested in it.
 * It never conflicts. */
int ndb_begin_view(ndb_session *s);
int ndb_commit(ndb_session *s, uint64_t *number);
int ndb_rollback(ndb_session *s); /* the innermost transaction */
/* undoes everything back to the outermost begin, which stays open, with a new snapshot */
int ndb_restart(ndb_session *s);
int ndb_level(ndb_session *s);
/* Waits until the commit with that number is durable. NDB_E_DISK: a write failed since the call.
 * The commit stays visible in this process, which retries the write until the process ends; call
 * again to wait for the next attempt. NDB_E_SUPERSEDED: the commit is lost. */
int ndb_wait(ndb_session *s, uint64_t number);
/* Makes rollback and restart also restore the trees in memory with this name (without ^; "*":
 * all trees). Call it after begin. */
int ndb_restore_local(ndb_session *s, const char *name, size_t len);
/* A savepoint inside a transaction, cheaper than a nested one. ndb_undo restores its state. */
uint64_t ndb_mark(ndb_session *s);
int ndb_undo(ndb_session *s, uint64_t mark);

/* ---- units (unit.c): the state of a pipeline, changed by numbered deltas ----
 *
 * One process at a time has a unit open. ndb_open and ndb_close open and close it; ndb_sync waits
 * until all committed deltas are on disk. Threads may call these functions at the same time, but
 * ndb_delta_commit, ndb_unit_apply and ndb_unit_drop only one at a time, and nothing may use a delta
 * meanwhile that the call ends. */
typedef struct ndb_delta ndb_delta;
/* Begins a delta over all that is committed and the frozen deltas in flight, at most 16 with this
 * one, which must be the only one not frozen. Nodes expire by clock, in ms since 1970, or by the
 * clock of an earlier delta if that is later. */
int ndb_delta_begin(ndb_store *unit, uint64_t clock, ndb_delta **out);
uint64_t ndb_delta_clock(const ndb_delta *d);
/* The session that reads and changes the delta, until ndb_delta_freeze. It is in a transaction, at
 * level 1, which it cannot end. Its reads are not recorded, and it has no conflicts. Iterators that
 * are still open are closed with the delta's session. */
ndb_session *ndb_delta_session(const ndb_delta *d);
/* Ends the changes of the delta. Later deltas read over it. */
int ndb_delta_freeze(ndb_delta *d);
uint64_t ndb_delta_bytes(const ndb_delta *d); /* its memory */
/* Encodes the nodes that a frozen delta has changed, as they are after it: *len bytes. */
int ndb_delta_encoded(const ndb_delta *d, size_t *len);
void ndb_delta_encode(const ndb_delta *d, char *out);
/* Makes the oldest delta part of the committed state, and frees it. number is one above that of the
 * last one. Waits while pending_bytes wait for the disk, unless never_wait is set, and fails with
 * NDB_E_DISK if they cannot be written. After an error the delta is still in flight; the call can be repeated. */
int ndb_delta_commit(ndb_delta *d, uint64_t number, uint64_t mark);
/* Commits an encoded delta while none is in flight. NDB_E_CORRUPT: nothing has changed. */
int ndb_unit_apply(ndb_store *unit, uint64_t number, uint64_t mark, const char *data, size_t len);
/* drops and frees the latest delta, also if it is frozen */
int ndb_delta_discard(ndb_delta *d);
void ndb_unit_drop(ndb_store *unit); /* drops and frees all deltas in flight */
/* ndb_begin_view on the committed state of a unit, in a session opened by ndb_session_open. */
int ndb_begin_committed(ndb_session *s);
typedef struct {
	uint64_t number; /* of the last committed delta */
	uint64_t applied,
	    begun;             /* all deltas up to applied are on disk, and none after begun in part */
	uint64_t applied_mark; /* mark of the delta with the number applied */
	uint64_t clock;        /* of the last committed delta */
	uint64_t waiting_nodes, waiting_bytes; /* wait for the disk */
	uint64_t in_flight_bytes;              /* of frozen deltas that are not committed */
	uint32_t in_flight;
} ndb_unit_statistics;
/* NDB_E_DISK: the last write failed; *out is filled nevertheless. */
int ndb_unit_status(ndb_store *unit, ndb_unit_statistics *out);

/* ---- snapshots of units (snapshot.c) ---- */
/* Chunks of one walk are complete once the deltas from the applied of the first chunk, without it, up
 * to the begun of the last one were applied to them. */
typedef struct {
	char *data; /* the nodes as an encoded delta; the caller frees it */
	size_t len;
	uint64_t nodes;
	char next[NDB_KEY_MAX]; /* the key to pass for the next chunk */
	size_t next_len;        /* 0: this was the last one */
	uint64_t applied, applied_mark, begun, begun_mark;
	uint64_t clock; /* of the delta with the number begun, or of a later one */
} ndb_chunk;
/* Reads the nodes that are on disk, from a key on (length 0: the first), up to about so many encoded
 * bytes, in a transaction that takes at most about a second. */
int ndb_unit_chunk(
    ndb_store *unit, const char *from, size_t from_len, size_t bytes, ndb_chunk *out);
/* Begins to load a snapshot into a new unit, or continues: *chunks is how many are loaded. The unit
 * cannot be used otherwise until ndb_unit_load_end, and then must be closed. */
int ndb_unit_load_begin(ndb_store *unit, uint64_t applied, uint64_t applied_mark, uint64_t begun,
    uint64_t clock, uint64_t *chunks);
int ndb_unit_load(ndb_store *unit, const char *data, size_t len); /* the next chunk */
int ndb_unit_load_end(ndb_store *unit);
int ndb_unit_is_loading(ndb_store *unit); /* 1: only ndb_unit_load_begin can use it */

/* ---- nodes (access.c, nodes.c). key is an encoded path ---- */
/* NDB_NONE: the node has no value */
int ndb_get(ndb_session *s, const char *key, size_t len, ndb_scalar *out);
int ndb_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *value);
/* ndb_set of a child of key; the caller does not have to build the child's key. */
int ndb_set_child(ndb_session *s, const char *key, size_t len, const ndb_scalar *subscript,
    const ndb_scalar *value);
/* NDB_NONE: the node already has a value */
int ndb_set_new(ndb_session *s, const char *key, size_t len, const ndb_scalar *value);
/* Sets the value if the current one equals expected (ABSENT: if there is none), else NDB_NONE. */
int ndb_compare_and_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *expected,
    const ndb_scalar *value);
int ndb_data(ndb_session *s, const char *key, size_t len); /* 0, 1, 10 or 11, as $DATA */
/* Adds in exact decimal. A missing value counts as 0, text as its numeric prefix. */
int ndb_increment(
    ndb_session *s, const char *key, size_t len, const ndb_scalar *by, ndb_scalar *out);
int ndb_kill_value(ndb_session *s, const char *key, size_t len);
/* deletes the node and its descendants, in one step regardless of their number */
int ndb_kill(ndb_session *s, const char *key, size_t len);
/* Deletes all trees in memory, and their states that a rollback would restore. */
int ndb_kill_local(ndb_session *s);
/* Expires the node in ttl_ms, 0: now, unless it is set again before. NDB_NONE: no value. */
int ndb_expire(ndb_session *s, const char *key, size_t len, uint64_t ttl_ms);
/* The same for a time in ms since 1970; 0 removes the expiry. */
int ndb_expire_at(ndb_session *s, const char *key, size_t len, uint64_t at_ms);
/* NDB_NONE: no value, or no expiry */
int ndb_ttl(ndb_session *s, const char *key, size_t len, uint64_t *ttl_ms);
/* The time, in ms since 1970, by which nodes expire: the machine's clock, or its value at begin
 * inside a transaction. If the clock is set back, nodes live longer by that much; if it is set
 * forward, they expire sooner. */
uint64_t ndb_clock(ndb_session *s);
/* Sets all of the nodes; after an error, none. */
typedef struct {
	const char *key;
	size_t len;
	ndb_scalar value;
} ndb_pair;
int ndb_set_all(ndb_session *s, const ndb_pair *pairs, size_t count);

/* ---- iteration (iter.c) ---- */
typedef struct {
	const ndb_scalar *subscript; /* of each item (siblings, range) */
	const ndb_scalar *value;     /* of each item, with NDB_VALUES; ABSENT without a value */
	const char *const *key;      /* of each item, with NDB_KEYS: the whole path */
	const uint32_t *key_len;
	uint32_t count;
} ndb_items;
enum {
	NDB_SIBLINGS = 0, /* children of the node, by $ORDER */
	/* nodes below it that have a value, by $QUERY; NDB_SELF includes the node itself */
	NDB_DESCENDANTS = 1,
	NDB_SELF = 2,
	NDB_REVERSE = 4,
	NDB_VALUES = 8,
	NDB_KEYS = 16
};
/* from and to limit the subscripts of siblings, both inclusive, in the direction of iteration
 * (NULL: no limit). For descendants they are whole keys. limit 0: no limit.
 * A key of length 0 is the root of the stored trees: its siblings are their names (subscript: a
 * STRING such as "^users"), its descendants all stored nodes. ndb_next_sibling of a name gives the
 * next name of its kind.
 * An iterator sees changes made after it was opened, as $ORDER does: it searches again from the
 * last item it returned. It may outlive its transaction. It reads ahead at most NDB_BATCH items. */
int ndb_iter_open(ndb_session *s, const char *key, size_t len, int flags, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t limit, ndb_iter **out);
/* Fills out with 1 to NDB_BATCH items, or returns NDB_NONE. */
int ndb_iter_fill(ndb_iter *it, ndb_items *out);
/* 1 while the items of the last fill are current, 0 once a new fill may return others. */
int ndb_iter_valid(const ndb_iter *it);
/* Makes the next fill start after item index of the last fill. */
int ndb_iter_seek_after(ndb_iter *it, uint32_t index);
void ndb_iter_close(ndb_iter *it);
/* Single steps without an iterator. out: the next subscript at the level of key (the next
 * sibling of key). NDB_NONE at the end. */
int ndb_next_sibling(ndb_session *s, const char *key, size_t len, int reverse, ndb_scalar *out);
int ndb_next_node(
    ndb_session *s, const char *key, size_t len, int reverse, const char **next, size_t *next_len);
/* Adds up to steps nodes of a subtree that have a value to *count. position keeps the place
 * between calls; set *position_len to 0 before the first. NDB_MORE until all are counted. */
int ndb_count(ndb_session *s, const char *key, size_t len, uint64_t steps, char *position,
    size_t *position_len, uint64_t *count);
/* The following functions change many nodes, up to steps (0: all) and about 1 MiB a call; position
 * is used as above. Each call is atomic. If no transaction is open, each call that changes stored
 * nodes is a transaction of its own; steps 0 then makes all changes in one. */
/* Copies the values and descendants of from to to. */
int ndb_merge(ndb_session *s, const char *to, size_t to_len, const char *from, size_t from_len,
    uint64_t steps, char *position, size_t *position_len);
/* Deletes the children of key between two subscripts (NULL: no bound), both included, with their
 * descendants. */
int ndb_kill_range(ndb_session *s, const char *key, size_t len, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t steps, char *position, size_t *position_len);
/* ndb_expire_at for all nodes of a subtree that have a value. */
int ndb_expire_tree(ndb_session *s, const char *key, size_t len, uint64_t at_ms, uint64_t steps,
    char *position, size_t *position_len);

/* ---- locks (lock.c): counted, hierarchical, across processes ---- */
typedef struct {
	const char *key;
	size_t len;
} ndb_key;
/* Takes the locks of all keys, at most 64, or none. Waits up to timeout_ms (< 0: for ever). A lock
 * conflicts with locks of other sessions on the same node, its ancestors and its descendants. A
 * lock holder sees every change made before the previous release, by any process. */
int ndb_lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms);
/* takes back one lock count; NDB_NONE: the session does not hold the lock */
int ndb_unlock(ndb_session *s, const char *key, size_t len);
void ndb_unlock_all(ndb_session *s);

#endif
