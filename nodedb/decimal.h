/* decimal.h: numbers by M's rules (private; number.c).
 *
 * A decimal is digits * 10^exponent with a sign. It is normalised: digits has at most 18
 * digits and no trailing zero, and zero is {0, 0, 0}. M's numbers are zero and those with
 * 1E-43 <= |value| < 1E47. A decimal outside that range is not a number of M. */
#ifndef NODEDB_DECIMAL_H
#define NODEDB_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

#include "nodedb.h"

typedef struct {
	uint64_t digits;
	int32_t exponent;
	int32_t negative;
} ndb_decimal;

#define NDB_DECIMAL_DIGITS 18
#define NDB_DECIMAL_LIMIT 1000000000000000000u /* 10^18: digits is below it */
#define NDB_EXACT_INTEGER 9007199254740992     /* 2^53: integers up to it are exact in a double */

extern const uint64_t ndb_ten_to[20];

/* 1 if the bytes spell a number of M canonically: no plus sign, no superfluous zero, no
 * exponent, at most 18 significant digits, in range. */
int ndb_decimal_canonical(const char *bytes, size_t len, ndb_decimal *out);
/* Converts a double: its exact value if it is an integer below 10^18, else its shortest spelling.
 * NDB_E_ARGUMENT for an infinity or NaN. */
int ndb_decimal_of_double(double number, ndb_decimal *out);
/* The value of the longest numeric prefix, truncated to 18 digits. NDB_E_NUMBER from 1E47 on. */
int ndb_decimal_of_prefix(const char *bytes, size_t len, ndb_decimal *out);
/* 1 if it is a number of M. */
int ndb_decimal_in_range(const ndb_decimal *value);
/* Writes all digits, without an exponent; text must hold NDB_NUMBER_TEXT bytes. Returns the
 * length. */
int ndb_decimal_text(const ndb_decimal *value, char *text);
/* NUMBER if a double represents it and it is not an integer beyond 2^53, else DIGITS in text. */
void ndb_decimal_scalar(const ndb_decimal *value, ndb_scalar *out, char *text);

#endif
