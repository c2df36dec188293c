//go:build cgo && lmdb

/* locktable.c: the entries and blocks of the lock table; see locktable.h. */
#include "locktable.h"

#include <string.h>

static uint32_t take_block(ndb_shared_file *file) {
	uint32_t block = file->free_block;
	if (block == NDB_NO_BLOCK) return file->block_end++;
	file->free_block = file->blocks[block].next;
	file->free_blocks--;
	return block;
}

void ndb_lock_entry_add(ndb_shared *shared, uint32_t session, const ndb_lock_key *key) {
	ndb_shared_file *file = shared->file;
	uint32_t i = 0, first = NDB_NO_BLOCK, last = NDB_NO_BLOCK;
	while (file->locks[i].used) i++;
	for (uint32_t at = 0; at < key->len; at += NDB_LOCK_BLOCK_BYTES) {
		uint32_t block = take_block(file);
		uint32_t part = key->len - at < NDB_LOCK_BLOCK_BYTES ? key->len - at : NDB_LOCK_BLOCK_BYTES;
		memcpy(file->blocks[block].bytes, key->bytes + at, part);
		file->blocks[block].next = NDB_NO_BLOCK;
		if (last == NDB_NO_BLOCK) first = block;
		else file->blocks[last].next = block;
		last = block;
	}
	ndb_lock_entry *entry = &file->locks[i];
	entry->session = session;
	entry->slot = (uint16_t)NDB_SLOT_OF(shared->me);
	entry->len = (uint16_t)key->len;
	entry->count = 1;
	entry->block = first;
	memcpy(entry->hash, key->hash, sizeof entry->hash);
	atomic_store(&entry->used, key->depth + 1);
	if (i >= file->lock_end) file->lock_end = i + 1;
}

void ndb_lock_entry_free(ndb_shared_file *file, ndb_lock_entry *entry) {
	uint32_t block = entry->block, count = ndb_lock_blocks(entry->len);
	atomic_store(&entry->used, 0);
	while (count--) {
		uint32_t next = file->blocks[block].next;
		file->blocks[block].next = file->free_block;
		file->free_block = block;
		file->free_blocks++;
		block = next;
	}
	while (file->lock_end && !file->locks[file->lock_end - 1].used) file->lock_end--;
}

void ndb_locks_announce(ndb_shared_file *file) {
	atomic_fetch_add(&file->releases, 1);
	if (atomic_load(&file->waiters)) ndb_wake_word(&file->releases);
}

void ndb_locks_drop_slot(ndb_shared_file *file, uint16_t slot) {
	int any = 0;
	for (uint32_t i = file->lock_end; i-- > 0;) {
		if (!file->locks[i].used || file->locks[i].slot != slot) continue;
		ndb_lock_entry_free(file, &file->locks[i]);
		any = 1;
	}
	if (any) ndb_locks_announce(file);
}

void ndb_locks_rebuild(ndb_shared *shared) {
	ndb_shared_file *file = shared->file;
	uint8_t in_use[NDB_LOCK_BLOCKS / 8] = {0};
	file->lock_end = file->block_end = 0;
	for (uint32_t i = 0; i < NDB_LOCKS_MAX; i++) {
		ndb_lock_entry *entry = &file->locks[i];
		if (!entry->used) continue;
		uint32_t left = entry->slot < NDB_PROCESSES_MAX && entry->len <= NDB_KEY_MAX
		                    ? ndb_lock_blocks(entry->len)
		                    : 0;
		int keep = left > 0 && ndb_shared_alive(shared, ndb_lock_owner(file, entry));
		for (uint32_t block = entry->block; keep && left;
		     left--, block = file->blocks[block].next) {
			keep = block < NDB_LOCK_BLOCKS && !(in_use[block / 8] >> block % 8 & 1);
			if (!keep) break;
			in_use[block / 8] |= (uint8_t)(1 << block % 8);
			if (block >= file->block_end) file->block_end = block + 1;
		}
		if (keep) file->lock_end = i + 1;
		else atomic_store(&entry->used, 0);
	}
	file->rebuilds++;
	file->free_block = NDB_NO_BLOCK;
	file->free_blocks = 0;
	for (uint32_t block = 0; block < file->block_end; block++) {
		if (in_use[block / 8] >> block % 8 & 1) continue;
		file->blocks[block].next = file->free_block;
		file->free_block = block;
		file->free_blocks++;
	}
	ndb_locks_announce(file);
}
