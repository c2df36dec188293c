//go:build cgo && lmdb

/* snapshot.c: copies a unit to other machines while it changes.
 *
 * A snapshot is read in chunks, each in a transaction of its own: a single one for all would keep
 * LMDB from reusing pages, so the file would grow. The chunks are therefore of different times. The
 * unit's record bounds these: all deltas up to `applied` of the first chunk are in all chunks, and
 * none after `begun` of the last one is in any. Deltas hold after-images, so those in between,
 * applied again in order, make the unit complete, as they do after a write that was cut off.
 *
 * A folder that is being loaded has a record of its own, with the number of chunks in the file, so
 * that a load can continue after a crash. The unit's record is written when that one is removed. */
#include <stdlib.h>

#include "core.h"

enum {
	CHUNK_MS = 1000, /* after which a chunk ends */
	CHECK_NODES = 256
};

static int damaged(const char *key, size_t len) {
	char shown[200];
	long n = len > NDB_KEY_MAX ? -1 : ndb_zwrite_key(key, len, shown, sizeof shown - 1);
	shown[n < 0 ? 0 : (size_t)n < sizeof shown ? (size_t)n : sizeof shown - 1] = 0;
	return ndb_fail(
	    NDB_E_CORRUPT, "node %s is damaged: list all faults with perigee node check", shown);
}

/* Encodes nodes from a key on. */
static int read_nodes(ndb_store *store, MDB_txn *txn, const char *from, size_t from_len,
    size_t bytes, ndb_encoder *e, ndb_chunk *out) {
	MDB_cursor *c;
	MDB_val key = {from_len, (void *)(uintptr_t)from}, value;
	int rc = mdb_cursor_open(txn, store->nodes, &c), error = NDB_OK;
	if (rc) return ndb_lmdb_error(rc, "read a snapshot");
	const uint64_t end = ndb_monotonic_ms() + CHUNK_MS;
	rc = mdb_cursor_get(c, &key, &value, from_len ? MDB_SET_RANGE : MDB_FIRST);
	while (rc == 0 && error == NDB_OK) {
		if (key.mv_size > NDB_KEY_MAX || value.mv_size == 0 ||
		    !ndb_stored_is_sound(
		        store->sums, key.mv_data, key.mv_size, value.mv_data, value.mv_size)) {
			error = damaged(key.mv_data, key.mv_size);
			break;
		}
		if (e->used >= bytes ||
		    (e->count && e->count % CHECK_NODES == 0 && ndb_monotonic_ms() > end)) {
			memcpy(out->next, key.mv_data, key.mv_size);
			out->next_len = key.mv_size;
			break;
		}
		error = ndb_encoder_add(e, key.mv_data, key.mv_size, value.mv_data, value.mv_size);
		if (error == NDB_OK) rc = mdb_cursor_get(c, &key, &value, MDB_NEXT);
	}
	mdb_cursor_close(c);
	if (rc && rc != MDB_NOTFOUND) error = ndb_lmdb_error(rc, "read a snapshot");
	return error;
}

int ndb_unit_chunk(
    ndb_store *store, const char *from, size_t from_len, size_t bytes, ndb_chunk *out) {
	memset(out, 0, sizeof *out);
	if (from_len > NDB_KEY_MAX) return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes", from_len);
	int error = ndb_unit_begun(store, &out->begun, &out->begun_mark);
	if (error < 0) return error;
	ndb_snapshot *s;
	if ((error = ndb_snapshot_open(store, &s)) < 0) return error;
	ndb_unit_record record;
	ndb_encoder e = {.bytes = NULL};
	error = ndb_unit_read(store, s->txn, &record);
	if (error == NDB_NONE) error = ndb_fail(NDB_E_CORRUPT, "the unit's record is missing");
	if (error == NDB_OK) error = read_nodes(store, s->txn, from, from_len, bytes, &e, out);
	ndb_snapshot_unref(s);
	if (error == NDB_OK) error = ndb_encoder_finish(&e, record.clock);
	/* It may have begun more since; none of that can be in the chunk after this number. */
	if (error == NDB_OK) error = ndb_unit_begun(store, &out->begun, &out->begun_mark);
	if (error < 0) {
		free(e.bytes);
		return error;
	}
	out->data = e.bytes, out->len = e.used, out->nodes = e.count;
	out->applied = record.applied, out->applied_mark = record.mark, out->clock = record.clock;
	return NDB_OK;
}

/* ---- loading ---- */

/* Writes a layer, if any, and the record of the load in one transaction; with the last one, the
 * unit's record instead. */
static int write_load(
    ndb_store *store, const ndb_layer *l, const ndb_unit_loading *loading, int last) {
	MDB_txn *txn;
	int rc;
	pthread_mutex_lock(&store->map_lock);
	for (;;) {
		if ((rc = mdb_txn_begin(store->env, NULL, 0, &txn)) == 0) {
			ndb_layer_place place = {.started = 0};
			if (l) rc = ndb_layer_write(store, txn, l, &place, UINT64_MAX);
			if (rc == 0) rc = ndb_loading_write(store, txn, last ? NULL : loading);
			if (rc == 0 && last) rc = ndb_unit_write(store, txn, loading->record);
			if (rc == 0) rc = mdb_txn_commit(txn);
			else mdb_txn_abort(txn);
		}
		if (rc != MDB_MAP_RESIZED && rc != MDB_MAP_FULL) break;
		if ((rc = ndb_store_remap_locked(
		         store, rc == MDB_MAP_RESIZED ? 0 : lmdb_map_size(store->env) * 2)) != 0)
			break;
	}
	/* the caller may repeat what failed, as on a full disk */
	if (rc) lmdb_forgive(store->env);
	pthread_mutex_unlock(&store->map_lock);
	return rc ? ndb_lmdb_error(rc, "load a snapshot") : NDB_OK;
}

static int read_loading(ndb_store *store, ndb_unit_loading *out) {
	ndb_snapshot *s;
	int result = ndb_snapshot_open(store, &s);
	if (result < 0) return result;
	result = ndb_loading_read(store, s->txn, out);
	ndb_snapshot_unref(s);
	return result;
}

int ndb_unit_load_begin(ndb_store *store, uint64_t applied, uint64_t applied_mark, uint64_t begun,
    uint64_t clock, uint64_t *chunks) {
	ndb_unit_loading loading;
	int found = read_loading(store, &loading);
	if (found < 0) return found;
	int error = ndb_unit_claim_load(store, found == NDB_OK);
	if (error < 0) return error;
	const ndb_unit_record *r = &loading.record;
	*chunks = loading.chunks;
	if (found == NDB_OK) {
		if (r->applied == applied && r->mark == applied_mark && r->begun == begun &&
		    r->clock == clock)
			return NDB_OK;
		return ndb_fail(NDB_E_ARGUMENT, "another snapshot is being loaded into %s", store->folder);
	}
	if (begun < applied)
		return ndb_fail(NDB_E_ARGUMENT, "the positions of the snapshot are not in order");
	loading.record =
	    (ndb_unit_record){.applied = applied, .begun = begun, .clock = clock, .mark = applied_mark};
	return write_load(store, NULL, &loading, 0);
}

static int need_loading(ndb_store *store, ndb_unit_loading *out) {
	int found = read_loading(store, out);
	if (found == NDB_NONE)
		return ndb_fail(NDB_E_ARGUMENT, "no snapshot is being loaded into %s", store->folder);
	return found;
}

int ndb_unit_load(ndb_store *store, const char *data, size_t len) {
	ndb_unit_loading loading;
	ndb_layer layer;
	uint64_t clock;
	int error = need_loading(store, &loading);
	if (error < 0) return error;
	ndb_layer_init(&layer);
	if ((error = ndb_layer_decode(data, len, &layer, &clock)) < 0) return error;
	if (layer.kills.root) error = ndb_fail(NDB_E_CORRUPT, "a chunk of a snapshot kills nodes");
	loading.chunks++;
	if (error == NDB_OK) error = write_load(store, &layer, &loading, 0);
	ndb_layer_clear(&layer);
	return error;
}

int ndb_unit_load_end(ndb_store *store) {
	ndb_unit_loading loading;
	int error = need_loading(store, &loading);
	return error < 0 ? error : write_load(store, NULL, &loading, 1);
}
