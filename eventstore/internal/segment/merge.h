// A merge presents the sorted rows of several results to DuckDB as one sorted table, with the table
// function merged_rows(id). It keeps one chunk of each result in memory.
#ifndef PERIGEE_MERGE_H
#define PERIGEE_MERGE_H

#include <stdint.h>

#include "../duckdb/duckdb.h"
#include "../duckdb/vector.h"

// A merge_input is a streaming result. Its last column is the sort key, a BLOB.
typedef struct {
	duckdb_result result;
	duckdb_data_chunk chunk;
	uint64_t rows;  // of the chunk
	uint64_t next;  // row of the chunk
	uint64_t begin; // value of next when the current output chunk began
	int ended;
	const text_cell *keys;   // of the chunk
	const text_cell **texts; // of the chunk's text columns; else NULL
	const uint64_t **valid;  // validity bits, by column; or NULL
} merge_input;

// A row_merge is owned by its caller, which frees it with pes_merge_free after the last statement
// that reads it and before its results.
typedef struct row_merge {
	uint64_t id; // set by pes_merge_new
	uint64_t input_count;
	merge_input *inputs;
	uint64_t column_count; // without the key
	int *is_text;
	struct row_merge *next; // in the list of published merges
} row_merge;

// pes_merge_new creates a merge of results, copies their structs, and assigns the id by which
// merged_rows finds it. It returns NULL if it is out of memory.
row_merge *pes_merge_new(const duckdb_result *results, uint64_t count);
void pes_merge_free(row_merge *merge);

// pes_merge_register registers the table function with the database of a connection. It returns 0
// on failure.
int pes_merge_register(void *connection);

#endif
