// A scan presents frames of the write-ahead log to DuckDB as a table, with the table function
// log_frames(id). The frames are in mapped files. A scan copies only numbers that are narrower in
// DuckDB than in the log, and short texts.
#ifndef PERIGEE_SCAN_H
#define PERIGEE_SCAN_H

#include <stdint.h>

#include "../duckdb/vector.h"

// The kinds of values have the numbers of event.Type.
enum scan_kind {
	SCAN_BOOL = 1,
	SCAN_INT32,
	SCAN_INT64,
	SCAN_FLOAT64,
	SCAN_DECIMAL,
	SCAN_STRING,
	SCAN_TIMESTAMP,
	SCAN_JSON,
	SCAN_TIMESTAMP_NS,
	SCAN_BYTES,
	SCAN_PLACE = 100, // virtual column: the row's scan_place, as frame << 32 | row
};

typedef struct {
	const char *name;
	int32_t kind;
} scan_column;

// A scan_vector is one column of one frame, in the layout of event.Vector. If the frame lacks the
// column, values and ends are NULL pointers and all rows are NULL.
typedef struct {
	const void *values;   // 8 bytes per row, or all texts back to back
	const uint32_t *ends; // end offsets of the texts
	const uint8_t *nulls; // 1 for NULL; a NULL pointer if no row is NULL
} scan_vector;

typedef struct {
	uint64_t rows;
	const scan_vector *vectors; // one per column
} scan_frame;

// A scan_place is the position of a row in a scan.
typedef struct {
	uint32_t frame, row;
} scan_place;

typedef struct {
	const char *text;
	uint64_t length;
} scan_text;

// A scan_filter excludes rows whose column has none of the given values.
typedef struct {
	uint64_t column;        // index in the scan
	uint64_t count;         // number of values
	const int64_t *numbers; // for an integer column
	const scan_text *texts; // for a text column
} scan_filter;

// A log_scan is owned by its caller, which frees it after the last result that reads it is
// destroyed.
typedef struct log_scan {
	uint64_t id; // unique among published scans
	uint64_t column_count;
	const scan_column *columns;
	uint64_t rows;
	uint64_t group_count;   // a thread takes a group of frames at a time
	const uint64_t *groups; // the first frame of each group, then the number of frames
	const scan_frame *frames;
	uint64_t filter_count;
	const scan_filter *filters;
	// If not NULL, the scan shows only the rows at these places, in this order.
	const scan_place *order;
	uint64_t order_count;
	struct log_scan *next; // in the list of published scans
} log_scan;

// pes_scan_register registers the table function with the database of a connection. It returns 0 on
// failure.
int pes_scan_register(void *connection);

// pes_scan_publish lets log_frames find a scan by its id, until pes_scan_withdraw.
void pes_scan_publish(log_scan *scan);
void pes_scan_withdraw(log_scan *scan);

#endif
