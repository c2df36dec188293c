//go:build cgo && lmdb

/* lock.c: counted locks on nodes, across processes.
 *
 * A lock conflicts with those of other sessions on the same node, its ancestors and its
 * descendants. The table in the file `shared` has an entry per session and node; a mutex
 * guards it (shared.h). Who waits sleeps until something is released, and looks at least
 * every POLL_MS whether the holder is still alive. There is no queue and no search for
 * deadlocks: give a timeout.
 *
 * An entry counts while `used` is set, which is written last and cleared first. A death in
 * between leaves blocks that belong to no entry; the next who takes the mutex rebuilds the
 * lists from the entries. */
#include <string.h>

#include "core.h"

enum {
  POLL_MS = 50,
  MUTEX_MS = 1000, /* beyond the caller's time: only a stopped process holds the mutex for long */
  HASHES = 3
};

/* A key with what its entry needs. */
typedef struct {
  const char *bytes;
  uint32_t len, depth;
  uint32_t hash[HASHES];
} lock_key;

static uint32_t hash_on(uint32_t hash, const char *bytes, size_t len) {
  for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
  return hash;
}

static int describe(const ndb_key *key, lock_key *out) {
  const char *end = key->len <= NDB_KEY_MAX ? memchr(key->key, 0, key->len) : NULL;
  if (!end) return ndb_fail(NDB_E_ARGUMENT, "not the key of a node");
  size_t at = (size_t)(end - key->key) + 1;
  *out = (lock_key){key->key, (uint32_t)key->len, 0, {0}};
  uint32_t hash = hash_on(2166136261u, key->key, at);
  out->hash[0] = out->hash[1] = out->hash[2] = hash;
  while (at < key->len) {
    int len = ndb_key_subscript_len(key->key, key->len, at);
    if (len < 0) return len;
    out->depth++;
    if (out->depth < HASHES) {
      hash = hash_on(hash, key->key + at, (size_t)len);
      for (uint32_t i = out->depth; i < HASHES; i++) out->hash[i] = hash;
    }
    at += (size_t)len;
  }
  return NDB_OK;
}

/* ---- entries and blocks; all with the mutex ---- */

static uint32_t blocks_for(uint32_t len) { return (len + NDB_LOCK_BLOCK_BYTES - 1) / NDB_LOCK_BLOCK_BYTES; }

/* Compares the first len bytes of an entry's key; *next is the byte behind them, -1 if none. */
static int begins_with(const ndb_shared_file *file, const ndb_lock_entry *entry, const char *bytes, uint32_t len, int *next) {
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

/* 1 if one of the nodes is the other or an ancestor of it. */
static int is_related(const ndb_shared_file *file, const ndb_lock_entry *entry, const lock_key *key) {
  uint32_t depth = atomic_load_explicit(&entry->used, memory_order_relaxed) - 1;
  uint32_t level = depth < key->depth ? depth : key->depth;
  if (level >= HASHES) level = HASHES - 1;
  if (entry->hash[level] != key->hash[level]) return 0;
  int next;
  if (!begins_with(file, entry, key->bytes, entry->len < key->len ? entry->len : key->len, &next)) return 0;
  if (entry->len < key->len) next = (unsigned char)key->bytes[entry->len];
  return next != 0xFF; /* 5 is the beginning of 5.5, and not its ancestor */
}

static ndb_lock_entry *find_own(ndb_shared *shared, uint32_t session, const lock_key *key) {
  ndb_shared_file *file = shared->file;
  int next;
  for (uint32_t i = 0; i < file->lock_end; i++) {
    ndb_lock_entry *entry = &file->locks[i];
    if (entry->used && entry->slot == NDB_SLOT_OF(shared->me) && entry->session == session && entry->len == key->len &&
        entry->hash[HASHES - 1] == key->hash[HASHES - 1] && begins_with(file, entry, key->bytes, key->len, &next))
      return entry;
  }
  return NULL;
}

/* An entry of another session that conflicts, or NULL. */
static ndb_lock_entry *find_conflict(ndb_shared *shared, uint32_t session, const lock_key *key) {
  ndb_shared_file *file = shared->file;
  for (uint32_t i = 0; i < file->lock_end; i++) {
    ndb_lock_entry *entry = &file->locks[i];
    if (!entry->used || (entry->slot == NDB_SLOT_OF(shared->me) && entry->session == session)) continue;
    if (is_related(file, entry, key)) return entry;
  }
  return NULL;
}

static void free_entry(ndb_shared_file *file, ndb_lock_entry *entry) {
  uint32_t block = entry->block, count = blocks_for(entry->len);
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

static uint32_t take_block(ndb_shared_file *file) {
  uint32_t block = file->free_block;
  if (block == NDB_NO_BLOCK) return file->block_end++;
  file->free_block = file->blocks[block].next;
  file->free_blocks--;
  return block;
}

/* There is an entry and there are blocks for it. */
static void add_entry(ndb_shared *shared, uint32_t session, const lock_key *key) {
  ndb_shared_file *file = shared->file;
  uint32_t i = 0, first = NDB_NO_BLOCK, last = NDB_NO_BLOCK;
  while (file->locks[i].used) i++;
  for (uint32_t at = 0; at < key->len; at += NDB_LOCK_BLOCK_BYTES) {
    uint32_t block = take_block(file);
    uint32_t part = key->len - at < NDB_LOCK_BLOCK_BYTES ? key->len - at : NDB_LOCK_BLOCK_BYTES;
    memcpy(file->blocks[block].bytes, key->bytes + at, part);
    file->blocks[block].next = NDB_NO_BLOCK;
    if (last == NDB_NO_BLOCK)
      first = block;
    else
      file->blocks[last].next = block;
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

static ndb_owner owner_of(const ndb_shared_file *file, const ndb_lock_entry *entry) {
  return (ndb_owner)atomic_load(&file->slots[entry->slot].generation) << 32 | (entry->slot + 1u);
}

static void announce_release(ndb_shared_file *file) {
  atomic_fetch_add(&file->releases, 1);
  if (atomic_load(&file->waiters)) ndb_wake_word(&file->releases);
}

void ndb_locks_drop_slot(ndb_shared_file *file, uint16_t slot) {
  int any = 0;
  for (uint32_t i = file->lock_end; i-- > 0;) {
    if (!file->locks[i].used || file->locks[i].slot != slot) continue;
    free_entry(file, &file->locks[i]);
    any = 1;
  }
  if (any) announce_release(file);
}

void ndb_locks_rebuild(ndb_shared *shared) {
  ndb_shared_file *file = shared->file;
  uint8_t in_use[NDB_LOCK_BLOCKS / 8] = {0};
  file->lock_end = file->block_end = 0;
  for (uint32_t i = 0; i < NDB_LOCKS_MAX; i++) {
    ndb_lock_entry *entry = &file->locks[i];
    if (!entry->used) continue;
    uint32_t left = entry->slot < NDB_PROCESSES_MAX && entry->len <= NDB_KEY_MAX ? blocks_for(entry->len) : 0;
    int keep = left > 0 && ndb_shared_alive(shared, owner_of(file, entry));
    for (uint32_t block = entry->block; keep && left; left--, block = file->blocks[block].next) {
      keep = block < NDB_LOCK_BLOCKS && !(in_use[block / 8] >> block % 8 & 1);
      if (!keep) break;
      in_use[block / 8] |= (uint8_t)(1 << block % 8);
      if (block >= file->block_end) file->block_end = block + 1;
    }
    if (keep)
      file->lock_end = i + 1;
    else
      atomic_store(&entry->used, 0);
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
  announce_release(file);
}

/* ---- taking ---- */

enum { DESCRIBED_MAX = 64 }; /* keys of one call */

/* Checks that all keys fit into the table. */
static int check_room(ndb_shared *shared, uint32_t session, const lock_key *keys, size_t count) {
  ndb_shared_file *file = shared->file;
  uint32_t entries = 0, blocks = 0, free_entries = NDB_LOCKS_MAX;
  for (size_t i = 0; i < count; i++) {
    const ndb_lock_entry *own = find_own(shared, session, &keys[i]);
    if (own && own->count >= UINT32_MAX - DESCRIBED_MAX) return ndb_fail(NDB_E_LOCKS, "the lock was taken %u times and cannot count further", own->count);
    entries += !own;
    blocks += own ? 0 : blocks_for(keys[i].len);
  }
  if (!entries) return NDB_OK;
  for (uint32_t i = 0; i < file->lock_end; i++) free_entries -= file->locks[i].used != 0;
  if (entries > free_entries || blocks > file->free_blocks + (NDB_LOCK_BLOCKS - file->block_end))
    return ndb_fail(NDB_E_LOCKS, "the table of locks is full: it has %d locks, and %d bytes for their keys; lock common parents instead", NDB_LOCKS_MAX,
                    NDB_LOCK_BLOCKS * NDB_LOCK_BLOCK_BYTES);
  return NDB_OK;
}

/* One attempt: NDB_NONE if a living session holds a conflicting lock; *holder is its process
 * and *releases what to wait on. */
static int try_take(ndb_shared *shared, uint32_t session, const lock_key *keys, size_t count, int64_t wait_ms, uint32_t *holder, uint32_t *releases) {
  int code = ndb_shared_lock(shared, wait_ms < 0 ? -1 : wait_ms + MUTEX_MS);
  if (code != NDB_OK) return code;
  ndb_shared_file *file = shared->file;
  for (size_t i = 0; i < count && code == NDB_OK;) {
    ndb_lock_entry *conflict = find_conflict(shared, session, &keys[i]);
    if (!conflict) {
      i++;
    } else if (!ndb_shared_alive(shared, owner_of(file, conflict))) {
      ndb_locks_drop_slot(file, conflict->slot);
    } else {
      *holder = ndb_shared_pid(shared, owner_of(file, conflict));
      code = NDB_NONE;
    }
  }
  if (code == NDB_OK) code = check_room(shared, session, keys, count);
  if (code == NDB_OK) {
    for (size_t i = 0; i < count; i++) {
      ndb_lock_entry *own = find_own(shared, session, &keys[i]);
      if (own)
        own->count++;
      else
        add_entry(shared, session, &keys[i]);
    }
  }
  *releases = atomic_load(&file->releases);
  ndb_shared_unlock(shared);
  return code;
}

int ndb_locks_take(ndb_shared *shared, uint32_t session, const ndb_key *keys, size_t count, int64_t timeout_ms) {
  lock_key described[DESCRIBED_MAX];
  if (count > DESCRIBED_MAX) return ndb_fail(NDB_E_ARGUMENT, "%zu locks at once; at most %d are taken together", count, DESCRIBED_MAX);
  for (size_t i = 0; i < count; i++) {
    int code = describe(&keys[i], &described[i]);
    if (code != NDB_OK) return code;
  }
  /* One more than asked for: the clock has whole milliseconds, and no wait is too short. */
  uint64_t end = timeout_ms > 0 ? ndb_clock_ms() + (uint64_t)timeout_ms + 1 : 0;
  for (;;) {
    uint64_t now = end ? ndb_clock_ms() : 0;
    int64_t left = timeout_ms < 0 ? -1 : now < end ? (int64_t)(end - now) : 0;
    uint32_t holder = 0, releases = 0;
    int code = try_take(shared, session, described, count, left, &holder, &releases);
    if (code != NDB_NONE) return code;
    if (left == 0) return ndb_fail(NDB_E_TIMEOUT, "the lock is held by process %u and was not free within %lld ms", holder, (long long)timeout_ms);
    atomic_fetch_add(&shared->file->waiters, 1);
    ndb_wait_word(&shared->file->releases, releases, left < 0 || left > POLL_MS ? POLL_MS : (uint32_t)left);
    atomic_fetch_sub(&shared->file->waiters, 1);
  }
}

/* ---- releasing ---- */

int ndb_locks_release(ndb_shared *shared, uint32_t session, const char *key, size_t len) {
  lock_key described;
  int code = describe(&(ndb_key){key, len}, &described);
  if (code == NDB_OK) code = ndb_shared_lock(shared, -1);
  if (code != NDB_OK) return code;
  ndb_lock_entry *own = find_own(shared, session, &described);
  if (!own)
    code = NDB_NONE;
  else if (own->count > 1)
    own->count--;
  else {
    free_entry(shared->file, own);
    announce_release(shared->file);
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
    if (!entry->used || entry->slot != NDB_SLOT_OF(shared->me) || entry->session != session) continue;
    free_entry(file, entry);
    any = 1;
  }
  if (any) announce_release(file);
  ndb_shared_unlock(shared);
}

uint32_t ndb_locks_count(ndb_shared *shared) {
  if (ndb_shared_lock(shared, 1000) != NDB_OK) return 0;
  ndb_shared_file *file = shared->file;
  uint32_t count = 0;
  for (uint32_t i = file->lock_end; i-- > 0;) {
    if (i >= file->lock_end || !file->locks[i].used) continue;
    if (ndb_shared_alive(shared, owner_of(file, &file->locks[i])))
      count++;
    else
      ndb_locks_drop_slot(file, file->locks[i].slot);
  }
  ndb_shared_unlock(shared);
  return count;
}

/* ---- of sessions ---- */

int ndb_lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms) {
  int error = ndb_session_enter(s);
  if (error < 0) return error;
  if (!s->store || !s->store->shared)
    return ndb_fail(NDB_E_ARGUMENT, s->store ? "the folder cannot be written, so it has no locks" : "the session has no store: locks belong to one");
  if (!s->lock_session) s->lock_session = atomic_fetch_add(&s->store->shared->sessions, 1) + 1;
  if ((error = ndb_locks_take(s->store->shared, s->lock_session, keys, count, timeout_ms)) < 0) return error;
  if (s->store->options.read_only) return NDB_OK;
  /* What another process set under these locks may still be pending there: with the right to
   * write comes all of it. */
  if ((error = ndb_store_lock_write(s->store, s)) < 0) {
    for (size_t i = 0; i < count; i++) ndb_locks_release(s->store->shared, s->lock_session, keys[i].key, keys[i].len);
    return error;
  }
  pthread_mutex_unlock(&s->store->lock);
  return NDB_OK;
}

int ndb_unlock(ndb_session *s, const char *key, size_t len) {
  int error = ndb_session_enter(s);
  if (error < 0) return error;
  return s->lock_session ? ndb_locks_release(s->store->shared, s->lock_session, key, len) : NDB_NONE;
}

void ndb_unlock_all(ndb_session *s) {
  if (s->lock_session) ndb_locks_release_all(s->store->shared, s->lock_session);
}
