//go:build cgo && lmdb

/* scan.c: merges a view's layers in key order. One thread at a time may use a scan. */
#include "scan.h"

int ndb_scan_open(ndb_scan *c, const ndb_store *store, const ndb_view *view, int reverse) {
	memset(c, 0, offsetof(ndb_scan, at));
	c->store = store, c->reverse = reverse;
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

static void layer_seek(ndb_scan *c, uint32_t i, const char *key, size_t len) {
	const ndb_tree_node *root = c->view->layers[i].entries;
	c->at[i] = c->reverse ? ndb_cursor_seek_before(&c->cursor[i], root, key, len)
	                      : ndb_cursor_seek(&c->cursor[i], root, key, len);
}

static void layer_step(ndb_scan *c, uint32_t i) {
	c->at[i] = c->reverse ? ndb_cursor_previous(&c->cursor[i]) : ndb_cursor_next(&c->cursor[i]);
}

static void lmdb_step(ndb_scan *c) { lmdb_move(c, c->reverse ? MDB_PREV : MDB_NEXT); }

/* Moves the layers from the given one on past the subtree that a kill hides. */
static void leave_killed(ndb_scan *c, const ndb_entry *kill, uint32_t from) {
	char end[NDB_KEY_MAX + 1];
	ndb_key_end(end, kill->data, kill->key_len);
	size_t len = kill->key_len + (c->reverse ? 0u : 1u);
	for (uint32_t i = from; i < c->view->count; i++)
		if (c->at[i] &&
		    ndb_key_within(c->at[i]->data, c->at[i]->key_len, kill->data, kill->key_len))
			layer_seek(c, i, end, len);
	if (c->lmdb_key.mv_data &&
	    ndb_key_within(c->lmdb_key.mv_data, c->lmdb_key.mv_size, kill->data, kill->key_len))
		lmdb_seek(c, end, len);
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
		uint32_t first = v->count; /* the highest layer with the next node; count: LMDB */
		uint32_t same = 0;         /* bits of the lower ones that have it, too */
		for (uint32_t i = v->count; i-- > 0;) {
			const ndb_entry *e = c->at[i];
			if (!e) continue;
			int o = key ? order(c, e->data, e->key_len, key, len) : -1;
			if (o > 0) continue;
			same = o == 0 ? same | 1u << first : 0;
			key = e->data, len = e->key_len, first = i;
		}
		if (!key) break;
		const ndb_entry *kill = NULL;
		for (uint32_t i = 0; i < first; i++) {
			if (!NDB_UNLIKELY(v->layers[i].kills != NULL)) continue;
			if ((kill = ndb_kill_of(v->layers[i].kills, key, len)) == NULL) continue;
			leave_killed(c, kill, i + 1);
			break;
		}
		if (kill) continue;
		/* Advance the lower layers that have the same node. */
		for (uint32_t i = first + 1; same >> i; i++) {
			if (!(same >> i & 1)) continue;
			if (i < v->count) layer_step(c, i);
			else lmdb_step(c);
		}
		const ndb_entry *e = first < v->count ? c->at[first] : NULL;
		if (e ? is_gone(v, e)
		      : v->base->expiring &&
		            ndb_stored_expired(c->lmdb_value.mv_data, c->lmdb_value.mv_size, v->now)) {
			if (e) layer_step(c, first);
			else lmdb_step(c);
			continue;
		}
		c->key = key, c->len = len, c->entry = e, c->layer = first;
		return;
	}
	c->key = NULL;
}

void ndb_scan_seek(ndb_scan *c, const char *key, size_t len) {
	c->error = NDB_OK;
	c->lmdb_key.mv_data = NULL;
	lmdb_seek(c, key, len);
	for (uint32_t i = 0; i < c->view->count; i++) layer_seek(c, i, key, len);
	find_visible(c);
}

void ndb_scan_next(ndb_scan *c) {
	if (!c->key) return;
	if (!c->entry) lmdb_step(c);
	else layer_step(c, c->layer);
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
	if (!c->key || c->entry || c->reverse || v->base->expiring) return 0;
	for (uint32_t i = 0; i < v->count; i++)
		if (v->layers[i].kills ||
		    (c->at[i] && ndb_key_within(c->at[i]->data, c->at[i]->key_len, top, top_len)))
			return 0;
	return 1;
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
