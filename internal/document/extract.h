// Typed columns out of documents that stand back to back.

#ifndef PERIGEE_EXTRACT_H
#define PERIGEE_EXTRACT_H

#include "document.h"

// The numbers are those of event.Type, report.Kind and report.Misfit.
enum { T_BOOL = 1, T_INT32, T_INT64, T_FLOAT64, T_DECIMAL, T_STRING, T_TIMESTAMP, T_JSON };
enum { K_NULL = 1, K_BOOL = 2, K_INT = 4, K_BIG_INT = 8, K_FLOAT = 16, K_STRING = 32, K_OBJECT = 64, K_ARRAY = 128 };
enum { M_MISTYPED = 1, M_MISSING, M_OUT_OF_RANGE, M_FRACTIONAL, M_BAD_TIME, M_LATE_TIME };

typedef struct { const char *data; size_t len; } span;

typedef struct {
	uint8_t type, required;
	uint32_t field; // the entry of path[0]
	uint32_t guess; // its node in the event before,
	uint64_t form;  // and the number of the form in which it is sure to be that; 0: of none
	uint32_t depth; // keys in path
	span *path;
	// What was extracted, one per row; the type says which of them count.
	uint8_t *null;
	int64_t *ints;
	double *floats;
	uint32_t *ends;
	doc_buf bytes;
} column;

typedef struct {
	span name;
	uint32_t hash, row; // row: of the last document that had it, counted from 1
	uint32_t node;
	uint16_t kinds;     // seen in this run; only of fields that no column names
} entry;

typedef struct {
	uint32_t row;
	int32_t column; // -1: the document
	uint16_t kind;
	uint8_t misfit; // or a doc_fault
	uint32_t offset, len; // of the value in the data, or where the fault is
} bad;

typedef struct extractor {
	doc *d;
	column *columns;
	uint32_t column_count, rows, row_cap;
	entry *entries; // the first `known` are those of columns
	uint32_t entry_count, entry_cap, known;
	uint32_t *table, table_cap; // hash table of entries, +1
	uint32_t *guess, guess_cap; // guess[i]: which entry field i was in the last document
	size_t last; // bytes of the values of the last row
	bad *bads;
	uint32_t bad_count, bad_cap;
} extractor;

extractor *extract_new(uint32_t columns);
void extract_free(extractor *x);
int extract_column(extractor *x, uint32_t c, int type, int required, uint32_t depth);
int extract_key(extractor *x, uint32_t c, uint32_t i, const char *key, size_t len);

// extract_run fills a row for each of n documents and returns DOC_OK, or
// DOC_NO_MEMORY. Values that do not fit are nulls and are in bads.
int extract_run(extractor *x, const char *data, const uint32_t *ends, uint32_t n);

// The same piece by piece: extract_begin, then extract_rows for what there is up to
// row n, or extract_event, which knows that row n-1 is the event d as it was written.
int extract_begin(extractor *x);
int extract_rows(extractor *x, const char *data, const uint32_t *ends, uint32_t n);
int extract_event(extractor *x, doc *d, const char *data, const uint32_t *ends, uint32_t n);
// extract_bare is extract_event for a row n-1 that has no text. It makes no row that
// does not fit its columns or that takes more than `room` bytes; then it returns a fault.
int extract_bare(extractor *x, doc *d, const char *data, const uint32_t *ends, uint32_t n, size_t room);

int extract_kind(const doc *d, uint32_t node); // one of the K_ bits

// time_parse reads an RFC 3339 time, or "YYYY-MM-DD HH:MM:SS[.frac]" as UTC.
int time_parse(const char *s, size_t len, int64_t *micros);

#endif
