//go:build cgo && lmdb

/* lock.c: counted locks on nodes, across processes.
 *
 * A lock conflicts with those of other sessions on the same node, its ancestors and its
 * descendants. The lock table in the file `shared` has an entry per session and node; a mutex
 * guards it (shared.h). A waiter sleeps until a lock is released, and checks at least every
 * POLL_MS whether the holder is still alive. Waiters do not queue, and deadlocks are not
 * detected: set a timeout. */
#include <string.h>

#include "core.h"
#include "locktable.h"

enum {
	POLL_MS = 50,
	MUTEX_MS =
	    1000, /* added to the caller's timeout: only a stopped process holds the mutex long */
};

static uint32_t hash_on(uint32_t hash, const char *bytes, size_t len) {
	for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
	return hash;
}

static int describe(const ndb_key *key, ndb_lock_key *out) {
	const char *end = key->len <= NDB_KEY_MAX ? memchr(key->key, 0, key->len) : NULL;
	if (!end) return ndb_fail(NDB_E_ARGUMENT, "invalid key: it has no name");
	size_t at = (size_t)(end - key->key) + 1;
	*out = (ndb_lock_key){key->key, (uint32_t)key->len, 0, {0}};
	uint32_t hash = hash_on(2166136261u, key->key, at);
	out->hash[0] = out->hash[1] = out->hash[2] = hash;
	while (at < key->len) {
		int len = ndb_key_subscript_len(key->key, key->len, at);
		if (len < 0) return len;
		out->depth++;
		if (out->depth < NDB_LOCK_HASHES) {
			hash = hash_on(hash, key->key + at, (size_t)len);
			for (uint32_t i = out->depth; i < NDB_LOCK_HASHES; i++) out->hash[i] = hash;
		}
		at += (size_t)len;
	}
	return NDB_OK;
}

/* ---- entries for a key. Mutex: held. ---- */

/* Compares the first len bytes of an entry's key; *next is the byte after them, -1 at the end. */
static int begins_with(const ndb_shared_file *file, const ndb_lock_entry *entry, const char *bytes,
    uint32_t len, int *next) {
	uint32_t block = entry->block, at = 0;
	for (;;) {
		uint32_t part = len - at < NDB_LOCK_BLOCK_BYTES ? len - at : NDB_LOCK_BLOCK_BYTES;
		if (part && memcmp(file->blocks[block].bytes, bytes + at, part)) return 0;
		at += part;
		if (at == len && (part < NDB_LOCK_BLOCK_BYTES || len == entry->len)) {
			*next = len < entry->len ? (unsigned char)file->blocks[block].bytes[part] : -1;
			return 1;
		}
		block = file->blocks[block].next;
	}
}

/* True if the nodes are the same, or one is an ancestor of the other. */
static int is_related(
    const ndb_shared_file *file, const ndb_lock_entry *entry, const ndb_lock_key *key) {
	uint32_t depth = atomic_load_explicit(&entry->used, memory_order_relaxed) - 1;
	uint32_t level = depth < key->depth ? depth : key->depth;
	if (level >= NDB_LOCK_HASHES) level = NDB_LOCK_HASHES - 1;
	if (entry->hash[level] != key->hash[level]) return 0;
	int next;
	if (!begins_with(file, entry, key->bytes, entry->len < key->len ? entry->len : key->len, &next))
		return 0;
	if (entry->len < key->len) next = (unsigned char)key->bytes[entry->len];
	return next != 0xFF; /* the encoding of 5 starts that of 5.5, but is not its ancestor */
}

static ndb_lock_entry *find_own(ndb_shared *shared, uint32_t session, const ndb_lock_key *key) {
	ndb_shared_file *file = shared->file;
	int next;
	for (uint32_t i = 0; i < file->lock_end; i++) {
		ndb_lock_entry *entry = &file->locks[i];
		if (entry->used && entry->slot == NDB_SLOT_OF(shared->me) && entry->session == session &&
		    entry->len == key->len &&
		    entry->hash[NDB_LOCK_HASHES - 1] == key->hash[NDB_LOCK_HASHES - 1] &&
		    begins_with(file, entry, key->bytes, key->len, &next))
			return entry;
	}
	return NULL;
}

/* Returns a conflicting entry of another session, or NULL. */
static ndb_lock_entry *find_conflict(
    ndb_shared *shared, uint32_t session, const ndb_lock_key *key) {
	ndb_shared_file *file = shared->file;
	for (uint32_t i = 0; i < file->lock_end; i++) {
		ndb_lock_entry *entry = &file->locks[i];
		if (!entry->used || (entry->slot == NDB_SLOT_OF(shared->me) && entry->session == session))
			continue;
		if (is_related(file, entry, key)) return entry;
	}
	return NULL;
}

/* ---- taking locks ---- */

enum {
	DESCRIBED_MAX = 64 /* keys per call */
};

/* Checks that the table has space for all keys. Mutex: held. */
static int check_room(
    ndb_shared *shared, uint32_t session, const ndb_lock_key *keys, size_t count) {
	ndb_shared_file *file = shared->file;
	uint32_t entries = 0, blocks = 0, free_entries = NDB_LOCKS_MAX;
	for (size_t i = 0; i < count; i++) {
		const ndb_lock_entry *own = find_own(shared, session, &keys[i]);
		if (own && own->count >= UINT32_MAX - DESCRIBED_MAX)
			return ndb_fail(
			    NDB_E_LOCKS, "the lock is held %u times, the maximum: unlock it first", own->count);
		entries += !own;
		blocks += own ? 0 : ndb_lock_blocks(keys[i].len);
	}
	if (!entries) return NDB_OK;
	for (uint32_t i = 0; i < file->lock_end; i++) free_entries -= file->locks[i].used != 0;
	if (entries > free_entries || blocks > file->free_blocks + (NDB_LOCK_BLOCKS - file->block_end))
		return ndb_fail(NDB_E_LOCKS,
		    "the lock table is full: it holds %d locks, and %d bytes of their keys; lock common ancestors instead",
		    NDB_LOCKS_MAX, NDB_LOCK_BLOCKS * NDB_LOCK_BLOCK_BYTES);
	return NDB_OK;
}

/* Makes one attempt. NDB_NONE: a living session holds a conflicting lock; *holder is the pid of its
 * process, and *releases the futex value to wait on. Mutex: not held. */
static int try_take(ndb_shared *shared, uint32_t session, const ndb_lock_key *keys, size_t count,
    int64_t wait_ms, uint32_t *holder, uint32_t *releases) {
	int code = ndb_shared_lock(shared, wait_ms < 0 ? -1 : wait_ms + MUTEX_MS);
	if (code != NDB_OK) return code;
	ndb_shared_file *file = shared->file;
	for (size_t i = 0; i < count && code == NDB_OK;) {
		ndb_lock_entry *conflict = find_conflict(shared, session, &keys[i]);
		if (!conflict) {
			i++;
		} else if (!ndb_shared_alive(shared, ndb_lock_owner(file, conflict))) {
			ndb_locks_drop_slot(file, conflict->slot);
		} else {
			*holder = ndb_shared_pid(shared, ndb_lock_owner(file, conflict));
			code = NDB_NONE;
		}
	}
	if (code == NDB_OK) code = check_room(shared, session, keys, count);
	if (code == NDB_OK) {
		for (size_t i = 0; i < count; i++) {
			ndb_lock_entry *own = find_own(shared, session, &keys[i]);
			if (own) own->count++;
			else ndb_lock_entry_add(shared, session, &keys[i]);
		}
	}
	*releases = atomic_load(&file->releases);
	ndb_shared_unlock(shared);
	return code;
}

int ndb_locks_take(
    ndb_shared *shared, uint32_t session, const ndb_key *keys, size_t count, int64_t timeout_ms) {
	ndb_lock_key described[DESCRIBED_MAX];
	if (count > DESCRIBED_MAX)
		return ndb_fail(
		    NDB_E_ARGUMENT, "%zu locks in one call: at most %d are allowed", count, DESCRIBED_MAX);
	for (size_t i = 0; i < count; i++) {
		int code = describe(&keys[i], &described[i]);
		if (code != NDB_OK) return code;
	}
	/* 1 ms more than asked for, since the clock counts whole milliseconds. */
	uint64_t end = timeout_ms > 0 ? ndb_clock_ms() + (uint64_t)timeout_ms + 1 : 0;
	for (;;) {
		uint64_t now = end ? ndb_clock_ms() : 0;
		int64_t left = timeout_ms < 0 ? -1 : now < end ? (int64_t)(end - now) : 0;
		uint32_t holder = 0, releases = 0;
		int code = try_take(shared, session, described, count, left, &holder, &releases);
		if (code != NDB_NONE) return code;
		if (left == 0)
			return ndb_fail(NDB_E_TIMEOUT,
			    "process %u holds the lock and did not release it within %lld ms", holder,
			    (long long)timeout_ms);
		atomic_fetch_add(&shared->file->waiters, 1);
		ndb_wait_word(&shared->file->releases, releases,
		    left < 0 || left > POLL_MS ? POLL_MS : (uint32_t)left);
		atomic_fetch_sub(&shared->file->waiters, 1);
	}
}

/* ---- releasing locks ---- */

int ndb_locks_release(ndb_shared *shared, uint32_t session, const char *key, size_t len) {
	ndb_lock_key described;
	int code = describe(&(ndb_key){key, len}, &described);
	if (code == NDB_OK) code = ndb_shared_lock(shared, -1);
	if (code != NDB_OK) return code;
	ndb_lock_entry *own = find_own(shared, session, &described);
	if (!own) code = NDB_NONE;
	else if (own->count > 1) own->count--;
	else {
		ndb_lock_entry_free(shared->file, own);
		ndb_locks_announce(shared->file);
	}
	ndb_shared_unlock(shared);
	return code;
}

void ndb_locks_release_all(ndb_shared *shared, uint32_t session) {
	if (ndb_shared_lock(shared, -1) != NDB_OK) return;
	ndb_shared_file *file = shared->file;
	int any = 0;
	for (uint32_t i = file->lock_end; i-- > 0;) {
		ndb_lock_entry *entry = &file->locks[i];
		if (!entry->used || entry->slot != NDB_SLOT_OF(shared->me) || entry->session != session)
			continue;
		ndb_lock_entry_free(file, entry);
		any = 1;
	}
	if (any) ndb_locks_announce(file);
	ndb_shared_unlock(shared);
}

uint32_t ndb_locks_count(ndb_shared *shared) {
	if (ndb_shared_lock(shared, 1000) != NDB_OK) return 0;
	ndb_shared_file *file = shared->file;
	uint32_t count = 0;
	for (uint32_t i = file->lock_end; i-- > 0;) {
		if (i >= file->lock_end || !file->locks[i].used) continue;
		if (ndb_shared_alive(shared, ndb_lock_owner(file, &file->locks[i]))) count++;
		else ndb_locks_drop_slot(file, file->locks[i].slot);
	}
	ndb_shared_unlock(shared);
	return count;
}

/* ---- locks of sessions ---- */

int ndb_lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (!s->store || !s->store->shared)
		return ndb_fail(NDB_E_ARGUMENT,
		    s->store ? "this process cannot write the folder, so it cannot lock nodes"
		             : "the session has no store, so it cannot lock nodes");
	if (!s->lock_session) s->lock_session = atomic_fetch_add(&s->store->shared->sessions, 1) + 1;
	if ((error = ndb_locks_take(s->store->shared, s->lock_session, keys, count, timeout_ms)) < 0)
		return error;
	if (s->store->options.read_only) return NDB_OK;
	/* Another process may have pending changes that it made under these locks. They are visible
	 * once this process has the right to write. */
	if ((error = ndb_store_lock_write(s->store, s)) < 0) {
		for (size_t i = 0; i < count; i++)
			ndb_locks_release(s->store->shared, s->lock_session, keys[i].key, keys[i].len);
		return error;
	}
	pthread_mutex_unlock(&s->store->lock);
	return NDB_OK;
}

int ndb_unlock(ndb_session *s, const char *key, size_t len) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	return s->lock_session ? ndb_locks_release(s->store->shared, s->lock_session, key, len)
	                       : NDB_NONE;
}

void ndb_unlock_all(ndb_session *s) {
	if (s->lock_session) ndb_locks_release_all(s->store->shared, s->lock_session);
}
