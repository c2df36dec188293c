//go:build cgo && lmdb

/* reads.c: records the keys that a transaction reads, so that its commit can tell whether another
 * transaction changed them. The number of recorded keys is limited; beyond the limit, every change
 * conflicts. One thread at a time may use an ndb_reads.
 */
#include <stdlib.h>

#include "scan.h"

enum {
	COMPARED_MAX = 20000, /* nodes compared by ndb_reads_same */
	POINTS_MAX = 1 << 16,
	RANGES_MAX = 1 << 12,
	BYTES_MAX = 4 << 20 /* of all keys */
};

void ndb_reads_reset(ndb_reads *r) {
	if (r->point_count) memset(r->points, 0, r->point_cap * sizeof *r->points);
	r->used = r->point_count = r->range_count = 0;
	r->everything = r->any = 0;
}

void ndb_reads_free(ndb_reads *r) {
	free(r->bytes);
	free(r->points);
	free(r->ranges);
	*r = (ndb_reads){0};
}

/* Returns the offset of the copied bytes. Without space, sets everything and returns -1. */
static int64_t keep(ndb_reads *r, const char *key, size_t len) {
	if (r->used + len > r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 4096;
		while (cap < r->used + len) cap *= 2;
		char *grown = cap <= BYTES_MAX ? realloc(r->bytes, cap) : NULL;
		if (!grown) {
			r->everything = 1;
			return -1;
		}
		r->bytes = grown, r->cap = cap;
	}
	if (len) memcpy(r->bytes + r->used, key, len);
	r->used += len;
	return (int64_t)(r->used - len);
}

static int grow_points(ndb_reads *r) {
	uint32_t cap = r->point_cap ? r->point_cap * 2 : 256;
	void *grown = cap <= 2 * POINTS_MAX ? calloc(cap, sizeof *r->points) : NULL;
	if (!grown) {
		r->everything = 1;
		return 0;
	}
	ndb_reads old = *r;
	r->points = grown, r->point_cap = cap;
	for (uint32_t i = 0; i < old.point_cap; i++) {
		if (!old.points[i].hash) continue;
		uint32_t at = (uint32_t)old.points[i].hash >> 1 & (cap - 1);
		while (r->points[at].hash) at = (at + 1) & (cap - 1);
		r->points[at] = old.points[i];
	}
	free(old.points);
	return 1;
}

void ndb_reads_point(ndb_reads *r, const char *key, size_t len) {
	r->any = 1;
	if (r->everything) return;
	if (r->point_count * 2 >= r->point_cap && !grow_points(r)) return;
	uint64_t h = ndb_hash(key, len);
	uint32_t at = (uint32_t)h >> 1 & (r->point_cap - 1);
	for (; r->points[at].hash; at = (at + 1) & (r->point_cap - 1))
		if (r->points[at].hash == h && r->points[at].len == len &&
		    memcmp(r->bytes + r->points[at].at, key, len) == 0)
			return;
	int64_t where = keep(r, key, len);
	if (where < 0) return;
	r->points[at].hash = h, r->points[at].at = (uint32_t)where, r->points[at].len = (uint32_t)len;
	r->point_count++;
}

void ndb_reads_range(
    ndb_reads *r, const char *low, size_t low_len, const char *high, size_t high_len) {
	r->any = 1;
	if (r->everything) return;
	if (r->range_count) { /* extend the last range if an iteration continues it */
		uint32_t i = r->range_count - 1;
		const char *last_low = r->bytes + r->ranges[i].low,
		           *last_high = r->bytes + r->ranges[i].high;
		int goes_on = ndb_key_compare(low, low_len, last_low, r->ranges[i].low_len) >= 0 &&
		              ndb_key_compare(low, low_len, last_high, r->ranges[i].high_len) <= 0;
		int goes_back = ndb_key_compare(high, high_len, last_low, r->ranges[i].low_len) >= 0 &&
		                ndb_key_compare(high, high_len, last_high, r->ranges[i].high_len) <= 0;
		if (goes_on && goes_back) return;
		if (goes_on || goes_back) {
			/* If the replaced end was added last, its bytes are reused. */
			uint32_t *at = goes_on ? &r->ranges[i].high : &r->ranges[i].low;
			uint32_t *size = goes_on ? &r->ranges[i].high_len : &r->ranges[i].low_len;
			if (*at + *size == r->used) r->used = *at;
			int64_t where = goes_on ? keep(r, high, high_len) : keep(r, low, low_len);
			if (where < 0) return;
			*at = (uint32_t)where, *size = (uint32_t)(goes_on ? high_len : low_len);
			return;
		}
	}
	if (r->range_count == r->range_cap) {
		uint32_t cap = r->range_cap ? r->range_cap * 2 : 16;
		void *grown = cap <= RANGES_MAX ? realloc(r->ranges, cap * sizeof *r->ranges) : NULL;
		if (!grown) {
			r->everything = 1;
			return;
		}
		r->ranges = grown, r->range_cap = cap;
	}
	int64_t a = keep(r, low, low_len), b = a < 0 ? -1 : keep(r, high, high_len);
	if (b < 0) return;
	uint32_t i = r->range_count++;
	r->ranges[i].low = (uint32_t)a, r->ranges[i].low_len = (uint32_t)low_len;
	r->ranges[i].high = (uint32_t)b, r->ranges[i].high_len = (uint32_t)high_len;
}

/* True if a and b are equal, including their expiry. */
static int same_value(
    const ndb_scalar *a, uint64_t a_expiry, const ndb_scalar *b, uint64_t b_expiry) {
	if (a->type != b->type || a_expiry != b_expiry) return 0;
	if (a->type == NDB_NUMBER) return a->number == b->number;
	if (a->type != NDB_STRING && a->type != NDB_DIGITS) return 1;
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static int same_point(const ndb_store *store, const ndb_view *before, const ndb_view *now,
    const char *key, size_t len) {
	ndb_scalar a, b;
	uint64_t a_expiry, b_expiry;
	int found = ndb_view_get(store, before, key, len, &a, &a_expiry);
	if (found < 0 || ndb_view_get(store, now, key, len, &b, &b_expiry) != found) return 0;
	return found == NDB_NONE || same_value(&a, a_expiry, &b, b_expiry);
}

/* True if the scan has a current node and it is not beyond high. */
static int at_node(const ndb_scan *c, const char *high, size_t high_len) {
	return c->key && ndb_key_compare(c->key, c->len, high, high_len) <= 0;
}

/* Compares the nodes from low to high in both scans; *steps limits their number. */
static int same_range(ndb_scan *a, ndb_scan *b, const char *low, size_t low_len, const char *high,
    size_t high_len, uint32_t *steps) {
	ndb_scan_seek(a, low, low_len);
	ndb_scan_seek(b, low, low_len);
	for (;; ndb_scan_next(a), ndb_scan_next(b)) {
		int here = at_node(a, high, high_len), there = at_node(b, high, high_len);
		if (a->error || b->error || here != there) return 0;
		if (!here) return 1;
		ndb_scalar x, y;
		uint64_t x_expiry, y_expiry;
		if ((*steps)-- == 0 || ndb_key_compare(a->key, a->len, b->key, b->len) != 0 ||
		    ndb_scan_value(a, &x, &x_expiry) < 0 || ndb_scan_value(b, &y, &y_expiry) < 0 ||
		    !same_value(&x, x_expiry, &y, y_expiry))
			return 0;
	}
}

int ndb_reads_same(
    const ndb_reads *r, const ndb_store *store, const ndb_view *before, const ndb_view *now) {
	uint32_t steps = COMPARED_MAX;
	if (r->everything || r->point_count > steps) return 0;
	steps -= r->point_count;
	for (uint32_t i = 0; i < r->point_cap; i++)
		if (r->points[i].hash &&
		    !same_point(store, before, now, r->bytes + r->points[i].at, r->points[i].len))
			return 0;
	if (!r->range_count) return 1;
	ndb_scan a, b;
	int same = ndb_scan_open(&a, store, before, 0) == NDB_OK;
	same &= ndb_scan_open(&b, store, now, 0) == NDB_OK;
	for (uint32_t i = 0; i < r->range_count && same; i++)
		same = same_range(&a, &b, r->bytes + r->ranges[i].low, r->ranges[i].low_len,
		    r->bytes + r->ranges[i].high, r->ranges[i].high_len, &steps);
	ndb_scan_close(&a);
	ndb_scan_close(&b);
	return same;
}

int ndb_reads_meet(const ndb_reads *r, const char *key, size_t len, int kill) {
	if (!r->any) return 0;
	if (r->everything) return 1;
	for (uint32_t i = 0; i < r->range_count; i++) {
		const char *low = r->bytes + r->ranges[i].low, *high = r->bytes + r->ranges[i].high;
		if (ndb_key_compare(key, len, high, r->ranges[i].high_len) > 0) continue;
		if (ndb_key_compare(key, len, low, r->ranges[i].low_len) >= 0 ||
		    (kill && ndb_key_within(low, r->ranges[i].low_len, key, len)))
			return 1;
	}
	if (kill) {
		for (uint32_t i = 0; i < r->point_cap; i++)
			if (r->points[i].hash &&
			    ndb_key_within(r->bytes + r->points[i].at, r->points[i].len, key, len))
				return 1;
		return 0;
	}
	if (!r->point_count) return 0;
	uint64_t h = ndb_hash(key, len);
	for (uint32_t at = (uint32_t)h >> 1 & (r->point_cap - 1); r->points[at].hash;
	     at = (at + 1) & (r->point_cap - 1))
		if (r->points[at].hash == h && r->points[at].len == len &&
		    memcmp(r->bytes + r->points[at].at, key, len) == 0)
			return 1;
	return 0;
}
