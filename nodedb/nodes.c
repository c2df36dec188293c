//go:build cgo && lmdb

/* nodes.c: reads and changes of single nodes. Outside a transaction, a change reads and writes
 * atomically, under the store's lock.
 */
#include <math.h>

#include "core.h"
#include "decimal.h"

static int check_value(const ndb_scalar *value) {
	switch (value->type) {
	case NDB_NUMBER:
		if (isfinite(value->number)) return NDB_OK;
		return ndb_fail(NDB_E_ARGUMENT, "a value must be a finite number");
	case NDB_DIGITS:
	case NDB_STRING:
		if (value->len <= NDB_VALUE_MAX) return NDB_OK;
		return ndb_fail(NDB_E_VALUE, "the value has %u bytes: at most %u are allowed", value->len,
		    NDB_VALUE_MAX);
	case NDB_FALSE:
	case NDB_TRUE: return NDB_OK;
	}
	return ndb_fail(NDB_E_ARGUMENT,
	    "invalid value: use a string, a number or a boolean; to remove a value, use kill_value");
}

/* Converts a double that is not a NUMBER of nodedb.h to DIGITS, or to the STRING of its digits,
 * in room. Returns other values unchanged. text must hold NDB_NUMBER_TEXT bytes. */
static const ndb_scalar *normal(const ndb_scalar *value, ndb_scalar *room, char *text) {
	if (value->type != NDB_NUMBER) return value;
	double size = fabs(value->number);
	if (size == 0 || (size <= NDB_EXACT_INTEGER && size >= 1e-42)) return value;
	ndb_decimal decimal;
	if (ndb_decimal_of_double(value->number, &decimal) != NDB_OK) return value;
	if (ndb_decimal_in_range(&decimal)) {
		ndb_decimal_scalar(&decimal, room, text);
		return room;
	}
	*room = (ndb_scalar){
	    .type = NDB_STRING, .bytes = text, .len = (uint32_t)ndb_decimal_text(&decimal, text)};
	return room;
}

static ndb_entry *new_entry(const char *key, size_t len, const ndb_scalar *value, uint64_t expiry) {
	ndb_entry *e = ndb_entry_new(key, len, value, expiry);
	if (e && e->type == NDB_NUMBER && e->number == 0) e->number = 0; /* turns -0 into 0 */
	return e;
}

int ndb_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *value) {
	int error = check_value(value);
	if (error < 0) return error;
	if ((error = ndb_change_begin(s, key, len)) < 0) return error;
	if (ndb_change_in_place(s, key, len, value)) return NDB_OK;
	return ndb_change_end(s, key, ndb_change_put(s, new_entry(key, len, value, 0)));
}

int ndb_set_child(ndb_session *s, const char *key, size_t len, const ndb_scalar *subscript,
    const ndb_scalar *value) {
	char child[NDB_KEY_MAX];
	if (len > sizeof child)
		return ndb_fail(NDB_E_KEY, "the path is longer than %d bytes", NDB_KEY_MAX);
	memcpy(child, key, len);
	int total = ndb_key_append(child, len, sizeof child, subscript);
	return total < 0 ? total : ndb_set(s, child, (size_t)total, value);
}

int ndb_set_new(ndb_session *s, const char *key, size_t len, const ndb_scalar *value) {
	ndb_scalar none = {.type = NDB_ABSENT};
	return ndb_compare_and_set(s, key, len, &none, value);
}

/* DIGITS equal a STRING of the same digits: hosts without exact decimals read DIGITS as strings. */
static int same_value(const ndb_scalar *present, const ndb_scalar *expected) {
	char present_text[NDB_NUMBER_TEXT], expected_text[NDB_NUMBER_TEXT];
	ndb_scalar present_room, expected_room;
	present = normal(present, &present_room, present_text),
	expected = normal(expected, &expected_room, expected_text);
	if (present->type != expected->type &&
	    !(present->type == NDB_DIGITS && expected->type == NDB_STRING))
		return 0;
	if (present->type == NDB_NUMBER) return present->number == expected->number;
	if (present->type != NDB_STRING && present->type != NDB_DIGITS) return 1;
	return present->len == expected->len &&
	       memcmp(present->bytes, expected->bytes, present->len) == 0;
}

int ndb_compare_and_set(ndb_session *s, const char *key, size_t len, const ndb_scalar *expected,
    const ndb_scalar *value) {
	ndb_scalar present;
	uint64_t expiry;
	int result = check_value(value);
	if (result < 0) return result;
	if ((result = ndb_change_begin(s, key, len)) < 0) return result;
	result = ndb_change_look(s, key, len, &present, &expiry);
	if (result == NDB_NONE) present.type = NDB_ABSENT, result = NDB_OK;
	if (result == NDB_OK)
		result = same_value(&present, expected) ? ndb_change_put(s, new_entry(key, len, value, 0))
		                                        : NDB_NONE;
	return ndb_change_end(s, key, result);
}

int ndb_increment(
    ndb_session *s, const char *key, size_t len, const ndb_scalar *by, ndb_scalar *out) {
	ndb_scalar present = {.type = NDB_NUMBER}, sum;
	uint64_t expiry = 0;
	int result = ndb_change_begin(s, key, len);
	if (result < 0) return result;
	result = ndb_change_look(s, key, len, &present, &expiry);
	if (result == NDB_NONE) present = (ndb_scalar){.type = NDB_NUMBER}, expiry = 0;
	if (result >= 0) result = ndb_number_add(&present, by, &sum, s->text);
	if (result >= 0 && (expiry || !ndb_change_in_place(s, key, len, &sum)))
		result = ndb_change_put(s, new_entry(key, len, &sum, expiry));
	if (result >= 0 && out) *out = sum;
	return ndb_change_end(s, key, result < 0 ? result : NDB_OK);
}

int ndb_kill_value(ndb_session *s, const char *key, size_t len) {
	int result = ndb_change_begin(s, key, len);
	if (result < 0) return result;
	if (ndb_is_stored(key, len)) {
		ndb_scalar none = {.type = NDB_ABSENT};
		result = ndb_change_put(s, ndb_entry_new(key, len, &none, 0));
	} else {
		char end[NDB_KEY_MAX + 1]; /* the key followed by 00 is the first key after it */
		memcpy(end, key, len);
		end[len] = 0;
		result = ndb_change_cut(s, key, len, end, len + 1);
	}
	return ndb_change_end(s, key, result);
}

int ndb_kill(ndb_session *s, const char *key, size_t len) {
	int result = ndb_change_begin(s, key, len);
	if (result < 0) return result;
	return ndb_change_end(s, key, ndb_change_kill(s, key, len));
}

uint64_t ndb_clock(ndb_session *s) { return s->clock ? s->clock : ndb_now_ms(); }

int ndb_expire(ndb_session *s, const char *key, size_t len, uint64_t ttl_ms) {
	uint64_t now = ndb_clock(s);
	return ndb_expire_at(s, key, len, ttl_ms < UINT64_MAX - now ? now + ttl_ms : UINT64_MAX);
}

int ndb_expire_at(ndb_session *s, const char *key, size_t len, uint64_t at_ms) {
	ndb_scalar present;
	uint64_t expiry;
	int result = ndb_change_begin(s, key, len);
	if (result < 0) return result;
	result = ndb_change_look(s, key, len, &present, &expiry);
	if (result == NDB_OK) result = ndb_change_put(s, new_entry(key, len, &present, at_ms));
	return ndb_change_end(s, key, result);
}

int ndb_ttl(ndb_session *s, const char *key, size_t len, uint64_t *ttl_ms) {
	ndb_scalar present;
	uint64_t expiry = 0;
	ndb_view view;
	int locked, result = ndb_session_enter(s);
	if (result < 0) return result;
	int stored = ndb_is_stored(key, len);
	if ((result = ndb_session_view(s, stored, &view, &locked)) < 0) return result;
	if (stored && ndb_session_records(s)) ndb_reads_point(&s->reads, key, len);
	result = ndb_view_get(s->store, &view, key, len, &present, &expiry);
	ndb_session_view_end(s, locked);
	if (result != NDB_OK) return result;
	if (!expiry) return NDB_NONE;
	uint64_t now = ndb_clock(s);
	*ttl_ms = expiry > now ? expiry - now : 0;
	return NDB_OK;
}

/* ---- several nodes ---- */

static int set_each(ndb_session *s, const ndb_pair *pairs, size_t count) {
	int error = NDB_OK;
	for (size_t i = 0; i < count && error == NDB_OK; i++)
		error = ndb_set(s, pairs[i].key, pairs[i].len, &pairs[i].value);
	return error;
}

/* Restores the trees in memory; local receives the tree to drop afterwards. */
static void put_back(ndb_session *s, ndb_tree *local) {
	ndb_tree changed = s->local;
	s->shed_local += changed.shed + changed.bytes;
	s->changes++;
	s->local = *local;
	*local = changed;
}

int ndb_set_all(ndb_session *s, const ndb_pair *pairs, size_t count) {
	int stored = 0, error = ndb_session_enter(s);
	for (size_t i = 0; i < count && error == NDB_OK; i++) {
		error = check_value(&pairs[i].value);
		stored |= ndb_is_stored(pairs[i].key, pairs[i].len);
	}
	uint32_t marks = s->mark_count;
	int own = stored && !s->level;
	if (error == NDB_OK) error = own ? ndb_begin(s) : s->level ? ndb_mark_push(s) : NDB_OK;
	if (error < 0) return error;
	ndb_tree local;
	ndb_tree_fork(&s->local, &local);
	error = set_each(s, pairs, count);
	/* it has read nothing, so it cannot conflict */
	if (error == NDB_OK && own) error = ndb_commit(s, NULL);
	if (error < 0) {
		put_back(s, &local);
		if (s->level && own) ndb_transaction_free(s);
		else if (s->level) ndb_mark_undo(s, marks);
	}
	ndb_tree_clear(&local);
	if (s->level) ndb_mark_pop(s, marks);
	return error;
}
