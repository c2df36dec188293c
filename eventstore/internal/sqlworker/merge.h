// A merge shows the sorted rows of several results to DuckDB as one sorted table: the table
// function merged_rows(id). It has one chunk of each result in memory at a time.
#ifndef PERIGEE_MERGE_H
#define PERIGEE_MERGE_H

#include <stdint.h>

#include "../duckdb/duckdb.h"
#include "scan.h"

// A merge_input is a streaming result. Its last column is a BLOB, the sort key.
typedef struct {
	duckdb_result result;
	duckdb_data_chunk chunk;
	uint64_t rows;  // of the chunk
	uint64_t next;  // row of the chunk
	uint64_t begin; // the next row when the output's chunk under way began
	int ended;
	const text_cell *keys;    // of the chunk
	const text_cell **texts;  // of the chunk's columns that are texts; else NULL
	const uint64_t **valid;   // the bits of the rows that are not NULL, by column; or NULL
} merge_input;

// A row_merge belongs to its caller, who frees it with merge_free after the last statement
// that reads it, and before its results.
typedef struct row_merge {
	uint64_t id; // set by merge_new
	uint64_t input_count;
	merge_input *inputs;
	uint64_t column_count; // without the key
	int *is_text;
	struct row_merge *next; // of the published ones
} row_merge;

// merge_new makes a merge of results, whose structs it copies, and gives it a number by which
// merged_rows finds it. It returns NULL if there is no memory.
row_merge *merge_new(const duckdb_result *results, uint64_t count);
void merge_free(row_merge *merge);

// merge_register makes the table function known to the database of a connection. It returns
// 0 when DuckDB refuses.
int merge_register(void *connection);

#endif
