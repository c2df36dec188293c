/* shared.h: state shared by the processes that have a folder open (private).
 *
 * Each process maps the file `shared` of the folder. It holds a slot per process, the cell of the
 * writer lease (lease.c) and the lock table (locktable.h, lock.c).
 *
 * Crashes. A process holds an OFD lock on the byte of its slot. The kernel releases it when the
 * process dies, so other processes always know which slots are alive, whatever the mapping says.
 * The mutex is robust: the process that takes it after its holder died rebuilds the lock table.
 * All other state changes by single atomic operations, so a kill at any instruction leaves the
 * file usable. A process that opens the folder while no other has it open starts with an empty
 * file; state from before a reboot is ignored.
 *
 * A child of fork is not part of this: its descriptor is closed, its mapping is empty, and its
 * calls fail with NDB_E_ARGUMENT. */
#ifndef NODEDB_SHARED_H
#define NODEDB_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "nodedb.h"

enum {
	NDB_PROCESSES_MAX = 256,
	NDB_LOCKS_MAX = 8192,
	NDB_LOCK_BLOCKS = 16384, /* for the keys of locks */
	NDB_LOCK_BLOCK_BYTES = 60
};

/* Identifies a process while it has the folder open: its slot, and a number that no earlier process
 * had in that slot. 0: no process. */
typedef uint64_t ndb_owner;

/* A right that at most one process has. It changes only by atomic operations; the user of the cell
 * defines its meaning. */
typedef struct {
	_Atomic ndb_owner owner;
	_Atomic uint64_t epoch;
	_Atomic uint64_t heartbeat_ms; /* ndb_clock_ms of the owner's last heartbeat */
	_Atomic uint64_t since_ms;     /* when the owner got it */
	_Atomic uint32_t requests;     /* raised by processes that want it */
	_Atomic uint32_t moved;        /* futex word: counts changes of owner */
	uint8_t reserved[24];
} ndb_cell;

typedef struct {
	_Atomic uint32_t generation; /* counts the processes that have used the slot */
	_Atomic uint32_t pid;        /* for messages only, not to find out whether it lives */
	_Atomic uint64_t opened_ms;  /* ndb_clock_ms */
	uint8_t reserved[48];
} ndb_slot;

/* A lock that a session holds. Guarded by the mutex. */
typedef struct {
	_Atomic uint32_t used; /* 0: free, else 1 + depth of the key; written last, cleared first */
	uint32_t session;
	uint16_t slot, len;
	uint32_t count;
	uint32_t block;   /* the first block of the key */
	uint32_t hash[3]; /* of the name, and of the name with one and with two subscripts */
} ndb_lock_entry;

typedef struct {
	uint32_t next;
	char bytes[NDB_LOCK_BLOCK_BYTES];
} ndb_lock_block;

#define NDB_NO_BLOCK UINT32_MAX
#define NDB_SLOT_OF(owner) ((uint32_t)(owner)-1)

typedef struct {
	uint64_t magic;
	uint32_t version, bytes, pointer_bytes, mutex_bytes;
	ndb_cell lease;
	pthread_mutex_t mutex;
	/* Guarded by the mutex, but futex words are also read without it. */
	_Atomic uint32_t releases;        /* futex word: counts releases of locks */
	_Atomic uint32_t waiters;         /* a hint: too high after a crash */
	uint32_t lock_end;                /* after the last entry in use */
	uint32_t block_end;               /* after the last block that was ever in use */
	uint32_t free_block, free_blocks; /* list of free blocks before block_end; its length */
	uint32_t rebuilds;                /* crashes with the mutex held; for tests */
	ndb_slot slots[NDB_PROCESSES_MAX];
	ndb_lock_entry locks[NDB_LOCKS_MAX];
	ndb_lock_block blocks[NDB_LOCK_BLOCKS];
} ndb_shared_file;

typedef struct ndb_shared {
	ndb_shared_file *file;
	int fd;
	ndb_owner me;
	struct ndb_shared *next;   /* list of all open files, for fork */
	_Atomic uint32_t sessions; /* session numbers given out by this process */
} ndb_shared;

/* Opens the file in folder and takes a slot. NDB_E_DISK: the disk is full; NDB_E_LOCKS: all
 * slots are in use. */
int ndb_shared_open(const char *folder, ndb_shared **out);
/* Releases the slot and all locks. Give the lease back first. */
void ndb_shared_close(ndb_shared *shared);

/* Makes this process the only one that has the folder open as a unit, until it closes it.
 * NDB_E_IN_USE: another one is. */
int ndb_shared_own_unit(ndb_shared *shared);

/* They enclose the opening and creation of the folder's files: other processes wait. */
int ndb_shared_begin_creation(ndb_shared *shared);
void ndb_shared_end_creation(ndb_shared *shared);

/* Fails with the error of a call in a fork's child, where fd is -1. */
int ndb_shared_refuse_child(void);

/* Takes the mutex, and rebuilds the lock table if the last holder died with it. NDB_E_TIMEOUT
 * after wait_ms (< 0: no limit). Mutex: not held; held on return, unless it fails. */
int ndb_shared_lock(ndb_shared *shared, int64_t wait_ms);
void ndb_shared_unlock(ndb_shared *shared); /* mutex: held on entry */

/* ---- process.c ---- */

/* Offsets of the OFD locks. They may lie beyond the end of the file. */
enum {
	NDB_BYTE_OPENING = 0,
	NDB_BYTE_UNIT = 1,
	NDB_BYTE_SLOTS = 1024 /* of slot 0; the others follow */
};

/* Calls fcntl with a lock of a type on the bytes. F_OFD_GETLK returns 1 if another description
 * holds one. */
int ndb_byte_lock(int fd, int command, short type, off_t start, off_t len);
/* 1 if a description other than fd holds a lock on the bytes. */
int ndb_byte_is_locked(int fd, off_t start, off_t len);

/* The number of slots with a living process. */
uint32_t ndb_shared_processes(ndb_shared *shared);
/* 1 if the process is alive and still has the folder open. A system call, except for this
 * process. */
int ndb_shared_alive(ndb_shared *shared, ndb_owner owner);
uint32_t ndb_shared_pid(const ndb_shared *shared, ndb_owner owner); /* for messages */

/* Sleeps until *word differs from value, it is woken, or wait_ms have passed. */
void ndb_wait_word(_Atomic uint32_t *word, uint32_t value, uint32_t wait_ms);
void ndb_wake_word(_Atomic uint32_t *word);

/* Milliseconds of a clock that all processes of the machine share. It stops while the machine is
 * suspended. Never 0. */
static inline uint64_t ndb_clock_ms(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

/* ---- lock.c. Mutex: not held. ---- */

/* Implement ndb_lock and ndb_unlock for the session with a number of this process. */
int ndb_locks_take(
    ndb_shared *shared, uint32_t session, const ndb_key *keys, size_t count, int64_t timeout_ms);
int ndb_locks_release(ndb_shared *shared, uint32_t session, const char *key, size_t len);
void ndb_locks_release_all(ndb_shared *shared, uint32_t session);
/* The number of locks held by living processes. */
uint32_t ndb_locks_count(ndb_shared *shared);

#endif
