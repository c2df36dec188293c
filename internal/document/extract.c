#include "extract.h"

#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "hash.h"
#include "memory.h"
#include "number.h"
#include "tree.h"

enum {
	NAMES_KEPT = 4096 // number of names above which they are freed between runs
};

extractor *doc_extract_new(uint32_t columns) {
	extractor *x = calloc(1, sizeof *x);
	if (!x) return NULL;
	x->d = doc_new((size_t)1 << 31, NULL, 0);
	x->columns = calloc(columns ? columns : 1, sizeof *x->columns);
	x->column_count = columns;
	x->column_cap = 64;
	if (x->d && x->columns) return x;
	doc_extract_free(x);
	return NULL;
}

static void column_free(column *c) {
	for (uint32_t i = 0; i < c->depth && c->path; i++) free((char *)c->path[i].data);
	free(c->path);
	free(c->null);
	free(c->ints);
	free(c->floats);
	free(c->ends);
	free(c->bytes.data);
}

void doc_extract_free(extractor *x) {
	if (!x) return;
	for (uint32_t i = 0; i < x->column_count && x->columns; i++) column_free(&x->columns[i]);
	for (uint32_t i = 0; i < x->name_count; i++) free((char *)x->names[i].text.data);
	free(x->columns);
	free(x->names);
	free(x->table);
	free(x->last_names);
	free(x->rejected);
	doc_free(x->d);
	free(x);
}

static int copy_span(span *out, const char *data, size_t len) {
	char *copy = malloc(len + 1);
	if (!copy) return DOC_NO_MEMORY;
	memcpy(copy, data, len);
	*out = (span){copy, len};
	return DOC_OK;
}

// grow returns the array with space for n elements, or NULL.
static void *grow(void *array, uint32_t *cap, uint32_t n, size_t size) {
	if (n <= *cap) return array;
	uint32_t fresh_cap = n > *cap * 2 ? n : *cap * 2;
	char *fresh = realloc(array, fresh_cap * size);
	if (!fresh) return NULL;
	memset(fresh + *cap * size, 0, (fresh_cap - *cap) * size);
	*cap = fresh_cap;
	return fresh;
}

// Names of fields

static uint32_t *find_slot(extractor *x, uint32_t h, const char *name, size_t len) {
	for (uint32_t i = h;; i++) {
		uint32_t *at = &x->table[i & (x->table_cap - 1)];
		if (!*at) return at;
		const field_name *e = &x->names[*at - 1];
		if (e->hash == h && e->text.len == len && memcmp(e->text.data, name, len) == 0) return at;
	}
}

static int rebuild_table(extractor *x, uint32_t cap) {
	uint32_t *table = calloc(cap, sizeof *table);
	if (!table) return DOC_NO_MEMORY;
	free(x->table);
	x->table = table;
	x->table_cap = cap;
	for (uint32_t i = 0; i < x->name_count; i++)
		*find_slot(x, x->names[i].hash, x->names[i].text.data, x->names[i].text.len) = i + 1;
	return DOC_OK;
}

// name_number finds or adds a name, and stores its number in *out.
static int name_number(extractor *x, const char *name, size_t len, uint32_t *out) {
	if (x->name_count * 2 >= x->table_cap &&
	    rebuild_table(x, x->table_cap ? x->table_cap * 2 : x->column_cap))
		return DOC_NO_MEMORY;
	uint32_t h = (uint32_t)doc_hash_seeded(name, len), *at = find_slot(x, h, name, len);
	if (!*at) {
		field_name *names = grow(x->names, &x->name_cap, x->name_count + 1, sizeof *names);
		if (!names) return DOC_NO_MEMORY;
		x->names = names;
		field_name *e = &names[x->name_count];
		*e = (field_name){.hash = h};
		if (copy_span(&e->text, name, len)) return DOC_NO_MEMORY;
		*at = ++x->name_count;
	}
	*out = *at - 1;
	return DOC_OK;
}

static int reset_names(extractor *x) {
	for (uint32_t i = 0; i < x->name_count; i++) x->names[i].kinds = 0;
	if (x->name_count - x->column_names <= NAMES_KEPT) return DOC_OK;
	while (x->name_count > x->column_names) free((char *)x->names[--x->name_count].text.data);
	memset(x->last_names, 0, x->last_names_cap * sizeof *x->last_names);
	field_name *names = realloc(x->names, (x->name_count + 1) * sizeof *names);
	if (names) x->names = names, x->name_cap = x->name_count + 1;
	return rebuild_table(x, x->column_cap);
}

int doc_extract_column(extractor *x, uint32_t c, int type, int unit, int required, uint32_t depth) {
	column *col = &x->columns[c];
	col->type = (uint8_t)type;
	col->unit = (uint8_t)unit;
	col->required = (uint8_t)required;
	col->depth = depth;
	col->bytes.max = UINT32_MAX;
	col->path = calloc(depth ? depth : 1, sizeof *col->path);
	return col->path ? DOC_OK : DOC_NO_MEMORY;
}

int doc_extract_key(extractor *x, uint32_t c, uint32_t i, const char *key, size_t len) {
	column *col = &x->columns[c];
	if (copy_span(&col->path[i], key, len)) return DOC_NO_MEMORY;
	if (i > 0) return DOC_OK;
	uint32_t number;
	int error = name_number(x, key, len, &number);
	x->column_names = x->name_count;
	x->column_cap = x->table_cap;
	return error;
}

// Values

static int number_kind(const doc_node *n) {
	int64_t v;
	switch (doc_decimal_int64(doc_decimal_read(n->text, n->len), &v)) {
	case DECIMAL_OK: return K_INT;
	case DECIMAL_RANGE: return K_BIG_INT;
	default: return K_FLOAT;
	}
}

int doc_extract_kind(const doc *d, uint32_t node) {
	const doc_node *n = &d->nodes[node];
	switch (n->kind) {
	case DOC_NULL: return K_NULL;
	case DOC_FALSE:
	case DOC_TRUE: return K_BOOL;
	case DOC_NUMBER: return number_kind(n);
	case DOC_STRING: return K_STRING;
	case DOC_OBJECT: return K_OBJECT;
	default: return K_ARRAY;
	}
}

// read_small_int reads an integer of at most 18 digits.
static inline int read_small_int(const doc_node *n, int64_t *out) {
	const char *s = n->text;
	uint32_t i = *s == '-', len = n->len;
	if (len > 18) return 0;
	int64_t v = 0;
	for (; i < len; i++) {
		unsigned digit = (unsigned)(s[i] - '0');
		if (digit > 9) return 0;
		v = v * 10 + digit;
	}
	*out = *s == '-' ? -v : v;
	return 1;
}

static int read_int64(const doc_node *n, int64_t *out) {
	if (n->kind != DOC_NUMBER) return M_MISTYPED;
	if (read_small_int(n, out)) return 0;
	switch (doc_decimal_int64(doc_decimal_read(n->text, n->len), out)) {
	case DECIMAL_OK: return 0;
	case DECIMAL_RANGE: return M_OUT_OF_RANGE;
	default: return M_FRACTIONAL;
	}
}

static int read_int32(const doc_node *n, int64_t *out) {
	int misfit = read_int64(n, out);
	if (misfit) return misfit;
	return *out < INT32_MIN || *out > INT32_MAX ? M_OUT_OF_RANGE : 0;
}

static int in_years(int64_t micros) {
	return micros >= -62135596800000000 && micros < 253402300800000000;
}

// in_nanos reports whether a time in seconds is in the years 1678 to 2261, which int64 nanoseconds
// can represent.
static int in_nanos(int64_t seconds) { return seconds >= -9214560000 && seconds < 9214646400; }

// read_time reads a number of units since 1970, truncated to microseconds or nanoseconds.
static int read_time(const doc_node *n, int unit, int nanos, int64_t *out) {
	if (unit == U_TEXT_ONLY) return M_TIME_NUMBER;
	decimal x = doc_decimal_read(n->text, n->len);
	x.exp += (nanos ? 9 : 6) - 3 * unit;
	if (x.count > 19) x.exp += x.count - 19, x.count = 19;
	for (; x.exp < 0 && x.digits; x.exp++) x.digits /= 10;
	if (!x.digits) return *out = 0, 0;
	if (doc_decimal_int64(x, out) || !(nanos ? in_nanos(*out / 1000000000) : in_years(*out)))
		return M_LATE_TIME;
	return 0;
}

static int read_timestamp(
    doc *d, uint32_t node, const doc_node *n, int unit, int nanos, int64_t *out) {
	int64_t seconds;
	int32_t part;
	if (n->kind == DOC_NUMBER) return read_time(n, unit, nanos, out);
	if (n->kind != DOC_STRING) return M_MISTYPED;
	if (doc_value(d, node) != DOC_STRING || !doc_time_parse(d->str, d->str_len, &seconds, &part))
		return M_BAD_TIME;
	*out = seconds * 1000000 + part / 1000;
	if (!in_years(*out)) return M_BAD_TIME;
	if (!nanos) return 0;
	if (!in_nanos(seconds)) return M_FAR_TIME;
	*out = seconds * 1000000000 + part;
	return 0;
}

static int read_float(const doc_node *n, double *out) {
	if (n->kind != DOC_NUMBER) return M_MISTYPED;
	*out = doc_double(n->text, n->len);
	return *out - *out != 0 ? M_OUT_OF_RANGE : 0;
}

static int read_string(doc *d, column *c, uint32_t node) {
	const doc_node *n = &d->nodes[node];
	if (n->kind != DOC_STRING) return M_MISTYPED;
	if (is_plain_string(n)) return doc_buf_put(&c->bytes, n->text + 1, n->len - 2) ? -1 : 0;
	if (n->flags & DOC_UNQUOTED) return doc_buf_put(&c->bytes, n->text, n->len) ? -1 : 0;
	if (doc_buf_need(&c->bytes, n->len)) return -1;
	c->bytes.len += doc_unescape(n->text + 1, n->len - 2, c->bytes.data + c->bytes.len);
	return 0;
}

// convert fills row r of c from a value other than null. It returns a misfit, or -1 if memory is
// exhausted.
static int convert(doc *d, column *c, uint32_t r, uint32_t node) {
	const doc_node *n = &d->nodes[node];
	doc_node printed;
	char digits[NUMBER_MAX];
	if (n->flags & DOC_DOUBLE && !n->text) {
		uint32_t len = (uint32_t)doc_number_print(digits, n->u.num);
		printed = *n;
		printed.text = digits;
		printed.len = len;
		n = &printed;
	}
	switch (c->type) {
	case T_BOOL:
		c->ints[r] = n->kind == DOC_TRUE;
		return n->kind == DOC_TRUE || n->kind == DOC_FALSE ? 0 : M_MISTYPED;
	case T_INT32: return read_int32(n, &c->ints[r]);
	case T_INT64: return read_int64(n, &c->ints[r]);
	case T_FLOAT64: return read_float(n, &c->floats[r]);
	case T_TIMESTAMP: return read_timestamp(d, node, n, c->unit, 0, &c->ints[r]);
	case T_TIMESTAMP_NS: return read_timestamp(d, node, n, c->unit, 1, &c->ints[r]);
	case T_STRING: return read_string(d, c, node);
	case T_DECIMAL:
		if (n->kind != DOC_NUMBER) return M_MISTYPED; // its text is copied
	// fall through
	default: return doc_encode(d, node, 0, &c->bytes) ? -1 : 0;
	}
}

static void set_null(column *c, uint32_t r) {
	c->null[r] = 1;
	c->floats[r] = 0;
	c->ints[r] = 0;
}

static int reject(extractor *x, rejected b) {
	rejected *all = grow(x->rejected, &x->rejected_cap, x->rejected_count + 1, sizeof *all);
	if (!all) return DOC_NO_MEMORY;
	x->rejected = all;
	all[x->rejected_count++] = b;
	return DOC_OK;
}

static __attribute__((noinline)) int fill_any(doc *d, column *c, uint32_t r, uint32_t node) {
	int misfit = c->required ? M_MISSING : 0;
	if (node && d->nodes[node].kind != DOC_NULL) misfit = convert(d, c, r, node);
	else set_null(c, r);
	if (misfit) set_null(c, r);
	return misfit;
}

// fill fills row r of c from a node; 0 means that the value is missing. It returns the same as
// convert.
static inline int fill(doc *d, column *c, uint32_t r, uint32_t node) {
	const doc_node *n = &d->nodes[node];
	c->null[r] = 0;
	if (node == 0 || c->type != T_STRING || !is_plain_string(n)) return fill_any(d, c, r, node);
	return doc_buf_put(&c->bytes, n->text + 1, n->len - 2) ? -1 : 0;
}

// is_same_field reports whether doc_find would return the same node as in the preceding document,
// if the template does not decide that.
static int is_same_field(const doc *d, uint32_t field, const span *key) {
	const doc_node *n = &d->nodes[field];
	if (field == 0 || field >= d->count) return 0;
	if (n->parent != 0 || n->key_len != key->len || !n->key || n->flags & DOC_KEY_ESCAPED ||
	    !scan_same(n->key, key->data, key->len))
		return 0;
	if (field >= d->nodes[0].next) return 1; // an added field, and no other has the key
	return d->indexed_shape == d->shape && field < 64 && d->unique_hashes >> field & 1;
}

// column_field returns the field of a column's first key in a document, or 0. Fields of the text
// keep their nodes while the template matches; added fields may not.
static inline uint32_t column_field(doc *d, column *c) {
	if (d->template.matches && c->template == d->template.number) return c->node;
	if (!is_same_field(d, c->node, c->path)) c->node = doc_find(d, 0, c->path->data, c->path->len);
	c->template =
	    d->template.matches && c->node && c->node < d->nodes[0].next ? d->template.number : 0;
	return c->node;
}

// column_value returns the node of a column's value, or 0.
static inline uint32_t column_value(doc *d, column *c) {
	uint32_t field = column_field(d, c);
	for (uint32_t i = 1;; i++) {
		if (!field || d->nodes[field].flags & DOC_REMOVED) return 0;
		uint32_t node = value_of(d, field);
		if (i >= c->depth) return node;
		field = doc_find(d, node, c->path[i].data, c->path[i].len);
	}
}

static int cell(extractor *x, uint32_t ci, uint32_t row, const char *data) {
	column *c = &x->columns[ci];
	uint32_t node = column_value(x->d, c);
	const doc_node *n = &x->d->nodes[node];
	int misfit = fill(x->d, c, row, node);
	if (misfit < 0) return DOC_NO_MEMORY;
	if (!misfit) return DOC_OK;
	rejected b = {.row = row, .column = (int32_t)ci, .misfit = (uint8_t)misfit};
	if (node) {
		b.kind = (uint16_t)doc_extract_kind(x->d, node);
		b.offset = (uint32_t)(n->text - data);
		b.len = n->len;
	}
	return reject(x, b);
}

// Rows

static int field_name_number(extractor *x, const doc_node *n, uint32_t position, uint32_t *out) {
	const char *name = n->key;
	size_t len = n->key_len;
	if (n->flags & DOC_KEY_ESCAPED) {
		char *plain = malloc(len + 1);
		if (!plain) return DOC_NO_MEMORY;
		int error = name_number(x, plain, doc_unescape(name, len, plain), out);
		free(plain);
		return error;
	}
	uint32_t *last = grow(x->last_names, &x->last_names_cap, position + 1, sizeof *last);
	if (!last) return DOC_NO_MEMORY;
	x->last_names = last;
	*out = last[position];
	const span *before = *out < x->name_count ? &x->names[*out].text : &(span){0};
	if (before->data && before->len == len && memcmp(before->data, name, len) == 0) return DOC_OK;
	int error = name_number(x, name, len, out);
	if (!error) last[position] = *out;
	return error;
}

static int add_unknown(extractor *x) {
	doc *d = x->d;
	uint32_t position = 0, number;
	for (uint32_t i = 1; i < d->nodes[0].next; i = d->nodes[i].next, position++) {
		if (field_name_number(x, &d->nodes[i], position, &number)) return DOC_NO_MEMORY;
		if (number >= x->column_names) x->names[number].kinds |= (uint16_t)doc_extract_kind(d, i);
	}
	return DOC_OK;
}

static int extract_row(
    extractor *x, uint32_t row, const char *data, uint32_t from, uint32_t to, const char *limit) {
	int error = doc_index(x->d, data + from, to - from, limit);
	if (error == DOC_NO_MEMORY) return error;
	if (error) {
		for (uint32_t c = 0; c < x->column_count; c++) set_null(&x->columns[c], row);
		return reject(x,
		    (rejected){.row = row, .column = -1, .misfit = (uint8_t)error, .offset = x->d->offset});
	}
	if (x->unknown) error = add_unknown(x);
	for (uint32_t c = 0; c < x->column_count && !error; c++) error = cell(x, c, row, data);
	return error;
}

static int rows_need(extractor *x, uint32_t n) {
	if (n <= x->row_cap) return DOC_OK;
	for (uint32_t i = 0; i < x->column_count; i++) {
		column *c = &x->columns[i];
		uint32_t cap[4] = {x->row_cap, x->row_cap, x->row_cap, x->row_cap};
		void *null = grow(c->null, &cap[0], n, sizeof *c->null);
		if (null) c->null = null;
		void *ends = grow(c->ends, &cap[1], n, sizeof *c->ends);
		if (ends) c->ends = ends;
		void *ints = grow(c->ints, &cap[2], n, sizeof *c->ints);
		if (ints) c->ints = ints;
		void *floats = grow(c->floats, &cap[3], n, sizeof *c->floats);
		if (floats) c->floats = floats;
		if (!null || !ends || !ints || !floats) return DOC_NO_MEMORY;
	}
	x->row_cap = n > x->row_cap * 2 ? n : x->row_cap * 2;
	return DOC_OK;
}

static size_t row_start(const column *c, uint32_t row) { return row ? c->ends[row - 1] : 0; }

static void row_end(extractor *x, uint32_t row) {
	for (uint32_t i = 0; i < x->column_count; i++)
		x->columns[i].ends[row] = (uint32_t)x->columns[i].bytes.len;
	x->rows = row + 1;
}

static void row_drop(extractor *x, uint32_t row) {
	for (uint32_t i = 0; i < x->column_count; i++)
		x->columns[i].bytes.len = row_start(&x->columns[i], row);
	x->rows = row;
}

int doc_extract_begin(extractor *x) {
	x->rows = x->rejected_count = 0;
	for (uint32_t c = 0; c < x->column_count; c++) x->columns[c].bytes.len = 0;
	return reset_names(x);
}

int doc_extract_rows(extractor *x, const char *data, const uint32_t *ends, uint32_t n) {
	int error = rows_need(x, n);
	for (uint32_t row = x->rows; row < n && !error; row++) {
		error = extract_row(x, row, data, row ? ends[row - 1] : 0, ends[row], data + ends[n - 1]);
		row_end(x, row);
	}
	doc_trim(x->d);
	return error;
}

// extract_written fills a row. It returns the same as convert.
static int extract_written(extractor *x, doc *d, uint32_t row) {
	int misfit = 0;
	x->row_bytes = 0;
	for (column *c = x->columns; c < x->columns + x->column_count && !misfit; c++) {
		size_t before = c->bytes.len;
		misfit = fill(d, c, row, column_value(d, c));
		c->ends[row] = (uint32_t)c->bytes.len;
		x->row_bytes += c->bytes.len - before;
	}
	x->rows = row + 1;
	return misfit;
}

int doc_extract_columns_only(
    extractor *x, doc *d, const char *data, const uint32_t *ends, uint32_t n, size_t room) {
	int error = doc_extract_rows(x, data, ends, n - 1);
	if (!error) error = rows_need(x, n);
	if (error) return error;
	if (extract_written(x, d, n - 1) == 0 && x->row_bytes <= room) return DOC_OK;
	row_drop(x, n - 1);
	return DOC_TOO_BIG;
}

// If a value does not fit, the row is read again from its text, which the report quotes.
int doc_extract_event(extractor *x, doc *d, const char *data, const uint32_t *ends, uint32_t n) {
	int error = doc_extract_columns_only(x, d, data, ends, n, SIZE_MAX);
	return error == DOC_TOO_BIG ? doc_extract_rows(x, data, ends, n) : error;
}

int doc_extract_run(extractor *x, const char *data, const uint32_t *ends, uint32_t n) {
	int error = doc_extract_begin(x);
	return error ? error : doc_extract_rows(x, data, ends, n);
}
