/* shared.h: what the processes that have a folder open know of each other (private).
 *
 * The file `shared` of the folder is mapped by each of them. It holds a slot per process, the
 * cell of the writer lease (lease.c) and the table of locks (locktable.h, lock.c).
 *
 * Death. A process holds an OFD lock on the byte of its slot, which the kernel frees when the
 * process dies; so who is alive is always known, whatever the mapping says. The mutex is
 * robust: who takes it after a death rebuilds what it guards. Everything else is changed by
 * single atomic operations. So a kill at any instruction leaves the file usable. Who opens the
 * folder while no other process has it open begins with an empty file; nothing of another boot
 * of the machine counts.
 *
 * A child of fork has no part in it: the descriptor is closed and the mapping empty in the
 * child, and its calls fail with NDB_E_ARGUMENT. */
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

/* A process that has the folder open, for as long as it has: its slot and a number that no
 * process before had there. 0 is none. */
typedef uint64_t ndb_owner;

/* A right that at most one process has. Changed by atomic operations only; what they mean is
 * up to the user of the cell. */
typedef struct {
	_Atomic ndb_owner owner;
	_Atomic uint64_t epoch;
	_Atomic uint64_t heartbeat_ms; /* ndb_clock_ms of the owner's last sign of life */
	_Atomic uint64_t since_ms;     /* when the owner got it */
	_Atomic uint32_t requests;     /* raised by those who want it */
	_Atomic uint32_t moved;        /* to wait on: counts changes of owner */
	uint8_t reserved[24];
} ndb_cell;

typedef struct {
	_Atomic uint32_t generation; /* counts the processes that had the slot */
	_Atomic uint32_t pid;        /* for people; who is alive is not read from it */
	_Atomic uint64_t opened_ms;  /* ndb_clock_ms */
	uint8_t reserved[48];
} ndb_slot;

/* A lock that a session holds. The mutex guards all of it. */
typedef struct {
	_Atomic uint32_t used; /* 0: free, else 1 + depth of the key; written last, cleared first */
	uint32_t session;
	uint16_t slot, len;
	uint32_t count;
	uint32_t block;   /* of the key's beginning */
	uint32_t hash[3]; /* of the name, with one and with two subscripts */
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
	/* Guarded by the mutex; the words to wait on are also read without it. */
	_Atomic uint32_t releases; /* counts releases of locks */
	_Atomic uint32_t waiters;  /* a hint: too high after a death */
	uint32_t lock_end;         /* behind the last entry in use */
	uint32_t block_end;        /* behind the last block that was ever in use */
	uint32_t free_block,
	    free_blocks;   /* a list of those before block_end that are not; its length */
	uint32_t rebuilds; /* deaths with the mutex held; for tests */
	ndb_slot slots[NDB_PROCESSES_MAX];
	ndb_lock_entry locks[NDB_LOCKS_MAX];
	ndb_lock_block blocks[NDB_LOCK_BLOCKS];
} ndb_shared_file;

typedef struct ndb_shared {
	ndb_shared_file *file;
	int fd;
	ndb_owner me;
	struct ndb_shared *next;   /* of all that are open, for fork */
	_Atomic uint32_t sessions; /* numbers given to sessions of this process */
} ndb_shared;

/* Opens the file in folder and takes a slot. NDB_E_DISK: no room for the file; NDB_E_LOCKS: all
 * slots are taken. */
int ndb_shared_open(const char *folder, ndb_shared **out);
/* Gives back the slot and all locks. The lease must have been given back. */
void ndb_shared_close(ndb_shared *shared);

/* Between them no other process opens or creates the folder's files. */
int ndb_shared_begin_creation(ndb_shared *shared);
void ndb_shared_end_creation(ndb_shared *shared);

/* The error of a call in the child of a fork: fd is -1 there. */
int ndb_shared_refuse_child(void);

/* Takes the mutex; rebuilds the table of locks if its last holder died in it. NDB_E_TIMEOUT
 * after wait_ms (< 0: waits on). Mutex: not held; held on return, unless it fails. */
int ndb_shared_lock(ndb_shared *shared, int64_t wait_ms);
void ndb_shared_unlock(ndb_shared *shared); /* mutex: held on entry */

/* ---- process.c ---- */

/* The bytes of the OFD locks. They need not lie within the file. */
enum {
	NDB_BYTE_OPENING = 0,
	NDB_BYTE_SLOTS = 1024 /* of slot 0; the others follow */
};

/* fcntl with a lock of a type on the bytes. F_OFD_GETLK returns 1 if another description has one. */
int ndb_byte_lock(int fd, int command, short type, off_t start, off_t len);
/* 1 if another description than fd holds a lock on the bytes. */
int ndb_byte_is_locked(int fd, off_t start, off_t len);

/* The number of slots with a living process. */
uint32_t ndb_shared_processes(ndb_shared *shared);
/* 1 if the process lives and still has the folder open. A system call, unless it is this one. */
int ndb_shared_alive(ndb_shared *shared, ndb_owner owner);
uint32_t ndb_shared_pid(const ndb_shared *shared, ndb_owner owner); /* for messages */

/* Sleeps until *word is not value any more, was woken, or wait_ms are over. */
void ndb_wait_word(_Atomic uint32_t *word, uint32_t value, uint32_t wait_ms);
void ndb_wake_word(_Atomic uint32_t *word);

/* Milliseconds of a clock that all processes of the machine share and that stands still while
 * it sleeps. Never 0. */
static inline uint64_t ndb_clock_ms(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

/* ---- lock.c. Mutex: not held. ---- */

/* What ndb_lock and ndb_unlock do, for a session of this process by its number. */
int ndb_locks_take(
    ndb_shared *shared, uint32_t session, const ndb_key *keys, size_t count, int64_t timeout_ms);
int ndb_locks_release(ndb_shared *shared, uint32_t session, const char *key, size_t len);
void ndb_locks_release_all(ndb_shared *shared, uint32_t session);
/* Locks held by living processes. */
uint32_t ndb_locks_count(ndb_shared *shared);

#endif
