/* locktable.h: the table of locks in the file `shared` (private).
 *
 * An entry counts while `used` is set, which is written last and cleared first. A death in
 * between leaves blocks that belong to no entry; the next who takes the mutex rebuilds the
 * lists from the entries.
 *
 * Lock: the mutex of the file is held on entry of every function, and kept. */
#ifndef NODEDB_LOCKTABLE_H
#define NODEDB_LOCKTABLE_H

#include "shared.h"

enum {
	NDB_LOCK_HASHES = 3
};

/* A key with what its entry needs. */
typedef struct {
	const char *bytes;
	uint32_t len, depth;
	uint32_t hash[NDB_LOCK_HASHES];
} ndb_lock_key;

static inline uint32_t ndb_lock_blocks(uint32_t len) {
	return (len + NDB_LOCK_BLOCK_BYTES - 1) / NDB_LOCK_BLOCK_BYTES;
}

/* The process that holds the lock of an entry. */
static inline ndb_owner ndb_lock_owner(const ndb_shared_file *file, const ndb_lock_entry *entry) {
	return (ndb_owner)atomic_load(&file->slots[entry->slot].generation) << 32 | (entry->slot + 1u);
}

/* Adds an entry of this process. There is an entry and there are blocks for it. */
void ndb_lock_entry_add(ndb_shared *shared, uint32_t session, const ndb_lock_key *key);
void ndb_lock_entry_free(ndb_shared_file *file, ndb_lock_entry *entry);
/* Wakes those who wait for a lock. */
void ndb_locks_announce(ndb_shared_file *file);
/* Drops the locks of a slot. */
void ndb_locks_drop_slot(ndb_shared_file *file, uint16_t slot);
/* Makes the table whole after a death in the mutex, or empty. */
void ndb_locks_rebuild(ndb_shared *shared);

#endif
