// Helpers shared by the table functions that fill DuckDB vectors.
#ifndef PERIGEE_VECTOR_H
#define PERIGEE_VECTOR_H

#include <stdint.h>

// A text_cell is a string in DuckDB's vector format: up to 12 bytes inline; longer strings by
// address, with the first four bytes for comparison.
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

// CHUNK_TEXT_BYTES is the approximate maximum of text bytes in a chunk of sorted rows, unless a
// single row exceeds it.
#define CHUNK_TEXT_BYTES (1u << 20)

#endif
