/* locktable.h: the lock table in the file `shared` (private).
 *
 * An entry is valid while `used` is set, which is written last and cleared first. A crash in
 * between leaves blocks that belong to no entry; the next holder of the mutex rebuilds the lists
 * from the entries.
 *
 * Lock: every function expects the mutex of the file to be held, and leaves it held. */
#ifndef NODEDB_LOCKTABLE_H
#define NODEDB_LOCKTABLE_H

#include "shared.h"

enum {
	NDB_LOCK_HASHES = 3
};

/* A key, prepared for its entry. */
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

/* Adds an entry for a lock of this process. The table must have a free entry and enough blocks. */
void ndb_lock_entry_add(ndb_shared *shared, uint32_t session, const ndb_lock_key *key);
void ndb_lock_entry_free(ndb_shared_file *file, ndb_lock_entry *entry);
/* Wakes processes that wait for a lock. */
void ndb_locks_announce(ndb_shared_file *file);
/* Releases the locks of a slot. */
void ndb_locks_drop_slot(ndb_shared_file *file, uint16_t slot);
/* Repairs the table after a crash with the mutex held, or clears it. */
void ndb_locks_rebuild(ndb_shared *shared);

#endif
