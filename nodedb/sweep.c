//go:build cgo && lmdb

/* sweep.c: deletes expired nodes, a limited number in each commit.
 *
 * The expiry index has a record for each time that a node's expiry was set. A record may be
 * outdated: the node was set again, or its expiry changed. So the node itself decides.
 */
#include "core.h"

static uint64_t time_of(const MDB_val *record) {
	uint64_t ms = 0;
	for (int i = 0; i < 8; i++) ms = ms << 8 | ((const unsigned char *)record->mv_data)[i];
	return ms;
}

int ndb_sweep_due(ndb_store *store, const ndb_snapshot *s) {
	MDB_cursor *c;
	MDB_val record, none;
	if (!s->expiring || mdb_cursor_open(s->txn, store->expiry, &c) != 0) return 0;
	int due = mdb_cursor_get(c, &record, &none, MDB_FIRST) == 0 &&
	          (record.mv_size < 9 || time_of(&record) <= ndb_now_ms());
	mdb_cursor_close(c);
	return due;
}

int ndb_sweep(ndb_store *store, MDB_txn *txn, uint64_t now, uint32_t *limit) {
	MDB_cursor *c;
	MDB_val record, none, value;
	int rc = mdb_cursor_open(txn, store->expiry, &c);
	if (rc) return rc;
	rc = mdb_cursor_get(c, &record, &none, MDB_FIRST);
	while (rc == 0 && *limit > 0) {
		if (record.mv_size >= 9) {
			if (time_of(&record) > now) break;
			MDB_val key = {record.mv_size - 8, (char *)record.mv_data + 8};
			rc = mdb_get(txn, store->nodes, &key, &value);
			if (rc == 0 && ndb_stored_expired(value.mv_data, value.mv_size, now))
				rc = mdb_del(txn, store->nodes, &key, NULL);
			if (rc && rc != MDB_NOTFOUND) break;
		}
		--*limit;
		if ((rc = mdb_cursor_del(c, 0)) == 0) rc = mdb_cursor_get(c, &record, &none, MDB_NEXT);
	}
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND ? 0 : rc;
}
