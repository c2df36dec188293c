//go:build cgo && lmdb

/* scan.c: merges a view's layers in key order. One thread at a time may use a scan. */
#include "scan.h"

int ndb_scan_open(ndb_scan *c, const ndb_store *store, const ndb_view *view, int reverse) {
	*c = (ndb_scan){.store = store, .reverse = reverse};
	return ndb_scan_renew(c, view);
}

void ndb_scan_close(ndb_scan *c) {
	if (c->lmdb) mdb_cursor_close(c->lmdb);
	c->lmdb = NULL;
}

int ndb_scan_renew(ndb_scan *c, const ndb_view *view) {
	c->view = view;
	c->key = NULL;
	if (!view->base) return NDB_OK;
	int rc = c->lmdb ? mdb_cursor_renew(view->base->txn, c->lmdb)
	                 : mdb_cursor_open(view->base->txn, c->store->nodes, &c->lmdb);
	return rc ? ndb_lmdb_error(rc, "open a cursor") : NDB_OK;
}

/* ---- single layers ---- */

static void lmdb_move(ndb_scan *c, MDB_cursor_op op) {
	const char *from = c->lmdb_key.mv_data;
	size_t from_len = c->lmdb_key.mv_size;
	int rc = mdb_cursor_get(c->lmdb, &c->lmdb_key, &c->lmdb_value, op);
	/* callers' buffers hold NDB_KEY_MAX bytes */
	if (rc == 0 && NDB_UNLIKELY(c->lmdb_key.mv_size > NDB_KEY_MAX)) rc = MDB_CORRUPTED;
	/* In a damaged file keys may be out of order. A scan that went back would never end. */
	if (rc == 0 && (op == MDB_NEXT || op == MDB_SET_RANGE || op == MDB_PREV || op == MDB_LAST)) {
		int o = ndb_key_compare(from, from_len, c->lmdb_key.mv_data, c->lmdb_key.mv_size);
		if (NDB_UNLIKELY(op == MDB_NEXT ? o >= 0 : op == MDB_SET_RANGE ? o > 0 : o <= 0))
			rc = MDB_CORRUPTED;
	}
	if (rc) {
		c->lmdb_key.mv_data = NULL;
		if (rc == MDB_NOTFOUND) return;
		c->error = ndb_lmdb_error(rc, "walk");
		mdb_cursor_renew(
		    c->view->base->txn, c->lmdb); /* an error leaves the cursor between positions */
	}
}

static void lmdb_seek(ndb_scan *c, const char *key, size_t len) {
	if (!c->lmdb) return;
	if (len == 0) {
		lmdb_move(c, MDB_FIRST);
		if (c->reverse) c->lmdb_key.mv_data = NULL;
		return;
	}
	c->lmdb_key = (MDB_val){len, (void *)(uintptr_t)key};
	lmdb_move(c, MDB_SET_RANGE);
	if (!c->reverse || c->error) return;
	int behind = c->lmdb_key.mv_data != NULL;
	c->lmdb_key = (MDB_val){len, (void *)(uintptr_t)key};
	lmdb_move(c, behind ? MDB_PREV : MDB_LAST);
}

static void own_seek(ndb_scan *c, const char *key, size_t len) {
	c->own = c->reverse ? ndb_cursor_seek_before(&c->own_at, c->view->own, key, len)
	                    : ndb_cursor_seek(&c->own_at, c->view->own, key, len);
}

static void frozen_seek(ndb_scan *c, const char *key, size_t len) {
	c->frozen = c->reverse ? ndb_cursor_seek_before(&c->frozen_at, c->view->frozen, key, len)
	                       : ndb_cursor_seek(&c->frozen_at, c->view->frozen, key, len);
}

static ndb_entry *step(const ndb_scan *c, ndb_tree_cursor *at) {
	return c->reverse ? ndb_cursor_previous(at) : ndb_cursor_next(at);
}

/* Moves a layer past the subtree that a kill hides. */
static void leave_killed(
    ndb_scan *c, const ndb_entry *kill, void (*seek)(ndb_scan *, const char *, size_t)) {
	char end[NDB_KEY_MAX + 1];
	ndb_key_end(end, kill->data, kill->key_len);
	seek(c, end, kill->key_len + (c->reverse ? 0u : 1u));
}

static int is_gone(const ndb_view *v, const ndb_entry *e) {
	return e->type == NDB_ABSENT || (e->expiry && e->expiry <= ndb_view_now(v));
}

/* ---- all layers ---- */

/* < 0 if a comes before b in the direction of the scan. */
static int order(const ndb_scan *c, const char *a, size_t a_len, const char *b, size_t b_len) {
	int result = ndb_key_compare(a, a_len, b, b_len);
	return c->reverse ? -result : result;
}

/* Makes the first visible node of the layers the current one. */
static void find_visible(ndb_scan *c) {
	const ndb_view *v = c->view;
	while (!c->error) {
		const char *key = c->lmdb_key.mv_data;
		size_t len = c->lmdb_key.mv_size;
		const ndb_entry *e = NULL;
		int in_lmdb = key != NULL, in_frozen = 0, in_own = 0, o;
		if (c->frozen) {
			o = in_lmdb ? order(c, c->frozen->data, c->frozen->key_len, key, len) : -1;
			if (o <= 0)
				key = c->frozen->data, len = c->frozen->key_len, e = c->frozen, in_frozen = 1,
				in_lmdb = in_lmdb && o == 0;
		}
		if (c->own) {
			o = key ? order(c, c->own->data, c->own->key_len, key, len) : -1;
			if (o <= 0)
				key = c->own->data, len = c->own->key_len, e = c->own, in_own = 1,
				in_frozen = in_frozen && o == 0, in_lmdb = in_lmdb && o == 0;
		}
		if (!key) break;
		if (!in_own && NDB_UNLIKELY(v->own_kills != NULL)) {
			const ndb_entry *kill = ndb_kill_of(v->own_kills, key, len);
			if (kill) {
				if (in_frozen) leave_killed(c, kill, frozen_seek);
				if (in_lmdb) leave_killed(c, kill, lmdb_seek);
				continue;
			}
		}
		if (!e && NDB_UNLIKELY(v->frozen_kills != NULL)) {
			const ndb_entry *kill = ndb_kill_of(v->frozen_kills, key, len);
			if (kill) {
				leave_killed(c, kill, lmdb_seek);
				continue;
			}
		}
		/* Advance the lower layers that have the same node. */
		if (e && in_lmdb) lmdb_move(c, c->reverse ? MDB_PREV : MDB_NEXT);
		if (in_own && in_frozen) c->frozen = step(c, &c->frozen_at);
		if (e ? is_gone(v, e)
		      : v->base->expiring &&
		            ndb_stored_expired(c->lmdb_value.mv_data, c->lmdb_value.mv_size, v->now)) {
			if (in_own) c->own = step(c, &c->own_at);
			else if (e) c->frozen = step(c, &c->frozen_at);
			else lmdb_move(c, c->reverse ? MDB_PREV : MDB_NEXT);
			continue;
		}
		c->key = key, c->len = len, c->entry = e;
		return;
	}
	c->key = NULL;
}

void ndb_scan_seek(ndb_scan *c, const char *key, size_t len) {
	c->error = NDB_OK;
	c->lmdb_key.mv_data = NULL;
	lmdb_seek(c, key, len);
	own_seek(c, key, len);
	frozen_seek(c, key, len);
	find_visible(c);
}

void ndb_scan_next(ndb_scan *c) {
	if (!c->key) return;
	if (!c->entry) lmdb_move(c, c->reverse ? MDB_PREV : MDB_NEXT);
	else if (c->entry == c->own) c->own = step(c, &c->own_at);
	else c->frozen = step(c, &c->frozen_at);
	find_visible(c);
}

void ndb_scan_resume(
    ndb_scan *c, const char *key, size_t len, const char *position, size_t position_len) {
	char place[NDB_KEY_MAX + 1];
	if (position_len == 0) {
		ndb_scan_seek(c, key, len);
		return;
	}
	memcpy(place, position, position_len);
	place[position_len] = 0;
	ndb_scan_seek(c, place, position_len + 1);
}

int ndb_scan_value(const ndb_scan *c, ndb_scalar *out, uint64_t *expiry) {
	if (!c->entry) {
		int error = ndb_stored_read(c->lmdb_value.mv_data, c->lmdb_value.mv_size, out, expiry);
		if (error == NDB_OK && NDB_UNLIKELY(c->store->options.verify))
			error = ndb_stored_verify(
			    c->store, c->key, c->len, c->lmdb_value.mv_data, c->lmdb_value.mv_size);
		return error;
	}
	ndb_entry_scalar(c->entry, out);
	*expiry = c->entry->expiry;
	return NDB_OK;
}

int ndb_scan_is_plain(const ndb_scan *c, const char *top, size_t top_len) {
	const ndb_view *v = c->view;
	return c->key && !c->entry && !c->reverse && !v->own_kills && !v->frozen_kills &&
	       !v->base->expiring &&
	       (!c->own || !ndb_key_within(c->own->data, c->own->key_len, top, top_len)) &&
	       (!c->frozen || !ndb_key_within(c->frozen->data, c->frozen->key_len, top, top_len));
}

void ndb_scan_leaf(ndb_scan *c, unsigned at, unsigned count) {
	if (at < count) {
		lmdb_leaf_set(c->lmdb, at);
		lmdb_move(c, MDB_GET_CURRENT);
	} else {
		lmdb_leaf_set(c->lmdb, count - 1);
		lmdb_move(c, MDB_NEXT);
	}
	find_visible(c);
}
