//go:build cgo && lmdb

/* process.c: which processes have the folder open, and how they wait for one another; see
 * shared.h. */
#define _GNU_SOURCE /* OFD locks */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared.h"

/* ---- OFD locks ---- */

int ndb_byte_lock(int fd, int command, short type, off_t start, off_t len) {
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
	int code;
	do {
		code = fcntl(fd, command, &lock);
	} while (code < 0 && errno == EINTR);
	if (code == 0 && command == F_OFD_GETLK) return lock.l_type != F_UNLCK;
	return code;
}

int ndb_byte_is_locked(int fd, off_t start, off_t len) {
	int code = ndb_byte_lock(fd, F_OFD_GETLK, F_WRLCK, start, len);
	return code != 0; /* on an error, assume that the process is alive */
}

/* ---- processes ---- */

int ndb_shared_alive(ndb_shared *shared, ndb_owner owner) {
	if (owner == shared->me) return 1;
	uint32_t slot = NDB_SLOT_OF(owner);
	if (slot >= NDB_PROCESSES_MAX ||
	    atomic_load(&shared->file->slots[slot].generation) != (uint32_t)(owner >> 32))
		return 0;
	return ndb_byte_is_locked(shared->fd, NDB_BYTE_SLOTS + (off_t)slot, 1);
}

uint32_t ndb_shared_processes(ndb_shared *shared) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < NDB_PROCESSES_MAX; i++) {
		uint32_t generation = atomic_load(&shared->file->slots[i].generation);
		count += generation && ndb_shared_alive(shared, (ndb_owner)generation << 32 | (i + 1));
	}
	return count;
}

uint32_t ndb_shared_pid(const ndb_shared *shared, ndb_owner owner) {
	uint32_t slot = NDB_SLOT_OF(owner);
	return slot < NDB_PROCESSES_MAX ? atomic_load(&shared->file->slots[slot].pid) : 0;
}

/* ---- waiting ---- */

void ndb_wait_word(_Atomic uint32_t *word, uint32_t value, uint32_t wait_ms) {
	struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
	syscall(SYS_futex, word, FUTEX_WAIT, value, &wait, NULL, 0);
}

void ndb_wake_word(_Atomic uint32_t *word) {
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
