// A scan shows frames of the write-ahead log to DuckDB as a table: the table function
// log_frames(id). The frames lie in mapped files; nothing is copied but numbers that are
// narrower in DuckDB than in the log, and short texts.
#ifndef PERIGEE_SCAN_H
#define PERIGEE_SCAN_H

#include <stdint.h>

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
	SCAN_PLACE = 100, // no column of the log: the row's scan_place, as frame << 32 | row
};

// A text_cell is a string as DuckDB's vectors hold it: up to 12 bytes inside, longer ones
// by their address, with the first four for comparison.
typedef union {
	struct {
		uint32_t length;
		char text[12];
	} inside;
	struct {
		uint32_t length;
		char prefix[4];
		const char *text;
	} outside;
} text_cell;

typedef struct {
	const char *name;
	int32_t kind;
} scan_column;

// SCAN_CHUNK_BYTES is about how many bytes of text a chunk of sorted rows has at most, unless
// one row has more.
#define SCAN_CHUNK_BYTES (1u << 20)

// A scan_vector is one column of one frame, laid out as event.Vector has it. A column that
// the frame does not have is all NULL: its values and ends are NULL pointers.
typedef struct {
	const void *values;   // 8 bytes a row, or all texts back to back
	const uint32_t *ends; // of the texts
	const uint8_t *nulls; // 1 for NULL; or a NULL pointer when no row is
} scan_vector;

typedef struct {
	uint64_t rows;
	const scan_vector *vectors; // one a column
} scan_frame;

// A scan_place is where a row of a scan is.
typedef struct {
	uint32_t frame, row;
} scan_place;

typedef struct {
	const char *text;
	uint64_t length;
} scan_text;

// A scan_filter leaves out the rows whose column has none of some values.
typedef struct {
	uint64_t column;        // of the scan
	uint64_t count;         // of the values
	const int64_t *numbers; // for a column of integers
	const scan_text *texts; // for one of texts
} scan_filter;

// A scan belongs to its caller, who frees it after the last result that reads it has been
// destroyed.
typedef struct log_scan {
	uint64_t id; // no two that are published at the same time have the same
	uint64_t column_count;
	const scan_column *columns;
	uint64_t rows;
	uint64_t group_count; // a thread takes a group of frames at a time
	const uint64_t *groups; // the first frame of each, and the number of frames
	const scan_frame *frames;
	uint64_t filter_count;
	const scan_filter *filters;
	// Unless it is NULL, the scan shows the rows at these places only, in this order.
	const scan_place *order;
	uint64_t order_count;
	struct log_scan *next; // of the published ones
} log_scan;

// scan_register makes the table function known to the database of a connection. It returns
// 0 when DuckDB refuses.
int scan_register(void *connection);

// scan_publish lets log_frames find a scan by its id, until scan_withdraw.
void scan_publish(log_scan *scan);
void scan_withdraw(log_scan *scan);

#endif
