//go:build cgo && lmdb

/* check.c: reads the whole store and reports every fault. */
#include <stdarg.h>
#include <stdio.h>

#include "core.h"

typedef struct {
	ndb_report report;
	void *user;
	int faults, stop;
} findings;

__attribute__((format(printf, 2, 3))) static void found(findings *f, const char *format, ...) {
	char line[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	f->faults++;
	if (f->report && f->report(f->user, line) != 0) f->stop = 1;
}

static void check_key(findings *f, const char *key, size_t len, char *shown, size_t room) {
	char text[NDB_KEY_MAX];
	size_t at = 0;
	ndb_scalar subscript;
	int result, count = -1;
	shown[0] = 0;
	if (len > NDB_KEY_MAX) {
		found(f, "a key has %zu bytes, which is too long", len);
		return;
	}
	while ((result = ndb_key_decode(key, len, &at, &subscript, text)) == NDB_OK) count++;
	if (result < 0) found(f, "a key does not decode: %s", ndb_message());
	else if (count > NDB_SUBSCRIPTS_MAX)
		found(f, "a key has %d subscripts, which is too many", count);
	long n = result < 0 ? 0 : ndb_zwrite_key(key, len, shown, room - 1);
	shown[n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1] = 0;
}

/* Checks a sub-database: its keys are in order, and their number matches LMDB's count. */
static int check_nodes(ndb_store *store, ndb_snapshot *s, findings *f) {
	MDB_cursor *c;
	MDB_val key, value, other;
	char before[NDB_KEY_MAX + 64], shown[200];
	size_t before_len = 0;
	uint64_t count = 0, expiry;
	int rc = mdb_cursor_open(s->txn, store->nodes, &c);
	if (rc) return ndb_lmdb_error(rc, "check");
	while (!f->stop && (rc = mdb_cursor_get(c, &key, &value, MDB_NEXT)) == 0) {
		count++;
		check_key(f, key.mv_data, key.mv_size, shown, sizeof shown);
		if (count > 1 && ndb_key_compare(before, before_len, key.mv_data, key.mv_size) >= 0)
			found(f, "%s is out of order", shown);
		before_len = key.mv_size < sizeof before ? key.mv_size : sizeof before;
		memcpy(before, key.mv_data, before_len);
		ndb_scalar scalar;
		if (ndb_stored_read(value.mv_data, value.mv_size, &scalar, &expiry) < 0) {
			found(f, "the value of %s does not decode", shown);
		} else if (!ndb_stored_is_sound(
		               store->sums, key.mv_data, key.mv_size, value.mv_data, value.mv_size)) {
			found(f, "the checksum of %s does not match", shown);
		} else if (expiry && key.mv_size <= NDB_KEY_MAX) {
			char index[8 + NDB_KEY_MAX];
			for (int i = 0; i < 8; i++) index[i] = (char)(expiry >> (56 - 8 * i));
			memcpy(index + 8, key.mv_data, key.mv_size);
			MDB_val at = {8 + key.mv_size, index};
			if (mdb_get(s->txn, store->expiry, &at, &other) != 0)
				found(f, "%s expires but is missing from the expiry index", shown);
		}
	}
	mdb_cursor_close(c);
	if (rc && rc != MDB_NOTFOUND) return ndb_lmdb_error(rc, "check");
	if (!f->stop && count != s->nodes)
		found(f, "%llu nodes were read, but LMDB counts %llu", (unsigned long long)count,
		    (unsigned long long)s->nodes);
	return NDB_OK;
}

static int check_expiry(ndb_store *store, ndb_snapshot *s, findings *f) {
	MDB_cursor *c;
	MDB_val key, value;
	char shown[200];
	uint64_t count = 0;
	int rc = mdb_cursor_open(s->txn, store->expiry, &c);
	if (rc) return ndb_lmdb_error(rc, "check");
	while (!f->stop && (rc = mdb_cursor_get(c, &key, &value, MDB_NEXT)) == 0) {
		count++;
		if (key.mv_size < 9)
			found(f, "the expiry index has a record of %zu bytes, which is too short", key.mv_size);
		else check_key(f, (const char *)key.mv_data + 8, key.mv_size - 8, shown, sizeof shown);
	}
	mdb_cursor_close(c);
	if (rc && rc != MDB_NOTFOUND) return ndb_lmdb_error(rc, "check");
	if (!f->stop && count != s->expiring)
		found(f, "%llu expiry records were read, but LMDB counts %llu", (unsigned long long)count,
		    (unsigned long long)s->expiring);
	return NDB_OK;
}

static void found_page(void *user, const char *line) { found(user, "%s", line); }

int ndb_check(ndb_store *store, ndb_report report, void *user) {
	findings f = {report, user, 0, 0};
	ndb_snapshot *s;
	int error = store->options.read_only ? NDB_OK : ndb_sync(store);
	if (error < 0 || (error = ndb_snapshot_open(store, &s)) < 0) return error;
	int rc = lmdb_audit(s->txn, found_page, &f);
	if (rc) error = ndb_lmdb_error(rc, "check");
	if (error == NDB_OK && !f.stop) error = check_nodes(store, s, &f);
	if (error == NDB_OK && !f.stop) error = check_expiry(store, s, &f);
	ndb_snapshot_unref(s);
	/* If the audit has found faults, they explain why the scan failed. */
	return error == NDB_E_CORRUPT && f.faults ? f.faults : error < 0 ? error : f.faults;
}
