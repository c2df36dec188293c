// Extracts typed columns from documents that are stored back to back.

#ifndef PERIGEE_EXTRACT_H
#define PERIGEE_EXTRACT_H

#include "document.h"

// The numbers are those of event.Type, event.Unit, report.Kind and report.Misfit.
enum {
	T_BOOL = 1,
	T_INT32,
	T_INT64,
	T_FLOAT64,
	T_DECIMAL,
	T_STRING,
	T_TIMESTAMP,
	T_JSON,
	T_TIMESTAMP_NS
};
enum {
	U_SECONDS,
	U_MILLISECONDS,
	U_MICROSECONDS,
	U_NANOSECONDS,
	U_TEXT_ONLY
};
enum {
	K_NULL = 1,
	K_BOOL = 2,
	K_INT = 4,
	K_BIG_INT = 8,
	K_FLOAT = 16,
	K_STRING = 32,
	K_OBJECT = 64,
	K_ARRAY = 128
};
enum {
	M_MISTYPED = 1,
	M_MISSING,
	M_OUT_OF_RANGE,
	M_FRACTIONAL,
	M_BAD_TIME,
	M_LATE_TIME,
	M_TIME_NUMBER,
	M_FAR_TIME
};

typedef struct {
	const char *data;
	size_t len;
} span;

typedef struct {
	uint8_t type, required, unit;
	uint32_t node;     // of path[0] in the preceding event
	uint64_t template; // the template whose documents all have it there; 0: none
	uint32_t depth;    // number of keys in path
	span *path;
	// The extracted values, one per row; the type decides which of these arrays are used.
	uint8_t *null;
	int64_t *ints;
	double *floats;
	uint32_t *ends;
	doc_buf bytes;
} column;

// A name of top-level fields.
typedef struct {
	span text;
	uint32_t hash;
	uint16_t kinds; // seen in this run; only for fields that no column names
} field_name;

typedef struct {
	uint32_t row;
	int32_t column; // -1: the document itself is invalid
	uint16_t kind;
	uint8_t misfit;       // or a doc_error
	uint32_t offset, len; // of the value in the data, or of the error
} rejected;

typedef struct extractor {
	doc *d;
	column *columns;
	uint32_t column_count, rows, row_cap;
	uint8_t unknown;   // report fields that no column names, which the following fields serve
	field_name *names; // the first `column_names` belong to columns
	uint32_t name_count, name_cap, column_names;
	uint32_t *table, table_cap;           // hash table of name numbers, +1
	uint32_t column_cap;                  // size of the table with only the columns' names
	uint32_t *last_names, last_names_cap; // the name of each field in the preceding document
	size_t row_bytes;                     // size of the last row's values
	rejected *rejected;
	uint32_t rejected_count, rejected_cap;
} extractor;

extractor *doc_extract_new(uint32_t columns);
void doc_extract_free(extractor *x);
int doc_extract_column(extractor *x, uint32_t c, int type, int unit, int required, uint32_t depth);
int doc_extract_key(extractor *x, uint32_t c, uint32_t i, const char *key, size_t len);

// doc_extract_run adds a row for each of n documents and returns DOC_OK or DOC_NO_MEMORY. Values
// that do not fit become null and are listed in `rejected`.
int doc_extract_run(extractor *x, const char *data, const uint32_t *ends, uint32_t n);

// The same in steps, in DOC_FUNCTIONS: first doc_extract_begin. Then doc_extract_rows fills the
// missing rows up to row n, or doc_extract_event fills row n-1 from the event d as written.
// doc_extract_columns_only is doc_extract_event for a row n-1 without a document. If a value does
// not fit or the row exceeds `room` bytes, it fills no row and returns an error.

int doc_extract_kind(const doc *d, uint32_t node); // returns one of the K_ bits

// doc_time_parse parses an RFC 3339 time, or "YYYY-MM-DD HH:MM:SS[.frac]" in UTC, to whole seconds
// since 1970 and the nanoseconds after them.
int doc_time_parse(const char *s, size_t len, int64_t *seconds, int32_t *nanos);

#endif
