// A script function is a function of SQL whose values the parent computes:
// script_value(database, function, document) takes a JSON document and returns text.
#ifndef PERIGEE_SCRIPT_H
#define PERIGEE_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

// script_register makes script_value known to the database of a connection. It returns 0 when
// DuckDB refuses.
int script_register(void *connection);

// script_text returns the text of a row of a vector's data, and its length.
const char *script_text(const void *cells, uint64_t row, uint32_t *length);

// script_set sets a row of a result. A text that is NULL is the value NULL.
void script_set(void *output, uint64_t row, const char *text, uint64_t length);

void script_fail(void *info, const char *error);

// callScript is Go's: it computes the values of rows of documents, and sets those of the result.
void callScript(int64_t database, int64_t function, uint64_t rows, void *cells, uint64_t *validity, void *output, void *info);

#endif
