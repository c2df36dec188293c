//go:build cgo && lmdb

/* iter.c: iterators, single steps, and counts in slices.
 *
 * An iterator holds references to the layers while it fills a batch, and returns copies: outside a
 * transaction the releaser may release the references, yet the items stay valid until the next
 * fill, whatever changes meanwhile. When the session's view has changed since the capture, the next
 * fill captures it again and seeks past the last item returned.
 */
#include <stdlib.h>

#include "scan.h"

enum {
	FIRST_BATCH = 8,     /* items of the first fill */
	PAGE_ITEMS = 16,     /* number of items from which a leaf page is copied as a whole */
	PAGES_MAX = 8,       /* maximum number of pages copied for a batch */
	COPY_MAX = 256 << 10 /* bytes copied for a batch, unless its first item is larger */
};

/* A version that no session has; the iterator then holds nothing. */
#define RELEASED (UINT64_MAX - 1)

struct ndb_iter {
	ndb_session *session;
	ndb_iter *next, *previous; /* in the session's list */
	int stored, flags;
	ndb_view view; /* a view of its own, if captured */
	_Atomic int captured;
	int placed; /* the scan is at the item after the last one returned */
	_Atomic uint64_t version;
	_Atomic uint32_t fills;
	uint32_t fills_seen; /* the releaser's last observation of fills */
	int idle;            /* the releaser's finding: no fill between two checks */
	/* ndb_session_shed at the capture, and the session's own bytes captured */
	uint64_t shed, holds;
	int has_from, has_to, started, finished;
	uint32_t batch; /* item limit of the next fill */
	uint64_t left;  /* items left of the limit; UINT64_MAX: no limit */
	size_t top_len, from_len, to_len, last_len;
	uint32_t count; /* items of the last fill */
	ndb_scalar subscripts[NDB_BATCH], values[NDB_BATCH];
	const char *keys[NDB_BATCH];
	uint32_t key_lens[NDB_BATCH];
	char *text;
	size_t text_used, text_cap;
	char *copy; /* text that the items of the last fill point to */
	size_t copy_cap;
	char *pages; /* copies of whole leaf pages, which items may also point to */
	size_t pages_bytes, pages_used;
	ndb_scan scan;
	char top[NDB_KEY_MAX + 2], from[NDB_KEY_MAX + 2], to[NDB_KEY_MAX + 2], last[NDB_KEY_MAX + 2];
};

/* Memory of an iterator, including its cursor and a batch's text. */
static const uint64_t ITERATOR_BYTES = sizeof(ndb_iter) + NDB_KEY_MAX + NDB_BATCH * 32 + 1024;

/* The releaser also reads the session's list of iterators. */
static void lock_list(ndb_session *s) {
	if (s->store) pthread_mutex_lock(&s->store->lock);
}

static void unlock_list(ndb_session *s) {
	if (s->store) pthread_mutex_unlock(&s->store->lock);
}

static int memory(void) { return ndb_fail(NDB_E_MEMORY, "out of memory"); }

/* Length of the key of top's child that is key or its ancestor. */
static int child_len(const char *key, size_t len, size_t top_len) {
	if (top_len == 0) {
		const char *end = memchr(key, 0, len);
		return end ? (int)(end - key) + 1 : ndb_fail(NDB_E_CORRUPT, "a key without a name");
	}
	int n = ndb_key_subscript_len(key, len, top_len);
	return n < 0 ? n : (int)top_len + n;
}

static int bound_key(const char *top, size_t top_len, const ndb_scalar *bound, int whole, char *out,
    size_t *out_len) {
	int n;
	if (whole) {
		if (bound->len > NDB_KEY_MAX)
			return ndb_fail(NDB_E_KEY, "the bound has %u bytes: too long", bound->len);
		memcpy(out, bound->bytes, bound->len);
		n = (int)bound->len;
	} else if (top_len == 0) {
		n = ndb_key_name(out, NDB_KEY_MAX, bound->bytes, bound->len);
	} else {
		memcpy(out, top, top_len);
		n = ndb_key_append(out, top_len, NDB_KEY_MAX, bound);
	}
	if (n < 0) return n;
	*out_len = (size_t)n;
	return NDB_OK;
}

int ndb_iter_open(ndb_session *s, const char *key, size_t len, int flags, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t limit, ndb_iter **out) {
	*out = NULL;
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	if (len > NDB_KEY_MAX)
		return ndb_fail(
		    NDB_E_KEY, "invalid key of %zu bytes: at most %d are allowed", len, NDB_KEY_MAX);
	ndb_iter *it = malloc(sizeof *it);
	if (!it) return memory();
	memset(it, 0, offsetof(ndb_iter, subscripts));
	it->scan.lmdb = NULL;
	it->text = it->copy = it->pages = NULL,
	it->text_used = it->text_cap = it->copy_cap = it->pages_bytes = 0;
	it->session = s, it->flags = flags, it->stored = ndb_is_stored(key, len);
	lock_list(s);
	it->next = s->iterators;
	if (it->next) it->next->previous = it;
	s->iterators = it;
	unlock_list(s);
	s->iterator_bytes += ITERATOR_BYTES;
	it->left = limit ? limit : UINT64_MAX;
	it->batch = FIRST_BATCH;
	it->top_len = len;
	if (len) memcpy(it->top, key, len);
	if (from)
		it->has_from = 1,
		error = bound_key(key, len, from, flags & NDB_DESCENDANTS, it->from, &it->from_len);
	if (to && error == NDB_OK)
		it->has_to = 1,
		error = bound_key(key, len, to, flags & NDB_DESCENDANTS, it->to, &it->to_len);
	if (error < 0) {
		ndb_iter_close(it);
		return error;
	}
	*out = it;
	return NDB_OK;
}

void ndb_iter_close(ndb_iter *it) {
	if (!it) return;
	lock_list(it->session);
	if (it->previous) it->previous->next = it->next;
	else it->session->iterators = it->next;
	if (it->next) it->next->previous = it->previous;
	unlock_list(it->session);
	ndb_scan_close(&it->scan);
	if (it->captured) ndb_view_release(&it->view);
	it->session->iterator_bytes -= ITERATOR_BYTES + it->copy_cap + it->pages_bytes;
	free(it->text);
	free(it->copy);
	free(it->pages);
	free(it);
}

int ndb_iter_valid(const ndb_iter *it) {
	return it->captured && it->version == ndb_session_version(it->session, it->stored);
}

int ndb_iter_seek_after(ndb_iter *it, uint32_t index) {
	if (index >= it->count)
		return ndb_fail(NDB_E_ARGUMENT, "the last fill had %u items", it->count);
	it->left += it->left == UINT64_MAX ? 0 : it->count - 1 - index;
	if (it->flags & NDB_DESCENDANTS) {
		it->last_len = it->key_lens[index];
		memcpy(it->last, it->keys[index], it->last_len);
	} else { /* only the subscript was copied */
		int error =
		    bound_key(it->top, it->top_len, &it->subscripts[index], 0, it->last, &it->last_len);
		if (error < 0) return error;
	}
	it->count = index + 1;
	it->placed = it->finished = 0;
	return NDB_OK;
}

uint64_t ndb_iterators_pinned(const ndb_session *s) {
	uint64_t sum[2] = {0}, oldest[2] = {0};
	for (const ndb_iter *it = s->iterators; it; it = it->next) {
		if (!it->captured || it->version == RELEASED) continue;
		int stored = it->stored != 0;
		uint64_t since = ndb_session_shed(s, stored) - it->shed;
		sum[stored] += since < it->holds ? since : it->holds;
		if (since > oldest[stored]) oldest[stored] = since;
	}
	return (sum[0] < oldest[0] ? sum[0] : oldest[0]) + (sum[1] < oldest[1] ? sum[1] : oldest[1]);
}

/* Captures the session's current view for the iterator. */
static int capture(ndb_iter *it) {
	if (ndb_iter_valid(it)) return NDB_OK;
	ndb_view fresh;
	ndb_session *s = it->session;
	uint64_t version = 0;
	int error = ndb_session_capture(s, it->stored, &fresh, &version);
	it->version = version;
	if (error < 0) return error;
	it->shed = ndb_session_shed(s, it->stored);
	it->holds =
	    it->stored ? ndb_session_own_bytes(s) + s->given - s->given_durable : s->local.bytes;
	if (it->captured) {
		it->batch = FIRST_BATCH; /* the view may soon change again */
		ndb_view before = it->view;
		if (!fresh.base) ndb_scan_close(&it->scan);
		it->view = fresh;
		error = ndb_scan_renew(&it->scan, &it->view);
		ndb_view_release(&before);
	} else {
		it->view = fresh;
		it->captured = 1;
		error = ndb_scan_open(
		    &it->scan, it->session->store, &it->view, it->flags & NDB_REVERSE ? 1 : 0);
	}
	it->placed = 0;
	if (error < 0) it->version = 0;
	return error;
}

/* Writes to room the key from which to seek the next item. */
static size_t next_place(const ndb_iter *it, char *room) {
	size_t len;
	int reverse = it->flags & NDB_REVERSE, below = it->flags & NDB_DESCENDANTS;
	if (it->started) {
		len = it->last_len;
		memcpy(room, it->last, len);
		if (!reverse) room[len++] = below ? 0 : (char)0xFF;
	} else if (it->has_from) {
		len = it->from_len;
		memcpy(room, it->from, len);
		if (reverse) room[len++] = below ? 0 : (char)0xFF;
	} else {
		len = it->top_len;
		memcpy(room, it->top, len);
		if (reverse) room[len++] = (char)0xFF;
		else if (!(below && (it->flags & NDB_SELF)) && len) room[len++] = 0;
	}
	return len;
}

/* True if the scan's current child, of key length len, is beyond the bound. */
static int beyond(const ndb_iter *it, size_t len) {
	if (!it->has_to) return 0;
	int order = ndb_key_compare(it->scan.key, len, it->to, it->to_len);
	return it->flags & NDB_REVERSE ? order < 0 : order > 0;
}

/* Returns space for the text of a subscript. The buffer must not move within a batch, so it is
 * allocated for a whole one. */
static char *text_room(ndb_iter *it) {
	if (it->text_cap - it->text_used < NDB_KEY_MAX) return NULL;
	return it->text + it->text_used;
}

static int decode(ndb_iter *it, const char *key, size_t len, ndb_scalar *out) {
	char *room = text_room(it);
	size_t at = it->top_len;
	int error = ndb_key_decode(key, len, &at, out, room);
	if (error == NDB_OK && out->type != NDB_NUMBER) it->text_used += out->len;
	return error;
}

static int fill_descendants(ndb_iter *it) {
	ndb_scan *c = &it->scan;
	int self = it->flags & NDB_SELF;
	while (it->count < it->batch && c->key &&
	       ndb_key_within(c->key, c->len, it->top, it->top_len) && !beyond(it, c->len)) {
		if (c->len == it->top_len && !self) {
			if (it->flags & NDB_REVERSE) break;
		} else {
			uint32_t i = it->count++;
			it->keys[i] = c->key, it->key_lens[i] = (uint32_t)c->len;
			if (it->flags & NDB_VALUES) {
				uint64_t expiry;
				int error = ndb_scan_value(c, &it->values[i], &expiry);
				if (error < 0) return error;
			}
		}
		ndb_scan_next(c);
	}
	return c->error;
}

/* Decodes the subscript of a direct child of top, if it is a small integer or a string without
 * escapes, and returns 1; else 0. A string is not copied. The key must lie in a leaf page, where at
 * least the 8 bytes of the node's header precede it. */
static inline int read_subscript(const char *key, size_t len, size_t top_len, ndb_scalar *out) {
	unsigned tag = (unsigned char)key[top_len];
	size_t n = len - top_len - 1;
	if (tag >= 0x79 && tag <= 0x87) { /* 80±n, n bytes */
		size_t bytes = tag >= 0x80 ? tag - 0x80 : 0x80 - tag;
		if (n != bytes) return 0;
		uint64_t word;
		memcpy(&word, key + len - 8, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		word = __builtin_bswap64(word);
#endif
		uint64_t mask = ((uint64_t)1 << (8 * n)) - 1;
		if (tag < 0x80) word = ~word;
		word &= mask;
		if (NDB_UNLIKELY(word > (uint64_t)1 << 53)) return 0;
		out->number = tag < 0x80 ? -(double)(int64_t)word : (double)(int64_t)word;
		out->type = NDB_NUMBER, out->bytes = NULL, out->len = 0;
		return 1;
	}
	if (tag != 0xC0 || n == 0) return 0;
	const char *text = key + top_len + 1, *p = text, *end = key + len - 1;
	while (p < end && (unsigned char)*p > 1) p++;
	if (p != end || *end != 0) return 0;
	out->number = 0;
	out->bytes = text, out->len = (uint32_t)(n - 1), out->type = NDB_STRING;
	return 1;
}

/* Copies a leaf page if enough of its items are needed, so that items can point into the copy. */
static const char *own_page(ndb_iter *it, const char *page, unsigned items) {
	size_t size = lmdb_page_size(it->scan.lmdb);
	if (items < PAGE_ITEMS || it->pages_used == PAGES_MAX) return page;
	if (!it->pages) {
		if (!(it->pages = malloc(PAGES_MAX * size))) return page; /* each item is copied */
		it->pages_bytes = PAGES_MAX * size;
		it->session->iterator_bytes += it->pages_bytes;
	}
	return memcpy(it->pages + size * it->pages_used++, page, size);
}

/* True if the value of an item is text; its neighbours' values then probably are, too. */
static int has_text(const char *page, unsigned at) {
	size_t len;
	const char *value = lmdb_node_value(lmdb_leaf_node(page, at), &len);
	return value && len && ndb_stored_is_text(value);
}

/* Adds children without descendants, straight from LMDB's leaf pages, up to the first other
 * node. */
static int fill_from_leaves(ndb_iter *it) {
	ndb_scan *c = &it->scan;
	int values = it->flags & NDB_VALUES;
	/* At the end of LMDB's nodes, the scan moves to pending nodes, which have an entry. */
	while (it->count < it->batch && c->key && !c->entry) {
		lmdb_leaf leaf;
		lmdb_leaf_get(c->lmdb, &leaf);
		size_t len, value_len;
		const char *key = lmdb_node_key(lmdb_leaf_node(leaf.page, leaf.count - 1), &len);
		/* All keys between two keys within top are within it, too. */
		int all = ndb_key_within(key, len, it->top, it->top_len);
		unsigned i = leaf.at, stop = leaf.count;
		if (stop - i > it->batch - it->count) stop = i + (it->batch - it->count);
		uint32_t at = it->count;
		const char *page = leaf.page;
		if ((len > it->top_len && (unsigned char)key[it->top_len] >= 0xC0) ||
		    (values && has_text(page, i)))
			page = own_page(it, page, stop - i);
		for (; i < stop; i++, at++) {
			const char *node = lmdb_leaf_node(page, i);
			key = lmdb_node_key(node, &len);
			if (!all && !ndb_key_within(key, len, it->top, it->top_len)) break;
			/* This also rejects a key that is too long. */
			if (NDB_UNLIKELY(len - it->top_len - 1 >= NDB_KEY_MAX - it->top_len) ||
			    !read_subscript(key, len, it->top_len, &it->subscripts[at]))
				break;
			if (it->has_to && ndb_key_compare(key, len, it->to, it->to_len) > 0) break;
			it->keys[at] = key, it->key_lens[at] = (uint32_t)len;
			if (values) {
				uint64_t expiry;
				const char *value = lmdb_node_value(node, &value_len);
				if (NDB_UNLIKELY(!value)) {
					MDB_val big;
					int rc = lmdb_node_big(c->lmdb, node, &big);
					if (rc) return ndb_lmdb_error(rc, "walk");
					value = big.mv_data, value_len = big.mv_size;
				}
				int error = ndb_stored_read(value, value_len, &it->values[at], &expiry);
				if (error == NDB_OK && NDB_UNLIKELY(c->store->options.verify))
					error = ndb_stored_verify(c->store, key, len, value, value_len);
				if (error < 0) return error;
			}
		}
		int stopped = i < stop;
		/* In a damaged file keys may be out of order. The last key of a batch must follow its
		 * first, or the next batch may be the same. */
		if (at - it->count > 1 && ndb_key_compare(it->keys[it->count], it->key_lens[it->count],
		                              it->keys[at - 1], it->key_lens[at - 1]) >= 0)
			return ndb_lmdb_error(MDB_CORRUPTED, "walk");
		it->count = at;
		if (i != leaf.at) ndb_scan_leaf(c, i, leaf.count);
		if (stopped) break;
	}
	return c->error;
}

static int fill_siblings(ndb_iter *it) {
	ndb_scan *c = &it->scan;
	int plain = it->top_len && ndb_scan_is_plain(c, it->top, it->top_len);
	int reverse = it->flags & NDB_REVERSE;
	while (
	    it->count < it->batch && c->key && ndb_key_within(c->key, c->len, it->top, it->top_len)) {
		if (c->len == it->top_len) { /* the parent itself */
			if (reverse) break;
			ndb_scan_next(c);
			continue;
		}
		if (plain) {
			/* The code below handles the node that stopped it, and the child that contains that
			 * node. */
			uint32_t before = it->count;
			int error = fill_from_leaves(it);
			if (error < 0) return error;
			if (it->count != before) {
				/* Skip descendants of the last child. */
				const char *last = it->keys[it->count - 1];
				size_t last_len = it->key_lens[it->count - 1];
				if (c->key && ndb_key_within(c->key, c->len, last, last_len)) {
					char place[NDB_KEY_MAX + 1];
					ndb_key_end(place, last, last_len);
					ndb_scan_seek(c, place, last_len + 1);
				}
				continue;
			}
		}
		if (!text_room(it)) break;
		int len = child_len(c->key, c->len, it->top_len);
		if (len < 0) return len;
		if (beyond(it, (size_t)len)) break;
		uint32_t i = it->count;
		const char *key = c->key;
		size_t key_len = (size_t)len;
		int error = decode(it, key, key_len, &it->subscripts[i]);
		if (error < 0) return error;
		it->keys[i] = key, it->key_lens[i] = (uint32_t)key_len;
		if (it->flags & NDB_VALUES) {
			uint64_t expiry = 0;
			it->values[i].type = NDB_ABSENT;
			if (c->len == key_len) error = ndb_scan_value(c, &it->values[i], &expiry);
			else if (reverse)
				error = ndb_view_get(
				    it->session->store, &it->view, key, key_len, &it->values[i], &expiry);
			if (error < 0) return error;
			if (error == NDB_NONE) it->values[i].type = NDB_ABSENT;
		}
		it->count++;
		/* Move past the child and its descendants: one or two steps, else a seek. */
		int exact = c->len == key_len;
		if (!reverse || exact) {
			ndb_scan_next(c);
			if (!reverse && c->key && ndb_key_within(c->key, c->len, key, key_len))
				ndb_scan_next(c);
		}
		if (c->key && (reverse ? !exact : ndb_key_within(c->key, c->len, key, key_len))) {
			char place[NDB_KEY_MAX + 1];
			ndb_key_end(place, key, key_len);
			ndb_scan_seek(c, place, key_len + (reverse ? 0u : 1u));
		}
	}
	return c->error;
}

/* True for text outside the iterator's own memory. */
static inline int is_text(const ndb_iter *it, const ndb_scalar *s) {
	return (s->type == NDB_STRING || s->type == NDB_DIGITS) && s->len &&
	       (uintptr_t)s->bytes - (uintptr_t)it->pages >= it->pages_bytes &&
	       (uintptr_t)s->bytes - (uintptr_t)it->text >= it->text_cap;
}

static int make_copy_room(ndb_iter *it, size_t need) {
	if (need <= it->copy_cap && (it->copy_cap <= COPY_MAX || need > COPY_MAX)) return NDB_OK;
	free(it->copy);
	it->session->iterator_bytes -= it->copy_cap;
	it->copy_cap = 0;
	size_t cap = 256;
	while (cap < need) cap *= 2;
	if (!(it->copy = malloc(cap))) return memory();
	it->copy_cap = cap;
	it->session->iterator_bytes += cap;
	return NDB_OK;
}

/* Copies the text that items point to, so that they do not depend on the snapshot. Drops items that
 * exceed COPY_MAX; the next fill returns them. */
static int copy_items(ndb_iter *it) {
	int values = it->flags & NDB_VALUES, keys = it->flags & (NDB_DESCENDANTS | NDB_KEYS),
	    subscripts = !(it->flags & NDB_DESCENDANTS);
	size_t need = 0;
	for (uint32_t i = 0; i < it->count; i++) {
		size_t before = need;
		if (subscripts && is_text(it, &it->subscripts[i])) need += it->subscripts[i].len;
		if (values && is_text(it, &it->values[i])) need += it->values[i].len;
		if (keys) need += it->key_lens[i];
		if (need <= COPY_MAX || i == 0) continue;
		need = before;
		it->count = i;
		it->placed = 0;
	}
	if (!need) return NDB_OK;
	int error = make_copy_room(it, need);
	if (error < 0) return error;
	char *at = it->copy;
	for (uint32_t i = 0; i < it->count; i++) {
		ndb_scalar *texts[] = {
		    subscripts ? &it->subscripts[i] : NULL, values ? &it->values[i] : NULL};
		for (int t = 0; t < 2; t++) {
			if (!texts[t] || !is_text(it, texts[t])) continue;
			ndb_copy(at, texts[t]->bytes, texts[t]->len);
			texts[t]->bytes = at;
			at += texts[t]->len;
		}
		if (keys) {
			ndb_copy(at, it->keys[i], it->key_lens[i]);
			it->keys[i] = at;
			at += it->key_lens[i];
		}
	}
	return NDB_OK;
}

static int fill(ndb_iter *it, ndb_items *out) {
	int error;
	it->count = 0;
	it->pages_used = 0;
	if (it->left == 0) return NDB_NONE;
	if ((error = capture(it)) < 0) return error;
	if (it->finished && it->placed) return NDB_NONE;
	it->text_used = 0;
	uint32_t batch = it->batch < it->left ? it->batch : (uint32_t)it->left;
	if (!(it->flags & NDB_DESCENDANTS) && it->text_cap < (size_t)NDB_KEY_MAX + batch * 32) {
		free(it->text);
		it->text_cap = 0;
		it->text = malloc((size_t)NDB_KEY_MAX + batch * 32);
		if (!it->text) return memory();
		it->text_cap = (size_t)NDB_KEY_MAX + batch * 32;
	}
	char place[NDB_KEY_MAX + 2];
	size_t place_len = next_place(it, place);
	if (!it->placed) ndb_scan_seek(&it->scan, place, place_len);
	it->placed = 1;
	uint32_t full = it->batch;
	it->batch = batch;
	error = it->flags & NDB_DESCENDANTS ? fill_descendants(it) : fill_siblings(it);
	it->batch = full < NDB_BATCH ? full * 4 < NDB_BATCH ? full * 4 : NDB_BATCH : NDB_BATCH;
	if (error == NDB_OK && it->stored) error = copy_items(it);
	if (error < 0) {
		it->placed = 0;
		it->count = 0;
		return error;
	}
	if (it->count) {
		it->started = 1;
		it->last_len = it->key_lens[it->count - 1];
		memcpy(it->last, it->keys[it->count - 1], it->last_len);
	}
	if (it->stored && ndb_session_records(it->session)) {
		/* The range passed counts as read; at the end, so does the gap that follows. */
		char end[NDB_KEY_MAX + 2];
		size_t end_len = it->count ? it->last_len : it->top_len;
		memcpy(end, it->count ? it->last : it->top, end_len);
		if (!(it->flags & NDB_REVERSE)) {
			if (!it->count || !(it->flags & NDB_DESCENDANTS)) end[end_len++] = (char)0xFF;
			ndb_reads_range(&it->session->reads, place, place_len, end, end_len);
		} else {
			ndb_reads_range(&it->session->reads, end, end_len, place, place_len);
		}
	}
	out->count = it->count;
	if (it->left != UINT64_MAX) it->left -= it->count;
	if (it->count) return NDB_OK;
	it->finished = 1;
	return NDB_NONE;
}

int ndb_iter_fill(ndb_iter *it, ndb_items *out) {
	ndb_session *s = it->session;
	*out = (ndb_items){it->subscripts, it->values, it->keys, it->key_lens, 0};
	int error = ndb_session_enter(s);
	if (error < 0) return error;
	int reads = it->stored && s->store;
	if (reads) ndb_read_begin(s);
	ndb_session_hold(s, it->stored);
	int result = fill(it, out);
	ndb_session_unhold(s, it->stored);
	atomic_store_explicit(&it->fills, atomic_load_explicit(&it->fills, memory_order_relaxed) + 1,
	    memory_order_relaxed);
	if (reads) ndb_read_end(s);
	return result;
}

/* ---- for the releaser ---- */

int ndb_iters_hold(ndb_session *s, int *idle) {
	int hold = 0;
	for (ndb_iter *it = s->iterators; it; it = it->next) {
		if (!it->stored || !it->captured || it->version == RELEASED) continue;
		uint32_t fills = atomic_load_explicit(&it->fills, memory_order_relaxed);
		it->idle = fills == it->fills_seen;
		it->fills_seen = fills;
		*idle |= it->idle;
		hold = 1;
	}
	return hold;
}

void ndb_iters_release(ndb_session *s) {
	for (ndb_iter *it = s->iterators; it; it = it->next) {
		if (!it->stored || !it->captured || !it->idle || it->version == RELEASED) continue;
		ndb_scan_close(&it->scan);
		ndb_view_release(&it->view);
		it->version = RELEASED;
	}
}

/* ---- single steps ---- */

/* Copies the scan's current key for the caller, since the view is released after the call. */
static const char *keep_key(ndb_session *s, const char *key, size_t len) {
	memcpy(s->key, key, len);
	return s->key;
}

static void read_between(ndb_session *s, const char *a, size_t a_len, const char *b, size_t b_len) {
	if (!ndb_session_records(s)) return;
	if (ndb_key_compare(a, a_len, b, b_len) <= 0) ndb_reads_range(&s->reads, a, a_len, b, b_len);
	else ndb_reads_range(&s->reads, b, b_len, a, a_len);
}

int ndb_next_sibling(ndb_session *s, const char *key, size_t len, int reverse, ndb_scalar *out) {
	int locked, parent, result = ndb_session_enter(s);
	ndb_view view;
	ndb_scan c;
	char place[NDB_KEY_MAX + 1];
	if (result < 0) return result;
	if (len < 2 || len > NDB_KEY_MAX) return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes", len);
	if ((parent = ndb_key_parent(key, len)) < 0) return parent;
	int stored = ndb_is_stored(key, len);
	if ((result = ndb_session_view(s, stored, &view, &locked)) < 0) return result;
	if ((result = ndb_scan_open(&c, s->store, &view, reverse != 0)) == NDB_OK) {
		memcpy(place, key, len);
		if (!reverse) place[len] = (char)0xFF;
		size_t place_len = len + (reverse ? 0u : 1u);
		ndb_scan_seek(&c, place, place_len);
		result = c.error;
		if (result == NDB_OK && c.key && c.len > (size_t)parent &&
		    ndb_key_within(c.key, c.len, key, (size_t)parent)) {
			int found = child_len(c.key, c.len, (size_t)parent);
			size_t at = (size_t)parent;
			if (found < 0) {
				result = found;
			} else {
				char child[NDB_KEY_MAX + 1];
				memcpy(child, c.key, (size_t)found);
				result = ndb_key_decode(child, (size_t)found, &at, out, s->key);
				child[found] = (char)0xFF;
				if (stored)
					read_between(s, place, place_len, child, (size_t)found + (reverse ? 0u : 1u));
			}
		} else if (result == NDB_OK) {
			result = NDB_NONE;
			char end[NDB_KEY_MAX + 1];
			ndb_key_end(end, key, (size_t)parent);
			if (stored)
				read_between(s, place, place_len, end, (size_t)parent + (reverse ? 0u : 1u));
		}
	}
	ndb_scan_close(&c);
	ndb_session_view_end(s, locked);
	return result;
}

int ndb_next_node(
    ndb_session *s, const char *key, size_t len, int reverse, const char **next, size_t *next_len) {
	int locked, result = ndb_session_enter(s);
	ndb_view view;
	ndb_scan c;
	char place[NDB_KEY_MAX + 1];
	if (result < 0) return result;
	const char *name_end = len <= NDB_KEY_MAX ? memchr(key, 0, len) : NULL;
	if (!name_end) return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes: it has no name", len);
	size_t name_len = (size_t)(name_end - key) + 1;
	int stored = ndb_is_stored(key, len);
	if ((result = ndb_session_view(s, stored, &view, &locked)) < 0) return result;
	if ((result = ndb_scan_open(&c, s->store, &view, reverse != 0)) == NDB_OK) {
		memcpy(place, key, len);
		place[len] = 0;
		size_t place_len = len + (reverse ? 0u : 1u);
		ndb_scan_seek(&c, place, place_len);
		result = c.error;
		if (result == NDB_OK && c.key && ndb_key_within(c.key, c.len, key, name_len)) {
			*next = keep_key(s, c.key, c.len);
			*next_len = c.len;
			if (stored) read_between(s, place, place_len, *next, *next_len);
		} else if (result == NDB_OK) {
			result = NDB_NONE;
			char end[NDB_KEY_MAX + 1];
			ndb_key_end(end, key, name_len);
			if (stored) read_between(s, place, place_len, end, name_len + (reverse ? 0u : 1u));
		}
	}
	ndb_scan_close(&c);
	ndb_session_view_end(s, locked);
	return result;
}

int ndb_data(ndb_session *s, const char *key, size_t len) {
	int locked, result = ndb_session_enter(s), data = 0;
	ndb_view view;
	ndb_scan c;
	ndb_scalar value;
	uint64_t expiry;
	char place[NDB_KEY_MAX + 1];
	if (result < 0) return result;
	if (len < 2 || len > NDB_KEY_MAX) return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes", len);
	int stored = ndb_is_stored(key, len);
	if ((result = ndb_session_view(s, stored, &view, &locked)) < 0) return result;
	memcpy(place, key, len);
	result = ndb_view_get(s->store, &view, key, len, &value, &expiry);
	if (result == NDB_OK) data = 1;
	if (result >= 0 && (result = ndb_scan_open(&c, s->store, &view, 0)) == NDB_OK) {
		place[len] = 0;
		ndb_scan_seek(&c, place, len + 1);
		result = c.error;
		if (c.key && ndb_key_within(c.key, c.len, key, len)) data += 10;
		ndb_scan_close(&c);
	}
	ndb_session_view_end(s, locked);
	place[len] = (char)0xFF;
	if (stored) read_between(s, key, len, place, len + 1);
	return result < 0 ? result : data;
}

/* ---- walks in slices ---- */

int ndb_count(ndb_session *s, const char *key, size_t len, uint64_t steps, char *position,
    size_t *position_len, uint64_t *count) {
	ndb_view view;
	ndb_scan c;
	uint64_t version;
	int result = ndb_session_enter(s);
	if (result < 0) return result;
	if (len > NDB_KEY_MAX || *position_len > NDB_KEY_MAX)
		return ndb_fail(NDB_E_KEY, "invalid key of %zu bytes", len);
	int stored = ndb_is_stored(key, len);
	ndb_session_hold(s, stored);
	if ((result = ndb_session_capture(s, stored, &view, &version)) < 0) {
		ndb_session_unhold(s, stored);
		return result;
	}
	if ((result = ndb_scan_open(&c, s->store, &view, 0)) == NDB_OK) {
		ndb_scan_resume(&c, key, len, position, *position_len);
		uint64_t taken = 0;
		while (c.key && ndb_key_within(c.key, c.len, key, len)) {
			++*count;
			if (steps && ++taken >= steps) {
				*position_len = c.len;
				memcpy(position, c.key, c.len);
				result = NDB_MORE;
				break;
			}
			ndb_scan_next(&c);
		}
		if (c.error) result = c.error;
		if (stored) {
			char end[NDB_KEY_MAX + 1];
			ndb_key_end(end, key, len);
			read_between(s, key, len, end, len + 1);
		}
	}
	ndb_scan_close(&c);
	ndb_session_unhold(s, stored);
	ndb_view_release(&view);
	return result;
}
