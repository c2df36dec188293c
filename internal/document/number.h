// Numbers as text, as doubles and as integers.

#ifndef PERIGEE_NUMBER_H
#define PERIGEE_NUMBER_H

#include "document.h"

// A decimal is digits·10^exp without trailing zeros. digits holds the first 19 of them; count is
// their total number, 0 for zero.
typedef struct {
	uint64_t digits;
	int32_t exp;
	int32_t count;
	uint8_t minus;
	uint8_t whole; // the text has neither point nor exponent
} decimal;

enum {
	DECIMAL_OK,
	DECIMAL_FRACTION,
	DECIMAL_RANGE
};
enum {
	NUMBER_MAX = 32 // bytes of a printed number
};

decimal doc_decimal_read(const char *s, size_t len); // of a well-formed number
int doc_decimal_int64(decimal x, int64_t *out);
size_t doc_number_print(char *out, double x); // finite; at most NUMBER_MAX bytes

#endif
