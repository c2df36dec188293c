/* nodedb: a hierarchical, transactional, embedded database.
 *
 * A node has a name, up to 31 subscripts, perhaps a value, perhaps children. Nodes are
 * ordered as M orders them: "" first, then numbers by value, then strings by bytes. Names
 * that begin with ^ are stored in LMDB and shared by all processes that open the folder;
 * other names are trees in the memory of one session.
 *
 * This is the C core. The Go package around it and the Lua modules in lua/ are its users.
 *
 * Concurrency. A store may be used by many threads. A session, and what it hands out, by
 * one thread at a time; sessions of one store run in parallel.
 *
 * Memory. Keys and scalars given to a function are only read during the call. What a
 * function returns in an ndb_scalar points into the store and is valid until the next call
 * on the same session (of an iterator: until its next fill).
 *
 * Errors. A function returns NDB_OK, a result > 0 where it says so, or an NDB_E code < 0,
 * and then ndb_message() has a sentence for a person. Nothing here calls back, longjmps or
 * exits.
 */
#ifndef NODEDB_H
#define NODEDB_H

#include <stddef.h>
#include <stdint.h>

typedef struct ndb_store ndb_store; /* an open folder */
/* one user of a store: its transaction, locks, trees in memory */
typedef struct ndb_session ndb_session;
typedef struct ndb_iter ndb_iter; /* an iteration over siblings, descendants or a range */

enum {
	NDB_OK = 0,
	NDB_MORE = 1,        /* a sliced function has more to do: call it again */
	NDB_NONE = 2,        /* no such node, no next node, condition not met */
	NDB_E_ARGUMENT = -1, /* a bad name, too many subscripts, a number that is not one */
	NDB_E_KEY = -2,      /* the path is longer than NDB_KEY_MAX bytes */
	NDB_E_VALUE = -3,    /* the value is longer than NDB_VALUE_MAX bytes */
	NDB_E_FULL = -4,     /* the transaction is larger than options.transaction_bytes */
	NDB_E_CONFLICT = -5, /* another transaction changed what this one read: run it again */
	NDB_E_TIMEOUT = -6,  /* a lock was not free in time */
	NDB_E_LEVEL = -7,    /* no transaction is open, or an inner one still is */
	NDB_E_DISK =
	    -8, /* the disk is full, or a write or sync failed. A change or a commit that returns it has done nothing;
                           for ndb_wait and ndb_sync see there */
	NDB_E_CORRUPT = -9, /* the folder does not hold what it should */
	NDB_E_MEMORY = -10,
	/* this process was stopped for so long that another took its right to write */
	NDB_E_SUPERSEDED = -11,
	NDB_E_MERGE = -12,  /* source and target of a merge lie within each other */
	NDB_E_NUMBER = -13, /* the result is beyond the range of numbers */
	NDB_E_LOCKS = -14   /* the table of locks is full */
};

#define NDB_SUBSCRIPTS_MAX 31
#define NDB_NAME_MAX 31  /* bytes, without the ^ */
#define NDB_KEY_MAX 1900 /* bytes of an encoded path */
#define NDB_VALUE_MAX (64u << 20)
#define NDB_BATCH 256 /* items of one fill of an iterator */

/* A subscript or a value. NUMBER is an integer up to 2^53, or a decimal that is the shortest
 * spelling of its double. DIGITS is any other canonical number, as its text: at most 18
 * significant digits, from 1E-43 to below 1E47. What is longer or beyond is a STRING. A
 * double that is given stands for its exact value if it is an integer below 10^18, else for
 * its shortest spelling; one that is too large or too small for a number counts as the
 * STRING of its digits. */
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
const char *ndb_message(void);       /* of this thread's last error */
const char *ndb_code_name(int code); /* "NDB_E_TIMEOUT" */

/* ---- keys (key.c): one path as one string, ordered by memcmp ---- */

/* A key is the name, a 0 byte, and the encoded subscripts. The descendants of a node are
 * the keys between its own and its own followed by 0xFF. Appends return the new length, or
 * an NDB_E code. cap is the room in key, at least NDB_KEY_MAX for all that is allowed. */
int ndb_key_name(char *key, size_t cap, const char *name, size_t len);
int ndb_key_append(char *key, size_t len, size_t cap, const ndb_scalar *subscript);
/* A string that spells a canonical number is that number: 3, 3.0 and "3" are one subscript;
 * "3.0" and "03" are strings. FALSE, TRUE and ABSENT are no subscripts. */

/* Decodes the subscript at *at (0: the name) and moves *at behind it; NDB_NONE at the end.
 * text has room for the bytes of a string (NDB_KEY_MAX). Hostile bytes give NDB_E_CORRUPT. */
int ndb_key_decode(const char *key, size_t len, size_t *at, ndb_scalar *out, char *text);
int ndb_key_depth(const char *key, size_t len);  /* number of subscripts, or NDB_E_CORRUPT */
int ndb_key_parent(const char *key, size_t len); /* length of the parent's key; 0 for a name */
/* Length of the encoded subscript at at, or NDB_E_CORRUPT. */
int ndb_key_subscript_len(const char *key, size_t len, size_t at);

/* ---- numbers (number.c): M's rules in exact decimal, 18 significant digits ---- */

/* The scalar as canonical text (".5", "-1.5", "1E46" is spelled in digits): length, or an
 * NDB_E code. Bytes that are no number count by their longest numeric prefix, as in M. */
#define NDB_NUMBER_TEXT 400
int ndb_number_text(const ndb_scalar *value, char *text);
/* sum = value + by; text holds its spelling, sum is NUMBER or DIGITS. */
int ndb_number_add(const ndb_scalar *value, const ndb_scalar *by, ndb_scalar *sum, char *text);
/* 1 if the bytes spell a canonical number, which is then in *out. */
int ndb_number_canonical(const char *bytes, size_t len, ndb_scalar *out);

/* ---- text (zwrite.c): the form in which M prints and loads nodes ---- */
/* Each returns the length, or, if cap is too small, the length needed (nothing beyond cap
 * is written); parsers return an NDB_E code and set *at to the offending byte. */
long ndb_zwrite_key(const char *key, size_t len, char *out, size_t cap);
long ndb_zwrite_scalar(const ndb_scalar *value, char *out, size_t cap);
/* length of the key */
int ndb_zwrite_parse_key(const char *text, size_t len, size_t *at, char *key);
int ndb_zwrite_parse_scalar(const char *text, size_t len, size_t *at, ndb_scalar *out, char *bytes);

/* ---- store (store.c) ---- */
/* Who opens a folder so, and has it from an open that writes, makes its sessions read-only. */
enum {
	NDB_READ_ONLY_SESSIONS = 2
};
typedef struct {
	/* 1, or NDB_READ_ONLY_SESSIONS: also beside an open of this process that writes */
	int read_only;
	/* changes outside transactions are durable, and seen by other processes, after this time; 0: 10 ms */
	int flush_ms;
	uint64_t transaction_bytes; /* memory of the changes of one transaction; 0: 256 MiB */
	/* uncommitted changes of the process before writers wait; 0: 256 MiB */
	uint64_t pending_bytes;
	/* each value that is read from the file is held against its checksum; stores of format 1 have none */
	int verify;
	/* for tests and bulk loads: a crash of the machine may lose all since the last sync */
	int no_sync;
} ndb_options;

int ndb_open(const char *folder, const ndb_options *options, ndb_store **out);
int ndb_close(ndb_store *store); /* commits what is pending; sessions must be closed before */
/* Waits until all that was acknowledged before is durable; NDB_E_DISK as of ndb_wait. */
int ndb_sync(ndb_store *store);

typedef struct {
	uint64_t nodes, map_bytes, used_bytes, free_bytes, pending_bytes, commits, expiring;
	uint32_t readers, locks, depth, processes;
} ndb_statistics;
int ndb_stat(ndb_store *store, ndb_statistics *out);
/* a consistent copy into a new folder, while others write; compacted */
int ndb_backup(ndb_store *store, const char *folder);
typedef int (*ndb_report)(void *user, const char *line);
/* Reads everything: keys decode and are in order, values decode, counts agree, the index of
 * expiry is whole. Returns the number of faults; each is told to report. */
int ndb_check(ndb_store *store, ndb_report report, void *user);
int ndb_compact(const char *folder); /* of a folder that no process has open */

/* ---- sessions and transactions (session.c) ---- */
/* store may be NULL: trees in memory only */
int ndb_session_open(ndb_store *store, ndb_session **out);
void ndb_session_close(ndb_session *s); /* rolls back, releases its locks, closes its iterators */
/* The session will not be used for a while: it lets go of the state that it read last. LMDB
 * does not use pages again that a state still needs, so a session that is kept open and idle
 * makes the file grow. Nothing in a transaction. */
void ndb_idle(ndb_session *s);
/* Memory that the session holds, or a little more: the changes of its transaction and what that has
 * read, its trees in memory, its iterators, and what only these, marks and trees to restore keep
 * alive. A host that bounds its user's memory adds it. */
uint64_t ndb_session_bytes(const ndb_session *s);
/* Bounds the session. Its changes wait while pending_bytes (0: no bound but that of the store) of
 * its own are not durable. A wait of a change or a commit ends with NDB_E_TIMEOUT once *stop, which
 * another thread may set, is not 0 (NULL: never). */
void ndb_session_limits(ndb_session *s, uint64_t pending_bytes, const volatile uint32_t *stop);
/* From now on the session's changes of stored nodes fail, as in a store that is read only. */
void ndb_session_read_only(ndb_session *s);

/* Outside a transaction each change is one of its own: seen at once by all sessions of this
 * process. Inside, reads come from one snapshot and the session's own changes. Transactions
 * nest; an inner commit keeps its changes for the outer one. The outermost commit makes the
 * changes visible to this process and gives them a number (ndb_wait: durable), or returns
 * NDB_E_CONFLICT, after which the session stands as at begin with a new snapshot: run the
 * transaction again. From the third time on nobody else commits until it has ended: a change of
 * another session waits, and after 10 s fails with NDB_E_TIMEOUT.
 *
 * What a transaction has read is held against the changes of this process by its nodes, and
 * against those of other processes by its values. A transaction that has read very much conflicts
 * with any change. In a transaction, nodes expire by the time at which it began. */
int ndb_begin(ndb_session *s);
/* one that may not change stored nodes, nor those inside it; it never conflicts */
int ndb_begin_view(ndb_session *s);
int ndb_commit(ndb_session *s, uint64_t *number);
int ndb_rollback(ndb_session *s); /* the innermost transaction */
/* undo everything back to the outermost begin, which stays open, with a new snapshot */
int ndb_restart(ndb_session *s);
int ndb_level(ndb_session *s);
/* Waits until the commit of that number is durable. NDB_E_DISK: a write has failed since the call.
 * The commit stays visible in this process, which tries to write it until the process ends: call
 * again to learn how that went on. NDB_E_SUPERSEDED: it is lost. */
int ndb_wait(ndb_session *s, uint64_t number);
/* The trees in memory (by name, without ^) that rollback and restart put back too; "*" is
 * all. Call it after begin. */
int ndb_restore_local(ndb_session *s, const char *name, size_t len);
/* A mark inside a transaction: cheaper than a nested one. undo puts everything back to it. */
uint64_t ndb_mark(ndb_session *s);
int ndb_undo(ndb_session *s, uint64_t mark);

/* ---- nodes (access.c, nodes.c). key is an encoded path ---- */
/* NDB_NONE: no value */
int ndb_get(ndb_session *s, const char *key, size_t len, ndb_scalar *out);
int ndb_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *value);
/* ndb_set of the child of key: no key is built for it elsewhere. */
int ndb_set_child(ndb_session *s, const char *key, size_t len, const ndb_scalar *subscript,
    const ndb_scalar *value);
/* NDB_NONE: it had a value */
int ndb_set_new(ndb_session *s, const char *key, size_t len, const ndb_scalar *value);
/* Sets the value if the present one equals expected (ABSENT: if there is none). */
int ndb_compare_and_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *expected,
    const ndb_scalar *value);
int ndb_data(ndb_session *s, const char *key, size_t len); /* 0, 1, 10 or 11, as $DATA */
/* Adds in exact decimal; a missing value counts as 0, text by its numeric prefix. */
int ndb_increment(
    ndb_session *s, const char *key, size_t len, const ndb_scalar *by, ndb_scalar *out);
int ndb_kill_value(ndb_session *s, const char *key, size_t len);
/* node and descendants; one step whatever their number */
int ndb_kill(ndb_session *s, const char *key, size_t len);
/* A node that is not set again is gone ttl_ms after now, 0: at once. NDB_NONE: no value. */
int ndb_expire(ndb_session *s, const char *key, size_t len, uint64_t ttl_ms);
/* Likewise at a time in ms since 1970; 0 takes the limit away. */
int ndb_expire_at(ndb_session *s, const char *key, size_t len, uint64_t at_ms);
/* NDB_NONE: no value, or no limit */
int ndb_ttl(ndb_session *s, const char *key, size_t len, uint64_t *ttl_ms);
/* The ms since 1970 by which the session's nodes expire: the machine's clock, in a transaction as it
 * was at its begin. A clock that is set back lets nodes live longer by as much; one that is set
 * forward ends them sooner. */
uint64_t ndb_clock(ndb_session *s);
/* Sets all of the nodes, or after an error none. */
typedef struct {
	const char *key;
	size_t len;
	ndb_scalar value;
} ndb_pair;
int ndb_set_all(ndb_session *s, const ndb_pair *pairs, size_t count);

/* ---- iteration (iter.c) ---- */
typedef struct {
	const ndb_scalar *subscript; /* of each item (siblings, range) */
	const ndb_scalar *value;     /* of each item, if asked for; ABSENT where it has none */
	const char *const *key;      /* of each item, if asked for: whole path */
	const uint32_t *key_len;
	uint32_t count;
} ndb_items;
enum {
	NDB_SIBLINGS = 0, /* children of the node, by $ORDER */
	/* nodes with a value below it, by $QUERY; with the node itself if it has one and NDB_SELF is set */
	NDB_DESCENDANTS = 1,
	NDB_SELF = 2,
	NDB_REVERSE = 4,
	NDB_VALUES = 8,
	NDB_KEYS = 16
};
/* from and to bound the subscript of siblings (NULL: none; from is inclusive in the
 * direction of travel, so is to); for descendants they are whole keys. limit 0: none.
 * A key of length 0 is the root of the stored trees: its siblings are their names (subscript: a
 * STRING such as "^users"), its descendants all stored nodes. ndb_next_sibling of a name gives the
 * next name of its kind.
 * An iterator sees changes made after its open, as $ORDER does: it looks again behind the
 * item it gave last. It may outlive its transaction. It reads ahead at most NDB_BATCH items. */
int ndb_iter_open(ndb_session *s, const char *key, size_t len, int flags, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t limit, ndb_iter **out);
/* NDB_OK with 1 to NDB_BATCH items, or NDB_NONE */
int ndb_iter_fill(ndb_iter *it, ndb_items *out);
/* True (1) while the items of the last fill are still what a fill would give. */
int ndb_iter_valid(const ndb_iter *it);
/* Look again behind item index of the last fill at the next fill. */
int ndb_iter_seek_after(ndb_iter *it, uint32_t index);
void ndb_iter_close(ndb_iter *it);
/* One step, without an iterator. out: the next subscript at the level of key (next sibling
 * of key); NDB_NONE at the end. */
int ndb_next_sibling(ndb_session *s, const char *key, size_t len, int reverse, ndb_scalar *out);
int ndb_next_node(
    ndb_session *s, const char *key, size_t len, int reverse, const char **next, size_t *next_len);
/* Up to steps nodes of a subtree are counted (with a value) into *count; position is where it
 * stands, at first empty (position_len 0). NDB_MORE until all are. */
int ndb_count(ndb_session *s, const char *key, size_t len, uint64_t steps, char *position,
    size_t *position_len, uint64_t *count);
/* The following change many nodes, up to steps (0: all) and about 1 MiB a call, with position as
 * above. A call does all of its part or nothing. If no transaction is open, a call that changes
 * stored nodes is one of its own: then steps 0 does all at once. */
/* Copies values and descendants of from to to. */
int ndb_merge(ndb_session *s, const char *to, size_t to_len, const char *from, size_t from_len,
    uint64_t steps, char *position, size_t *position_len);
/* Deletes the children of key from one subscript to another (NULL: no bound), both included, with
 * all below them. */
int ndb_kill_range(ndb_session *s, const char *key, size_t len, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t steps, char *position, size_t *position_len);
/* ndb_expire_at of all nodes of a subtree that have a value now. */
int ndb_expire_tree(ndb_session *s, const char *key, size_t len, uint64_t at_ms, uint64_t steps,
    char *position, size_t *position_len);

/* ---- locks (lock.c): counted, hierarchical, across processes ---- */
typedef struct {
	const char *key;
	size_t len;
} ndb_key;
/* Takes all of keys, at most 64, or none; waits up to timeout_ms (< 0: for ever). A lock conflicts with
 * those of other sessions on the same node, its ancestors and its descendants. Who has a lock
 * reads all that was changed before it was released, in whatever process. */
int ndb_lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms);
int ndb_unlock(ndb_session *s, const char *key, size_t len); /* one count; NDB_NONE: not held */
void ndb_unlock_all(ndb_session *s);

#endif
