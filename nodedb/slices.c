//go:build cgo && lmdb

/* slices.c: changes of many nodes, in slices.
 *
 * A slice ends after a number of nodes or bytes, so that a host can check its limits between
 * slices. Each slice is atomic. Without an open transaction, it is a transaction of its own.
 */
#include "scan.h"

enum {
	SLICE_BYTES = 1 << 20
};

/* The arguments and state of a slice on the subtree at key, or part of it. */
typedef struct {
	const char *key, *to; /* to: the target of a merge */
	size_t len, to_len;
	/* the range of keys: the first one, and the end after the last */
	char low[NDB_KEY_MAX], high[NDB_KEY_MAX + 1];
	size_t low_len, high_len;
	uint64_t expiry;
	uint64_t steps, taken, bytes; /* the limit, 0: none; nodes and bytes processed */
	char *position;
	size_t *position_len;
} task;

typedef int (*slice)(ndb_session *s, task *t, ndb_scan *c);

/* Counts a node and its bytes. NDB_MORE if the slice ends with it. */
static int count_step(task *t, const char *key, size_t len, size_t bytes) {
	t->bytes += bytes + 64;
	if (!t->steps || (++t->taken < t->steps && t->bytes < SLICE_BYTES)) return NDB_OK;
	*t->position_len = len;
	memcpy(t->position, key, len);
	return NDB_MORE;
}

static int put(
    ndb_session *s, const char *key, size_t len, const ndb_scalar *value, uint64_t expiry) {
	int result = ndb_change_begin(s, key, len);
	if (result < 0) return result;
	return ndb_change_end(s, key, ndb_change_put(s, ndb_entry_new(key, len, value, expiry)));
}

/* Runs a slice on a snapshot of the session's view, and records what it reads. */
static int run(ndb_session *s, slice f, task *t) {
	ndb_view view;
	ndb_scan c;
	uint64_t version;
	int stored = ndb_is_stored(t->key, t->len);
	ndb_session_hold(s, stored);
	int result = ndb_session_capture(s, stored, &view, &version);
	if (result < 0) {
		ndb_session_unhold(s, stored);
		return result;
	}
	t->taken = t->bytes = 0;
	if ((result = ndb_scan_open(&c, s->store, &view, 0)) == NDB_OK) {
		result = f(s, t, &c);
		if (c.error) result = c.error;
		if (stored && ndb_session_records(s))
			ndb_reads_range(&s->reads, t->low, t->low_len, t->high, t->high_len);
	}
	ndb_scan_close(&c);
	ndb_session_unhold(s, stored);
	ndb_view_release(&view);
	return result;
}

/* Runs a slice inside the open transaction, atomically. */
static int run_inside(ndb_session *s, slice f, task *t) {
	uint32_t marks = s->mark_count;
	int result = ndb_mark_push(s);
	if (result < 0) return result;
	result = run(s, f, t);
	if (result < 0) {
		char text[512];
		strncpy(text, ndb_message(), sizeof text - 1);
		text[sizeof text - 1] = 0;
		if (s->level) { /* the error may have ended the transaction */
			ndb_mark_undo(s, marks);
			ndb_mark_pop(s, marks);
		}
		return ndb_fail(result, "%s", text);
	}
	ndb_mark_pop(s, marks);
	return result;
}

/* Runs a slice that changes stored nodes or trees in memory. */
static int run_slice(ndb_session *s, int stored, slice f, task *t) {
	if (!stored) return run(s, f, t);
	int result = ndb_change_allowed(s);
	if (result < 0) return result;
	if (s->level) return run_inside(s, f, t);
	result = ndb_begin(s);
	if (result < 0) return result;
	char start[NDB_KEY_MAX];
	size_t start_len = *t->position_len;
	memcpy(start, t->position, start_len);
	for (;;) {
		result = run(s, f, t);
		if (result < 0) {
			if (s->level) ndb_transaction_free(s);
			return result;
		}
		int committed = ndb_commit(s, NULL);
		if (committed == NDB_OK) return result;
		if (committed != NDB_E_CONFLICT) {
			if (s->level) ndb_transaction_free(s);
			return committed;
		}
		*t->position_len = start_len;
		memcpy(t->position, start, start_len);
	}
}

/* Sets up a task on the subtree at key. */
static int open_task(ndb_session *s, task *t, const char *key, size_t len, uint64_t steps,
    char *position, size_t *position_len) {
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (len < 2 || len > NDB_KEY_MAX || *position_len > NDB_KEY_MAX)
		return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes: use 2 to %d bytes", len, NDB_KEY_MAX);
	t->key = key, t->len = t->low_len = len;
	t->steps = steps, t->position = position, t->position_len = position_len;
	memcpy(t->low, key, len);
	ndb_key_end(t->high, key, len);
	t->high_len = len + 1;
	return NDB_OK;
}

/* ---- merges ---- */

static int merge_slice(ndb_session *s, task *t, ndb_scan *c) {
	int result = NDB_OK;
	ndb_scan_resume(c, t->key, t->len, t->position, *t->position_len);
	for (; result == NDB_OK && c->key && ndb_key_within(c->key, c->len, t->key, t->len);
	     ndb_scan_next(c)) {
		char key[NDB_KEY_MAX];
		ndb_scalar value;
		uint64_t expiry;
		size_t rest = c->len - t->len;
		if (t->to_len + rest > NDB_KEY_MAX)
			return ndb_fail(NDB_E_KEY, "a node of the merge would have a path longer than %d bytes",
			    NDB_KEY_MAX);
		memcpy(key, t->to, t->to_len);
		memcpy(key + t->to_len, c->key + t->len, rest);
		int depth = ndb_key_depth(key, t->to_len + rest);
		if (depth > NDB_SUBSCRIPTS_MAX)
			return ndb_fail(NDB_E_ARGUMENT,
			    "a node of the merge would have %d subscripts: at most %d are allowed", depth,
			    NDB_SUBSCRIPTS_MAX);
		if (depth < 0) return depth;
		if ((result = ndb_scan_value(c, &value, &expiry)) < 0) return result;
		if ((result = put(s, key, t->to_len + rest, &value, expiry)) < 0) return result;
		result = count_step(t, c->key, c->len, c->len + value.len);
	}
	return result;
}

int ndb_merge(ndb_session *s, const char *to, size_t to_len, const char *from, size_t from_len,
    uint64_t steps, char *position, size_t *position_len) {
	task t = {.to = to, .to_len = to_len};
	int result = open_task(s, &t, from, from_len, steps, position, position_len);
	if (result < 0) return result;
	if (to_len < 2 || to_len > NDB_KEY_MAX)
		return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes", to_len);
	if (to_len == from_len && memcmp(to, from, to_len) == 0) return NDB_OK;
	if (ndb_key_within(to, to_len, from, from_len) || ndb_key_within(from, from_len, to, to_len))
		return ndb_fail(NDB_E_MERGE, "source and target of the merge overlap");
	return run_slice(s, ndb_is_stored(to, to_len), merge_slice, &t);
}

/* ---- ranges of children ---- */

static int kill_slice(ndb_session *s, task *t, ndb_scan *c) {
	int result = NDB_OK;
	if (*t->position_len) {
		char behind[NDB_KEY_MAX + 1];
		ndb_key_end(behind, t->position, *t->position_len);
		ndb_scan_seek(c, behind, *t->position_len + 1);
	} else {
		ndb_scan_seek(c, t->low, t->low_len);
	}
	while (
	    result == NDB_OK && c->key && ndb_key_compare(c->key, c->len, t->high, t->high_len) < 0) {
		char child[NDB_KEY_MAX + 1];
		int part = ndb_key_subscript_len(c->key, c->len, t->len);
		if (part < 0) return part;
		size_t len = t->len + (size_t)part;
		memcpy(child, c->key, len);
		if ((result = ndb_change_begin(s, child, len)) < 0) return result;
		if ((result = ndb_change_end(s, child, ndb_change_kill(s, child, len))) < 0) return result;
		result = count_step(t, child, len, len);
		child[len] = (char)0xFF;
		ndb_scan_seek(c, child, len + 1);
	}
	return result;
}

int ndb_kill_range(ndb_session *s, const char *key, size_t len, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t steps, char *position, size_t *position_len) {
	task t = {0};
	int result = open_task(s, &t, key, len, steps, position, position_len);
	if (result < 0) return result;
	if (from) {
		if ((result = ndb_key_append(t.low, len, sizeof t.low, from)) < 0) return result;
		t.low_len = (size_t)result;
	} else if (len < NDB_KEY_MAX) {
		t.low[t.low_len++] = 0; /* excludes the node itself */
	}
	if (to) {
		if ((result = ndb_key_append(t.high, len, NDB_KEY_MAX, to)) < 0) return result;
		t.high[result] = (char)0xFF;
		t.high_len = (size_t)result + 1;
	}
	if (ndb_key_compare(t.low, t.low_len, t.high, t.high_len) >= 0) return NDB_OK;
	return run_slice(s, ndb_is_stored(key, len), kill_slice, &t);
}

/* ---- expiry of a subtree ---- */

static int expire_slice(ndb_session *s, task *t, ndb_scan *c) {
	int result = NDB_OK;
	ndb_scan_resume(c, t->key, t->len, t->position, *t->position_len);
	for (; result == NDB_OK && c->key && ndb_key_within(c->key, c->len, t->key, t->len);
	     ndb_scan_next(c)) {
		ndb_scalar value;
		uint64_t expiry;
		if ((result = ndb_scan_value(c, &value, &expiry)) < 0) return result;
		if (expiry == t->expiry) {
			result = count_step(t, c->key, c->len, 0);
			continue;
		}
		if ((result = put(s, c->key, c->len, &value, t->expiry)) < 0) return result;
		result = count_step(t, c->key, c->len, c->len + value.len);
	}
	return result;
}

int ndb_expire_tree(ndb_session *s, const char *key, size_t len, uint64_t at_ms, uint64_t steps,
    char *position, size_t *position_len) {
	task t = {.expiry = at_ms};
	int result = open_task(s, &t, key, len, steps, position, position_len);
	return result < 0 ? result : run_slice(s, ndb_is_stored(key, len), expire_slice, &t);
}
