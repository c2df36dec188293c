//go:build cgo && lmdb

/* shared.c: the file that the processes of a folder map; see shared.h. */
#define _GNU_SOURCE /* OFD locks */
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "locktable.h"

#define MAGIC 0x6465726168736462u /* "bdshared" */
enum {
	VERSION = 1
};

/* ---- fork ---- */

static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static ndb_shared *opened;

static void before_fork(void) { pthread_mutex_lock(&opened_lock); }
static void after_fork(void) { pthread_mutex_unlock(&opened_lock); }

/* The child shares the parent's file description. Its descriptor and its mapping would keep the
 * parent's slot locked after the parent dies, so the child closes the one and empties the other. */
static void in_child(void) {
	for (ndb_shared *s = opened; s; s = s->next) {
		close(s->fd);
		s->fd = -1;
		mmap(s->file, sizeof *s->file, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	pthread_mutex_unlock(&opened_lock);
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

int ndb_shared_refuse_child(void) {
	return ndb_fail(
	    NDB_E_ARGUMENT, "the store was opened before a fork: open it again in the child");
}

/* ---- opening ---- */

static int io_error(const char *what, const char *path) {
	int error = errno;
	return ndb_fail(NDB_E_DISK, "cannot %s %s: %s", what, path, strerror(error));
}

/* Creates an empty file. No other process has it open. */
static int create_file(int fd, const char *path) {
	if (ftruncate(fd, 0) < 0) return io_error("empty", path);
	/* Allocate all blocks: a write to the mapping must not meet a full disk. */
	int error = posix_fallocate(fd, 0, sizeof(ndb_shared_file));
	if (error) {
		errno = error;
		return io_error("allocate", path);
	}
	return NDB_OK;
}

static int fill_file(ndb_shared_file *file, const char *path) {
	pthread_mutexattr_t attributes;
	int error = pthread_mutexattr_init(&attributes);
	if (!error) error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (!error) error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (!error) error = pthread_mutex_init(&file->mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	if (error) {
		errno = error;
		return io_error("create a mutex in", path);
	}
	file->free_block = NDB_NO_BLOCK;
	file->version = VERSION;
	file->bytes = sizeof *file;
	file->pointer_bytes = sizeof(void *);
	file->mutex_bytes = sizeof file->mutex;
	file->magic = MAGIC;
	return NDB_OK;
}

static int is_ours(const ndb_shared_file *file) {
	return file->magic == MAGIC && file->version == VERSION && file->bytes == sizeof *file &&
	       file->pointer_bytes == sizeof(void *) && file->mutex_bytes == sizeof file->mutex;
}

/* Takes a slot that no living process uses. Mutex: not held. */
static int take_slot(ndb_shared *shared) {
	for (uint32_t i = 0; i < NDB_PROCESSES_MAX; i++) {
		if (ndb_byte_lock(shared->fd, F_OFD_SETLK, F_WRLCK, NDB_BYTE_SLOTS + (off_t)i, 1) < 0) {
			if (errno == EAGAIN || errno == EACCES) continue;
			return io_error("lock a slot of", "the file shared");
		}
		int code = ndb_shared_lock(shared, 10000);
		if (code != NDB_OK) return code;
		ndb_slot *slot = &shared->file->slots[i];
		uint32_t generation = atomic_load(&slot->generation) + 1;
		atomic_store(&slot->pid, (uint32_t)getpid());
		atomic_store(&slot->opened_ms, ndb_clock_ms());
		atomic_store(&slot->generation, generation);
		ndb_locks_drop_slot(shared->file, (uint16_t)i);
		ndb_shared_unlock(shared);
		shared->me = (ndb_owner)generation << 32 | (i + 1);
		return NDB_OK;
	}
	return ndb_fail(NDB_E_LOCKS,
	    "%d processes have the folder open, which is the maximum: close one", NDB_PROCESSES_MAX);
}

/* Maps the file and takes a slot. The caller holds NDB_BYTE_OPENING. */
static int map_file(ndb_shared *shared, const char *path) {
	int alone = !ndb_byte_is_locked(shared->fd, NDB_BYTE_SLOTS, NDB_PROCESSES_MAX);
	struct stat status;
	int code = NDB_OK;
	if (alone) code = create_file(shared->fd, path);
	if (code != NDB_OK) return code;
	if (fstat(shared->fd, &status) < 0) return io_error("look at", path);
	if (status.st_size != (off_t)sizeof(ndb_shared_file))
		return ndb_fail(
		    NDB_E_ARGUMENT, "another version of the program has %s open: close it first", path);
	void *file =
	    mmap(NULL, sizeof(ndb_shared_file), PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
	if (file == MAP_FAILED) return io_error("map", path);
	shared->file = file;
	if (alone) code = fill_file(shared->file, path);
	if (code == NDB_OK && !is_ours(shared->file))
		code = ndb_fail(
		    NDB_E_ARGUMENT, "another version of the program has %s open: close it first", path);
	if (code == NDB_OK) code = take_slot(shared);
	return code;
}

static void discard(ndb_shared *shared) {
	if (shared->file) munmap(shared->file, sizeof *shared->file);
	if (shared->fd >= 0) close(shared->fd);
	free(shared);
}

int ndb_shared_open(const char *folder, ndb_shared **out) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	char path[PATH_MAX];
	if ((size_t)snprintf(path, sizeof path, "%s/shared", folder) >= sizeof path)
		return ndb_fail(NDB_E_ARGUMENT, "folder name too long: %.100s…", folder);
	ndb_shared *shared = calloc(1, sizeof *shared);
	if (!shared) return ndb_fail(NDB_E_MEMORY, "no memory to open %s", path);
	/* A fork must wait until the descriptor is in the list. */
	pthread_mutex_lock(&opened_lock);
	int code;
	shared->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (shared->fd < 0) code = io_error("open", path);
	else if (ndb_byte_lock(shared->fd, F_OFD_SETLKW, F_WRLCK, NDB_BYTE_OPENING, 1) < 0)
		code = io_error("lock", path);
	else code = map_file(shared, path);
	if (code == NDB_OK) {
		ndb_byte_lock(shared->fd, F_OFD_SETLK, F_UNLCK, NDB_BYTE_OPENING, 1);
		shared->next = opened;
		opened = shared;
		*out = shared;
	} else {
		discard(shared); /* releases its locks */
	}
	pthread_mutex_unlock(&opened_lock);
	return code;
}

int ndb_shared_own_unit(ndb_shared *shared) {
	ndb_cell *cell = &shared->file->lease;
	if (ndb_byte_lock(shared->fd, F_OFD_SETLK, F_WRLCK, NDB_BYTE_UNIT, 1) == 0) {
		atomic_store(&cell->owner, shared->me); /* for messages of others */
		return NDB_OK;
	}
	if (errno != EAGAIN && errno != EACCES) return io_error("lock", "the file shared");
	return ndb_fail(NDB_E_IN_USE, "process %u has the folder open: stop it first",
	    ndb_shared_pid(shared, atomic_load(&cell->owner)));
}

int ndb_shared_begin_creation(ndb_shared *shared) {
	return ndb_byte_lock(shared->fd, F_OFD_SETLKW, F_WRLCK, NDB_BYTE_OPENING, 1) < 0
	           ? io_error("lock", "the file shared")
	           : NDB_OK;
}

void ndb_shared_end_creation(ndb_shared *shared) {
	ndb_byte_lock(shared->fd, F_OFD_SETLK, F_UNLCK, NDB_BYTE_OPENING, 1);
}

void ndb_shared_close(ndb_shared *shared) {
	if (!shared) return;
	if (shared->fd >= 0 && ndb_shared_lock(shared, 1000) == NDB_OK) {
		ndb_locks_drop_slot(shared->file, (uint16_t)NDB_SLOT_OF(shared->me));
		ndb_shared_unlock(shared);
	}
	pthread_mutex_lock(&opened_lock);
	for (ndb_shared **at = &opened; *at; at = &(*at)->next) {
		if (*at != shared) continue;
		*at = shared->next;
		break;
	}
	discard(shared);
	pthread_mutex_unlock(&opened_lock);
}

/* ---- the mutex ---- */

int ndb_shared_lock(ndb_shared *shared, int64_t wait_ms) {
	if (shared->fd < 0) return ndb_shared_refuse_child();
	pthread_mutex_t *mutex = &shared->file->mutex;
	int error = pthread_mutex_trylock(mutex);
	if (error == EBUSY && wait_ms < 0) error = pthread_mutex_lock(mutex);
	if (error == EBUSY) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += wait_ms / 1000;
		until.tv_nsec += wait_ms % 1000 * 1000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		error = pthread_mutex_timedlock(mutex, &until);
	}
	switch (error) {
	case 0: return NDB_OK;
	case EOWNERDEAD:
		ndb_locks_rebuild(shared);
		pthread_mutex_consistent(mutex);
		return NDB_OK;
	case ETIMEDOUT:
		return ndb_fail(NDB_E_TIMEOUT,
		    "a process holds the lock table and does not continue: check for a stopped process");
	}
	return ndb_fail(NDB_E_CORRUPT, "the mutex of the file shared: %s", strerror(error));
}

void ndb_shared_unlock(ndb_shared *shared) { pthread_mutex_unlock(&shared->file->mutex); }
