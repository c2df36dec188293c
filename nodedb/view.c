//go:build cgo && lmdb

/* view.c: snapshots of LMDB, the layers over them, and the encoding of values.
 *
 * A snapshot is a read transaction that threads share. LMDB allows that without MDB_NOTLS
 * as long as no thread changes the transaction itself: its sub-databases are opened together with
 * it, and later reads only follow pages.
 *
 * When the file outgrows its map, the file is mapped a second time, and the old map stays until the
 * last snapshot that uses it is released, so that readers need not stop.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core.h"

int ndb_read_fences;

int ndb_lmdb_error(int rc, const char *doing) {
	switch (rc) {
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
	case MDB_BAD_VALSIZE:
	case MDB_INCOMPATIBLE:
	case MDB_BAD_TXN:
	case MDB_CURSOR_FULL:
	case MDB_PAGE_FULL:
	case MDB_KEYEXIST:
	case MDB_BAD_DBI:
		return ndb_fail(NDB_E_CORRUPT,
		    "%s: the file is damaged (%s): list its faults with perigee node check, or restore a backup",
		    doing, mdb_strerror(rc));
	case MDB_READERS_FULL:
		return ndb_fail(NDB_E_MEMORY, "%s: too many processes are reading the store", doing);
	case ENOMEM: return ndb_fail(NDB_E_MEMORY, "%s: out of memory", doing);
	default: return ndb_fail(NDB_E_DISK, "%s: %s", doing, mdb_strerror(rc));
	}
}

/* ---- maps and snapshots ---- */

static void map_unref(ndb_map *m) {
	while (m && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1) {
		ndb_map *newer = m->newer;
		if (m->retired) munmap(m->retired, m->size);
		free(m);
		m = newer;
	}
}

int ndb_store_remap_locked(ndb_store *store, size_t size) {
	ndb_map *fresh = malloc(sizeof *fresh);
	if (!fresh) return ENOMEM;
	atomic_init(&fresh->refs, 2); /* held by the store and by the previous map */
	fresh->retired = NULL, fresh->size = 0, fresh->newer = NULL;
	void *old;
	size_t old_size;
	int rc = lmdb_remap(store->env, size, &old, &old_size);
	if (rc || !old) {
		free(fresh);
		return rc;
	}
	ndb_map *replaced = store->map;
	replaced->retired = old, replaced->size = old_size, replaced->newer = fresh;
	store->map = fresh;
	/* Unmapping gigabytes takes longer than an event may: the committer of a unit does it. */
	if (!store->unit) map_unref(replaced);
	else if (!store->replaced) store->replaced = replaced;
	return 0;
}

int ndb_store_unmap(ndb_store *store, int closing) {
	pthread_mutex_lock(&store->map_lock);
	ndb_map *first = store->replaced, *end = first;
	/* Each is held here, and all but the first by the one before. */
	while (end && end != store->map &&
	       (closing ||
	           atomic_load_explicit(&end->refs, memory_order_acquire) == (end == first ? 1 : 2)))
		end = end->newer;
	store->replaced = end == store->map ? NULL : end;
	int left = store->replaced != NULL;
	pthread_mutex_unlock(&store->map_lock);
	while (first != end) {
		ndb_map *next = first->newer;
		map_unref(first);
		first = next;
	}
	return left;
}

int ndb_snapshot_open(ndb_store *store, ndb_snapshot **out) {
	ndb_snapshot *s = malloc(sizeof *s);
	if (!s) return ndb_fail(NDB_E_MEMORY, "out of memory");
	atomic_init(&s->refs, 1);
	pthread_mutex_lock(&store->map_lock);
	int rc, cleared = 0;
	while ((rc = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &s->txn)) != 0) {
		if (rc == MDB_MAP_RESIZED && (rc = ndb_store_remap_locked(store, 0)) == 0) continue;
		if (rc == MDB_READERS_FULL && !cleared++ && mdb_reader_check(store->env, NULL) == 0)
			continue;
		pthread_mutex_unlock(&store->map_lock);
		free(s);
		return ndb_lmdb_error(rc, "open a snapshot");
	}
	s->map = store->map;
	atomic_fetch_add_explicit(&s->map->refs, 1, memory_order_relaxed);
	pthread_mutex_unlock(&store->map_lock);
	s->number = mdb_txn_id(s->txn);
	MDB_stat nodes, expiry, meta;
	if ((rc = mdb_stat(s->txn, store->nodes, &nodes)) != 0 ||
	    (rc = mdb_stat(s->txn, store->expiry, &expiry)) != 0 ||
	    (rc = mdb_stat(s->txn, store->meta, &meta)) != 0) {
		ndb_snapshot_unref(s);
		return ndb_lmdb_error(rc, "open a snapshot");
	}
	s->nodes = nodes.ms_entries, s->expiring = expiry.ms_entries;
	*out = s;
	return NDB_OK;
}

void ndb_snapshot_unref(ndb_snapshot *s) {
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
	mdb_txn_abort(s->txn);
	map_unref(s->map);
	free(s);
}

int ndb_store_refresh(ndb_store *store) {
	if (store->base && *store->last_commit == store->base->number) return NDB_OK;
	ndb_snapshot *fresh;
	int error = ndb_snapshot_open(store, &fresh);
	if (error < 0) return error;
	ndb_snapshot_unref(store->base);
	store->base = fresh;
	if (store->last_commit == &store->only_commit) store->only_commit = fresh->number;
	if (store->unit_folder && !store->unit) {
		ndb_unit_record record;
		if (ndb_unit_read(store, fresh->txn, &record) == NDB_OK)
			ndb_unit_set_clock(store, record.clock);
	}
	store->moved++;
	store->sweeps = fresh->expiring != 0;
	store->foreign += !store->base_released || fresh->number != store->base_released;
	store->base_released = 0;
	ndb_store_held(store);
	atomic_fetch_add_explicit(&store->version, 1, memory_order_release);
	return NDB_OK;
}

/* ---- layers ---- */

void ndb_layer_init(ndb_layer *l) {
	l->filter = NULL, l->index = NULL;
	ndb_tree_init(&l->entries);
	ndb_tree_init(&l->kills);
}

void ndb_layer_clear(ndb_layer *l) {
	ndb_filter_unref(l->filter);
	ndb_index_unref(l->index);
	l->filter = NULL, l->index = NULL;
	ndb_tree_clear(&l->entries);
	ndb_tree_clear(&l->kills);
}

void ndb_layer_fork(ndb_layer *l, ndb_layer *copy) {
	copy->filter = NULL, copy->index = NULL; /* the copy will change */
	ndb_tree_fork(&l->entries, &copy->entries);
	ndb_tree_fork(&l->kills, &copy->kills);
}

const ndb_entry *ndb_kill_of(const ndb_tree_node *kills, const char *key, size_t len) {
	if (!kills) return NULL;
	/* Kills never overlap, so only the last one up to key can hide it. */
	const ndb_entry *same = ndb_root_find(kills, key, len);
	if (same) return same;
	ndb_tree_cursor c;
	const ndb_entry *before = ndb_cursor_seek_before(&c, kills, key, len);
	return before && ndb_key_within(key, len, before->data, before->key_len) ? before : NULL;
}

/* Removes the entries within key from the layer's index. */
static void remove_indexed(ndb_layer *l, const char *key, size_t len) {
	ndb_tree_cursor c;
	for (const ndb_entry *e = ndb_cursor_seek(&c, l->entries.root, key, len);
	     e && ndb_key_within(e->data, e->key_len, key, len); e = ndb_cursor_next(&c))
		ndb_index_remove(l->index, e->data, e->key_len);
}

/* Removes the entries within key. */
static int cut_entries(ndb_layer *l, const char *key, size_t len) {
	char end[NDB_KEY_MAX + 1];
	ndb_key_end(end, key, len);
	if (l->index) remove_indexed(l, key, len);
	int error = ndb_tree_cut(&l->entries, key, len, end, len + 1);
	if (error < 0) { /* some of them may be there still */
		ndb_index_unref(l->index);
		l->index = NULL;
	}
	return error;
}

int ndb_layer_kill(ndb_layer *l, const char *key, size_t len, int below) {
	char end[NDB_KEY_MAX + 1];
	ndb_key_end(end, key, len);
	int error = cut_entries(l, key, len);
	if (error < 0 || !below || ndb_kill_of(l->kills.root, key, len)) return error;
	if ((error = ndb_tree_cut(&l->kills, key, len, end, len + 1)) < 0) return error;
	ndb_scalar none = {.type = NDB_ABSENT};
	ndb_entry *e = ndb_entry_new(key, len, &none, 0);
	if (!e) return ndb_fail(NDB_E_MEMORY, "out of memory");
	return ndb_tree_put(&l->kills, e);
}

int ndb_layer_adopt(ndb_layer *l, ndb_entry *const *entries, uint32_t count) {
	uint64_t hashes[NDB_ADOPT_MAX];
	int error;
	/* The memory that the last loop needs arrives while it is requested for the others. */
	for (uint32_t i = 0; i < count; i++) {
		hashes[i] = ndb_hash(entries[i]->data, entries[i]->key_len);
		if ((error = ndb_index_reserve(l, hashes[i])) < 0) return error;
		ndb_index_prefetch(l->index, hashes[i]);
	}
	for (uint32_t i = 0; i < count; i++) ndb_index_prefetch_entry(l->index, hashes[i]);
	for (uint32_t i = 0; i < count; i++) {
		ndb_entry *e = entries[i];
		/* again, as several entries may need the same room */
		if ((error = ndb_index_reserve(l, hashes[i])) < 0) return error;
		ndb_index_slot *s = ndb_index_find(l->index, hashes[i], e->data, e->key_len);
		if (s->entry && ndb_tree_overwrite(&l->entries, s->entry, e)) continue;
		if ((error = ndb_tree_adopt(&l->entries, ndb_entry_ref(e))) < 0) return error;
		ndb_index_fill(l->index, s, hashes[i], e); /* the entry that it had may be freed */
	}
	return NDB_OK;
}

void ndb_view_hold(ndb_view *v) {
	ndb_snapshot_ref(v->base);
	for (uint32_t i = 0; i < v->count; i++) ndb_roots_ref(&v->layers[i]);
}

void ndb_view_release(ndb_view *v) {
	for (uint32_t i = 0; i < v->count; i++) ndb_roots_unref(&v->layers[i]);
	ndb_snapshot_unref(v->base);
	v->base = NULL, v->count = 0;
}

/* ---- the encoding of values ----
 *
 * The first byte is the type, with flag EXPIRES if the time of expiry follows (8 bytes, big endian,
 * ms since 1970), and flag SUM if a checksum is at the end. Then the payload: an integer in the
 * fewest bytes that hold it, least significant first; another double in its 8 bytes; digits and
 * strings unchanged. The checksum covers the key and all bytes before it: 2 bytes, least
 * significant first. */
enum {
	STORED_INTEGER = 1,
	STORED_DOUBLE,
	STORED_DIGITS,
	STORED_STRING,
	STORED_FALSE,
	STORED_TRUE,
	STORED_TYPE = 0x0F,    /* mask of the types above */
	STORED_SUM = 0x40,     /* a checksum is at the end */
	STORED_EXPIRES = 0x80, /* the time of expiry follows */
	SUM_BYTES = 2
};

static int is_small_integer(double d) {
	return d >= -9007199254740992.0 && d <= 9007199254740992.0 && d == (double)(int64_t)d;
}

static int integer_size(int64_t n) {
	int size = 0;
	while (
	    size < 8 &&
	    (size ? n < -((int64_t)1 << (8 * size - 1)) || n >= (int64_t)1 << (8 * size - 1) : n != 0))
		size++;
	return size;
}

size_t ndb_stored_size(const ndb_entry *e, int sums) {
	size_t header = (e->expiry ? 9u : 1u) + (sums ? SUM_BYTES : 0u);
	if (e->type == NDB_NUMBER)
		return header +
		       (is_small_integer(e->number) ? (size_t)integer_size((int64_t)e->number) : 8);
	return header + (e->type == NDB_STRING || e->type == NDB_DIGITS ? e->value_len : 0);
}

static char *put_little(char *out, uint64_t n, int size) {
	for (int i = 0; i < size; i++, n >>= 8) *out++ = (char)n;
	return out;
}

void ndb_stored_write(const ndb_entry *e, int sums, char *out) {
	const char *start = out;
	static const uint8_t types[] = {
	    0, STORED_INTEGER, STORED_DIGITS, STORED_STRING, STORED_FALSE, STORED_TRUE};
	int small = e->type == NDB_NUMBER && is_small_integer(e->number);
	uint8_t type = e->type == NDB_NUMBER && !small ? STORED_DOUBLE : types[e->type];
	*out++ = (char)(type | (e->expiry ? STORED_EXPIRES : 0) | (sums ? STORED_SUM : 0));
	if (e->expiry)
		for (int shift = 56; shift >= 0; shift -= 8) *out++ = (char)(e->expiry >> shift);
	if (small) {
		int64_t n = (int64_t)e->number;
		out = put_little(out, (uint64_t)n, integer_size(n));
	} else if (e->type == NDB_NUMBER) {
		uint64_t bits;
		memcpy(&bits, &e->number, 8);
		out = put_little(out, bits, 8);
	} else if (e->type == NDB_STRING || e->type == NDB_DIGITS) {
		memcpy(out, ndb_entry_value(e), e->value_len);
		out += e->value_len;
	}
	if (sums)
		put_little(
		    out, ndb_record_sum(e->data, e->key_len, start, (size_t)(out - start)), SUM_BYTES);
}

int ndb_stored_is_sound(int sums, const char *key, size_t key_len, const char *data, size_t len) {
	if (len == 0 || !(data[0] & STORED_SUM)) return !sums;
	if (len <= SUM_BYTES) return 0;
	const unsigned char *sum = (const unsigned char *)data + len - SUM_BYTES;
	return (sum[0] | sum[1] << 8) == ndb_record_sum(key, key_len, data, len - SUM_BYTES);
}

static uint64_t stored_expiry(const char *data) {
	uint64_t expiry = 0;
	for (int i = 1; i <= 8; i++) expiry = expiry << 8 | (unsigned char)data[i];
	return expiry;
}

int ndb_stored_expired(const char *data, size_t len, uint64_t now) {
	return len >= 9 && (data[0] & STORED_EXPIRES) &&
	       stored_expiry(data) <= (now ? now : ndb_now_ms());
}

int ndb_stored_read(const char *data, size_t len, ndb_scalar *out, uint64_t *expiry) {
	const char *end = data + len;
	*expiry = 0;
	if (NDB_UNLIKELY(len == 0)) goto corrupt;
	unsigned type = (unsigned char)*data;
	if (NDB_UNLIKELY(type & STORED_EXPIRES)) {
		if (len < 9) goto corrupt;
		*expiry = stored_expiry(data);
		data += 8;
	}
	data++;
	size_t rest = (size_t)(end - data);
	if (type & STORED_SUM) {
		if (NDB_UNLIKELY(rest < SUM_BYTES)) goto corrupt;
		rest -= SUM_BYTES;
	}
	out->bytes = data, out->len = (uint32_t)rest;
	switch (type & ~(unsigned)(STORED_EXPIRES | STORED_SUM)) {
	case STORED_INTEGER: {
		if (rest > 8) goto corrupt;
		uint64_t n = 0;
		for (size_t i = 0; i < rest; i++) n |= (uint64_t)(unsigned char)data[i] << (8 * i);
		if (rest && rest < 8 && (data[rest - 1] & 0x80)) n |= ~(uint64_t)0 << (8 * rest);
		out->type = NDB_NUMBER, out->number = (double)(int64_t)n, out->len = 0;
		return NDB_OK;
	}
	case STORED_DOUBLE: {
		if (rest != 8) goto corrupt;
		uint64_t n = 0;
		for (size_t i = 0; i < 8; i++) n |= (uint64_t)(unsigned char)data[i] << (8 * i);
		memcpy(&out->number, &n, 8);
		out->type = NDB_NUMBER, out->len = 0;
		return NDB_OK;
	}
	case STORED_DIGITS: {
		ndb_scalar number;
		if (!ndb_number_canonical(out->bytes, out->len, &number))
			goto corrupt; /* additions rely on it */
		out->type = NDB_DIGITS;
		return NDB_OK;
	}
	case STORED_STRING: out->type = NDB_STRING; return NDB_OK;
	case STORED_FALSE: out->type = NDB_FALSE; break;
	case STORED_TRUE: out->type = NDB_TRUE; break;
	default: goto corrupt;
	}
	if (rest == 0) return NDB_OK;
corrupt:
	return ndb_fail(NDB_E_CORRUPT,
	    "a value of %zu bytes does not decode: list the faults with perigee node check", len);
}

int ndb_stored_is_text(const char *data) {
	int type = data[0] & STORED_TYPE;
	return type == STORED_STRING || type == STORED_DIGITS;
}

size_t ndb_stored_without_sum(const char *data, size_t len, char *out) {
	size_t kept = ndb_stored_has_sum(data) ? len - SUM_BYTES : len;
	memcpy(out, data, kept);
	*out = (char)(*out & ~STORED_SUM);
	return kept;
}

int ndb_stored_has_sum(const char *data) { return (data[0] & STORED_SUM) != 0; }

int ndb_stored_verify(
    const ndb_store *store, const char *key, size_t key_len, const char *data, size_t len) {
	if (ndb_stored_is_sound(store->sums, key, key_len, data, len)) return NDB_OK;
	return ndb_fail(NDB_E_CORRUPT,
	    "the checksum of a node of %zu bytes does not match: list the faults with perigee node check",
	    key_len + len);
}

/* ---- the record of a unit ---- */

static const char record_name[] = "unit";

enum {
	UNIT_RECORD_BYTES = 32
};

int ndb_unit_read(ndb_store *store, MDB_txn *txn, ndb_unit_record *out) {
	MDB_val key = {sizeof record_name - 1, (void *)(uintptr_t)record_name}, value;
	int rc = mdb_get(txn, store->meta, &key, &value);
	*out = (ndb_unit_record){0};
	if (rc == MDB_NOTFOUND) return NDB_NONE;
	if (rc) return ndb_lmdb_error(rc, "read the unit's record");
	if (value.mv_size != UNIT_RECORD_BYTES)
		return ndb_fail(NDB_E_CORRUPT, "the unit's record is damaged");
	uint64_t *fields[] = {&out->applied, &out->begun, &out->clock, &out->mark};
	for (int i = 0; i < UNIT_RECORD_BYTES; i++)
		*fields[i / 8] |= (uint64_t)((const unsigned char *)value.mv_data)[i] << (i % 8 * 8);
	return NDB_OK;
}

int ndb_unit_write(ndb_store *store, MDB_txn *txn, ndb_unit_record record) {
	char bytes[UNIT_RECORD_BYTES];
	const uint64_t fields[] = {record.applied, record.begun, record.clock, record.mark};
	for (int i = 0; i < UNIT_RECORD_BYTES; i++) bytes[i] = (char)(fields[i / 8] >> (i % 8 * 8));
	MDB_val key = {sizeof record_name - 1, (void *)(uintptr_t)record_name};
	MDB_val value = {sizeof bytes, bytes};
	return mdb_put(txn, store->meta, &key, &value, 0);
}

/* A snapshot that is being loaded: how many of its chunks are in the file, and the unit's record once
 * all are. */
static const char loading_name[] = "loading";

enum {
	LOADING_BYTES = 40
};

int ndb_loading_read(ndb_store *store, MDB_txn *txn, ndb_unit_loading *out) {
	MDB_val key = {sizeof loading_name - 1, (void *)(uintptr_t)loading_name}, value;
	int rc = mdb_get(txn, store->meta, &key, &value);
	*out = (ndb_unit_loading){0};
	if (rc == MDB_NOTFOUND) return NDB_NONE;
	if (rc) return ndb_lmdb_error(rc, "read the record of a load");
	if (value.mv_size != LOADING_BYTES)
		return ndb_fail(NDB_E_CORRUPT, "the record of a load is damaged");
	ndb_unit_record *r = &out->record;
	uint64_t *fields[] = {&out->chunks, &r->applied, &r->begun, &r->clock, &r->mark};
	for (int i = 0; i < LOADING_BYTES; i++)
		*fields[i / 8] |= (uint64_t)((const unsigned char *)value.mv_data)[i] << (i % 8 * 8);
	return NDB_OK;
}

int ndb_loading_write(ndb_store *store, MDB_txn *txn, const ndb_unit_loading *l) {
	MDB_val key = {sizeof loading_name - 1, (void *)(uintptr_t)loading_name};
	if (!l) return mdb_del(txn, store->meta, &key, NULL);
	char bytes[LOADING_BYTES];
	const ndb_unit_record *r = &l->record;
	const uint64_t fields[] = {l->chunks, r->applied, r->begun, r->clock, r->mark};
	for (int i = 0; i < LOADING_BYTES; i++) bytes[i] = (char)(fields[i / 8] >> (i % 8 * 8));
	MDB_val value = {sizeof bytes, bytes};
	return mdb_put(txn, store->meta, &key, &value, 0);
}

/* ---- lookups ---- */

int ndb_layers_find(const ndb_roots *layers, uint32_t count, uint64_t now, uint64_t hash,
    const char *key, size_t len, ndb_scalar *out, uint64_t *expiry, ndb_entry **entry) {
	for (const ndb_roots *l = layers; l < layers + count; l++) {
		ndb_entry *e = NULL;
		if (NDB_UNLIKELY(l->filter || l->index)) {
			if (!hash) hash = ndb_hash(key, len);
			if (l->index) e = ndb_index_find(l->index, hash, key, len)->entry;
			else if (ndb_filter_may_have(l->filter, hash)) e = ndb_root_find(l->entries, key, len);
		} else {
			e = ndb_root_find(l->entries, key, len);
		}
		if (e) {
			*entry = e;
			if (e->type == NDB_ABSENT || (e->expiry && e->expiry <= (now ? now : ndb_now_ms())))
				return NDB_NONE;
			ndb_entry_scalar(e, out);
			*expiry = e->expiry;
			return NDB_OK;
		}
		if (l->kills && ndb_kill_of(l->kills, key, len)) return NDB_NONE;
	}
	return NDB_MORE;
}

static inline int find_in_base(const ndb_store *store, const ndb_snapshot *base, uint64_t now,
    const char *key, size_t len, ndb_scalar *out, uint64_t *expiry) {
	MDB_val k = {len, (void *)(uintptr_t)key}, data;
	int rc = mdb_get(base->txn, store->nodes, &k, &data);
	if (rc == MDB_NOTFOUND) return NDB_NONE;
	if (rc) return ndb_lmdb_error(rc, "read a node");
	int error = ndb_stored_read(data.mv_data, data.mv_size, out, expiry);
	if (error == NDB_OK && NDB_UNLIKELY(store->options.verify))
		error = ndb_stored_verify(store, key, len, data.mv_data, data.mv_size);
	if (error == NDB_OK && *expiry && *expiry <= (now ? now : ndb_now_ms())) return NDB_NONE;
	return error;
}

int ndb_base_find(const ndb_store *store, const ndb_snapshot *base, uint64_t now, const char *key,
    size_t len, ndb_scalar *out, uint64_t *expiry) {
	return find_in_base(store, base, now, key, len, out, expiry);
}

int ndb_view_get(const ndb_store *store, const ndb_view *v, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry) {
	ndb_entry *entry;
	return ndb_view_find(store, v, key, len, out, expiry, &entry);
}

int ndb_view_find(const ndb_store *store, const ndb_view *v, const char *key, size_t len,
    ndb_scalar *out, uint64_t *expiry, ndb_entry **entry) {
	*entry = NULL;
	if (v->count) {
		int found = ndb_layers_find(v->layers, v->count, v->now, 0, key, len, out, expiry, entry);
		if (found != NDB_MORE) return found;
	}
	return v->base ? find_in_base(store, v->base, v->now, key, len, out, expiry) : NDB_NONE;
}
