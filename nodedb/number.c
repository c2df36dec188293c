//go:build cgo && lmdb

/* number.c: arithmetic by M's rules, in exact decimal of 18 significant digits.
 *
 * Digits are truncated, never rounded: M truncates operands to 18 digits, aligns the smaller one to
 * the digits of the larger one, and truncates the result. Nothing here depends on the locale. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "error.h"

#define LARGEST_PLACE 46   /* the first digit of a number is at most at 10^46 */
#define SMALLEST_PLACE -43 /* and at least at 10^-43 */

const uint64_t ndb_ten_to[20] = {
    1u,
    10u,
    100u,
    1000u,
    10000u,
    100000u,
    1000000u,
    10000000u,
    100000000u,
    1000000000u,
    10000000000u,
    100000000000u,
    1000000000000u,
    10000000000000u,
    100000000000000u,
    1000000000000000u,
    10000000000000000u,
    100000000000000000u,
    1000000000000000000u,
    10000000000000000000u,
};

static const double ten_to_exactly[] = {
    1e0,
    1e1,
    1e2,
    1e3,
    1e4,
    1e5,
    1e6,
    1e7,
    1e8,
    1e9,
    1e10,
    1e11,
    1e12,
    1e13,
    1e14,
    1e15,
    1e16,
    1e17,
    1e18,
    1e19,
    1e20,
    1e21,
    1e22,
};

static int count_digits(uint64_t n) {
	int count = 0;
	while (count < 20 && n >= ndb_ten_to[count]) count++;
	return count;
}

/* Moves trailing zeros from digits to the exponent. */
static void normalise(ndb_decimal *value) {
	if (value->digits == 0) {
		value->exponent = 0;
		value->negative = 0;
		return;
	}
	while (value->digits % 10 == 0) {
		value->digits /= 10;
		value->exponent++;
	}
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

int ndb_decimal_in_range(const ndb_decimal *value) {
	if (value->digits == 0) return 1;
	int place = count_digits(value->digits) - 1 + value->exponent;
	return place <= LARGEST_PLACE && place >= SMALLEST_PLACE;
}

int ndb_decimal_canonical(const char *bytes, size_t len, ndb_decimal *out) {
	if (len == 0 || len > 64) return 0;
	const char *at = bytes, *end = bytes + len;
	int negative = *at == '-';
	at += negative;
	if (at == end) return 0;
	if (*at == '0') { /* only 0 itself starts with 0 */
		*out = (ndb_decimal){0, 0, 0};
		return len == 1;
	}
	uint64_t digits = 0;
	/* zeros counts trailing zeros that are not yet in digits */
	int significant = 0, zeros = 0, places = 0, point = 0;
	for (; at < end; at++) {
		if (*at == '.') {
			if (point || at + 1 == end) return 0;
			point = 1;
			continue;
		}
		if (!is_digit(*at)) return 0;
		places += point;
		if (*at == '0') {
			zeros += digits != 0;
			continue;
		}
		significant += zeros + 1;
		if (significant > NDB_DECIMAL_DIGITS) return 0;
		digits = digits * ndb_ten_to[zeros + 1] + (uint64_t)(*at - '0');
		zeros = 0;
	}
	if (digits == 0) return 0;             /* "-", ".", ".0" */
	if (point && end[-1] == '0') return 0; /* "1.0" */
	*out = (ndb_decimal){digits, zeros - places, negative};
	return ndb_decimal_in_range(out);
}

/* Reads printf's "d.ddde-xx". The decimal point depends on the locale. */
static void read_scientific(const char *text, ndb_decimal *out) {
	uint64_t digits = 0;
	int count = 0;
	for (; *text && *text != 'e'; text++) {
		if (!is_digit(*text)) continue;
		digits = digits * 10 + (uint64_t)(*text - '0');
		count++;
	}
	out->digits = digits;
	out->exponent = atoi(*text ? text + 1 : text) - (count - 1);
}

int ndb_decimal_of_double(double number, ndb_decimal *out) {
	if (!isfinite(number))
		return ndb_fail(NDB_E_ARGUMENT, "%s cannot be stored: use a finite number",
		    isnan(number) ? "nan" : "infinity");
	out->negative = number < 0;
	double size = fabs(number);
	if (size < 1e18 && size == (double)(uint64_t)size) {
		out->digits = (uint64_t)size;
		out->exponent = 0;
		normalise(out);
		return NDB_OK;
	}
	/* At most one spelling of up to 15 digits reads as this double. */
	for (int places = 1; places <= 22; places++) {
		double scaled = size * ten_to_exactly[places] + 0.5;
		if (scaled >= 1e15) break;
		uint64_t digits = (uint64_t)scaled;
		if ((double)digits / ten_to_exactly[places] != size) continue;
		out->digits = digits;
		out->exponent = -places;
		return NDB_OK;
	}
	char text[40];
	for (int precision = size < DBL_MIN ? 0 : 14; precision <= 16; precision++) {
		snprintf(text, sizeof text, "%.*e", precision, size);
		if (precision == 16 || strtod(text, NULL) == size) break;
	}
	read_scientific(text, out);
	normalise(out);
	return NDB_OK;
}

int ndb_decimal_of_prefix(const char *bytes, size_t len, ndb_decimal *out) {
	const char *at = bytes, *end = bytes + len;
	*out = (ndb_decimal){0, 0, 0};
	int negative = 0;
	for (; at < end && (*at == '-' || *at == '+'); at++) negative ^= *at == '-';
	uint64_t digits = 0;
	int64_t exponent = 0;
	int kept = 0, point = 0, any = 0;
	for (; at < end; at++) {
		if (*at == '.' && !point) {
			point = 1;
			continue;
		}
		if (!is_digit(*at)) break;
		any = 1;
		if (kept < NDB_DECIMAL_DIGITS) {
			digits = digits * 10 + (uint64_t)(*at - '0');
			kept += digits != 0;
			exponent -= point;
		} else {
			exponent += !point;
		}
	}
	if (any && at + 1 < end && *at == 'E') {
		at++;
		int down = *at == '-';
		if (*at == '-' || *at == '+') at++;
		int64_t shift = 0;
		for (; at < end && is_digit(*at); at++)
			if (shift < INT32_MAX) shift = shift * 10 + (*at - '0');
		exponent += down ? -shift : shift;
	}
	if (digits == 0) return NDB_OK;
	int64_t place = count_digits(digits) - 1 + exponent;
	if (place > LARGEST_PLACE)
		return ndb_fail(NDB_E_NUMBER, "%.*s is out of range: a number must be below 1E47",
		    len > 60 ? 60 : (int)len, bytes);
	if (place < SMALLEST_PLACE) return NDB_OK;
	*out = (ndb_decimal){digits, (int32_t)exponent, negative};
	normalise(out);
	return NDB_OK;
}

int ndb_decimal_text(const ndb_decimal *value, char *text) {
	char *at = text;
	if (value->negative) *at++ = '-';
	char digits[24];
	int count = 0;
	uint64_t rest = value->digits;
	do {
		digits[sizeof digits - (size_t)++count] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	const char *first = digits + sizeof digits - count;
	int whole = count + value->exponent; /* digits before the point */
	if (value->exponent >= 0) {
		memcpy(at, first, (size_t)count);
		memset(at + count, '0', (size_t)value->exponent);
		return (int)(at - text) + whole;
	}
	if (whole > 0) {
		memcpy(at, first, (size_t)whole);
		at += whole;
		first += whole;
		count -= whole;
		whole = 0;
	}
	*at++ = '.';
	memset(at, '0', (size_t)-whole);
	at += -whole;
	memcpy(at, first, (size_t)count);
	return (int)(at - text) + count;
}

/* 1 if a double represents the decimal, which has a fraction. */
static int double_of_fraction(const ndb_decimal *value, double *out) {
	int places = -value->exponent;
	if (places <= 22 && value->digits < 1000000000000000u) {
		*out = (double)value->digits / ten_to_exactly[places];
	} else {
		char text[40]; /* no decimal point, so it is the same in every locale */
		snprintf(text, sizeof text, "%llue-%d", (unsigned long long)value->digits, places);
		*out = strtod(text, NULL);
		ndb_decimal shortest;
		if (ndb_decimal_of_double(*out, &shortest) != NDB_OK) return 0;
		if (shortest.digits != value->digits || shortest.exponent != value->exponent) return 0;
	}
	if (value->negative) *out = -*out;
	return 1;
}

void ndb_decimal_scalar(const ndb_decimal *value, ndb_scalar *out, char *text) {
	out->bytes = NULL;
	out->len = 0;
	out->number = 0;
	out->type = NDB_NUMBER;
	if (value->exponent < 0) {
		if (double_of_fraction(value, &out->number)) return;
	} else if (value->exponent <= 15) {
		/* At most 10^18 * 10^15. As a double it is exact wherever the comparison needs it. */
		double size = (double)value->digits * ten_to_exactly[value->exponent];
		if (size <= (double)NDB_EXACT_INTEGER && value->digits <= NDB_EXACT_INTEGER) {
			out->number = value->negative ? -size : size;
			return;
		}
	}
	out->number = 0;
	out->type = NDB_DIGITS;
	out->bytes = text;
	out->len = (uint32_t)ndb_decimal_text(value, text);
}

/* Converts a scalar to a decimal. */
static int decimal_of_scalar(const ndb_scalar *value, ndb_decimal *out) {
	switch (value->type) {
	case NDB_NUMBER: {
		int code = ndb_decimal_of_double(value->number, out);
		if (code != NDB_OK) return code;
		if (ndb_decimal_in_range(out)) return NDB_OK;
		if (fabs(value->number) > 1)
			return ndb_fail(
			    NDB_E_NUMBER, "%g is out of range: a number must be below 1E47", value->number);
		*out = (ndb_decimal){0, 0, 0};
		return NDB_OK;
	}
	case NDB_DIGITS:
	case NDB_STRING: return ndb_decimal_of_prefix(value->bytes, value->len, out);
	case NDB_TRUE: *out = (ndb_decimal){1, 0, 0}; return NDB_OK;
	case NDB_ABSENT:
	case NDB_FALSE: *out = (ndb_decimal){0, 0, 0}; return NDB_OK;
	}
	return ndb_fail(NDB_E_ARGUMENT, "invalid scalar type %u", value->type);
}

int ndb_number_text(const ndb_scalar *value, char *text) {
	ndb_decimal decimal;
	int code = value->type == NDB_NUMBER ? ndb_decimal_of_double(value->number, &decimal)
	                                     : decimal_of_scalar(value, &decimal);
	if (code != NDB_OK) return code;
	return ndb_decimal_text(&decimal, text);
}

int ndb_number_canonical(const char *bytes, size_t len, ndb_scalar *out) {
	ndb_decimal decimal;
	if (!ndb_decimal_canonical(bytes, len, &decimal)) return 0;
	char text[NDB_NUMBER_TEXT];
	ndb_decimal_scalar(&decimal, out, text);
	if (out->type == NDB_DIGITS) {
		out->bytes = bytes;
		out->len = (uint32_t)len;
	}
	return 1;
}

/* The digits at the exponent of the larger operand; lower digits are truncated. */
static uint64_t align(const ndb_decimal *value, int32_t exponent) {
	int32_t shift = value->exponent - exponent;
	if (shift >= 0) return value->digits * ndb_ten_to[shift]; /* stays below 10^18 */
	return shift <= -NDB_DECIMAL_DIGITS ? 0 : value->digits / ndb_ten_to[-shift];
}

/* The sum of two numbers of M. */
static void add(const ndb_decimal *a, const ndb_decimal *b, ndb_decimal *sum) {
	if (a->digits == 0 || b->digits == 0) {
		*sum = a->digits ? *a : *b;
		return;
	}
	int32_t top_a = count_digits(a->digits) + a->exponent,
	        top_b = count_digits(b->digits) + b->exponent;
	int32_t exponent = (top_a > top_b ? top_a : top_b) - NDB_DECIMAL_DIGITS;
	int64_t x = (int64_t)align(a, exponent), y = (int64_t)align(b, exponent);
	int64_t total = (a->negative ? -x : x) + (b->negative ? -y : y);
	uint64_t size = total < 0 ? (uint64_t)-total : (uint64_t)total;
	if (size >= NDB_DECIMAL_LIMIT) {
		size /= 10;
		exponent++;
	}
	*sum = (ndb_decimal){size, exponent, total < 0};
	normalise(sum);
}

int ndb_number_add(const ndb_scalar *value, const ndb_scalar *by, ndb_scalar *sum, char *text) {
	/* Fast path for small integers, the usual counters. */
	if (value->type == NDB_NUMBER && by->type == NDB_NUMBER) {
		double total = value->number + by->number;
		if (fabs(value->number) < 1e15 && fabs(by->number) < 1e15 &&
		    (double)(int64_t)value->number == value->number &&
		    (double)(int64_t)by->number == by->number) {
			*sum = (ndb_scalar){total + 0.0, NULL, 0, NDB_NUMBER};
			return NDB_OK;
		}
	}
	ndb_decimal a, b, total;
	int code = decimal_of_scalar(value, &a);
	if (code == NDB_OK) code = decimal_of_scalar(by, &b);
	if (code != NDB_OK) return code;
	add(&a, &b, &total);
	if (!ndb_decimal_in_range(&total)) {
		if (total.exponent > 0)
			return ndb_fail(NDB_E_NUMBER, "the sum is out of range: a number must be below 1E47");
		total = (ndb_decimal){0, 0, 0};
	}
	ndb_decimal_scalar(&total, sum, text);
	return NDB_OK;
}
