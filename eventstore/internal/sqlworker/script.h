// A script function is an SQL function whose values the parent computes: script_value(database,
// function, document) takes a JSON document and returns text.
#ifndef PERIGEE_SCRIPT_H
#define PERIGEE_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

// pes_script_register registers script_value with the database of a connection. It returns 0 on
// failure.
int pes_script_register(void *connection);

// pes_script_text returns the text in a row of a vector's data, and its length.
const char *pes_script_text(const void *cells, uint64_t row, uint32_t *length);

// pes_script_set sets a row of a result. A NULL text sets the value NULL.
void pes_script_set(void *output, uint64_t row, const char *text, uint64_t length);

void pes_script_fail(void *info, const char *error);

// pes_script_call is implemented in Go. It computes the values of rows documents and sets them in
// the result.
void pes_script_call(int64_t database, int64_t function, uint64_t rows, void *cells,
    uint64_t *validity, void *output, void *info);

#endif
