#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"

static const double power[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
    1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

enum {
	EXPONENT_MAX = 100000 // larger exponents make no difference
};

static inline int is_digit(char c) { return (unsigned)(c - '0') < 10; }

static int32_t exponent(const char *p, const char *end) {
	int minus = *p == '-';
	int32_t e = 0;
	if (*p == '-' || *p == '+') p++;
	for (; p < end; p++)
		if (e < EXPONENT_MAX) e = e * 10 + (*p - '0');
	return minus ? -e : e;
}

decimal doc_decimal_read(const char *s, size_t len) {
	decimal x = {0};
	const char *p = s, *end = s + len;
	int32_t zeros = 0; // zeros read, but not yet in digits
	int point = 0;
	if (p < end && *p == '-') x.minus = 1, p++;
	for (; p < end && (is_digit(*p) || *p == '.'); p++) {
		if (*p == '.') {
			point = 1;
			continue;
		}
		if (point) x.exp--;
		if (*p == '0') {
			zeros++;
			continue;
		}
		if (x.count == 0) zeros = 0; // leading zeros do not count
		for (; zeros > 0; zeros--, x.count++)
			if (x.count < 19) x.digits *= 10;
		if (x.count < 19) x.digits = x.digits * 10 + (uint64_t)(*p - '0');
		x.count++;
	}
	x.exp += zeros;
	if (p < end) {
		int32_t e = exponent(p + 1, end);
		x.exp = e > EXPONENT_MAX - 1 || e < 1 - EXPONENT_MAX ? e : x.exp + e;
	}
	x.whole = p == end && !point;
	if (x.count == 0) x.exp = 0;
	return x;
}

static double slow(const char *s, size_t len) {
	char small[128];
	char *copy = len < sizeof small ? small : malloc(len + 1);
	if (!copy) return NAN;
	memcpy(copy, s, len);
	copy[len] = 0;
	double x = strtod(copy, NULL);
	if (copy != small) free(copy);
	return x;
}

static int fast(decimal x, double *out) {
	if (x.count > 19 || x.digits > (uint64_t)1 << 53 || x.exp < -22 || x.exp > 22) return 0;
	double d = (double)x.digits;
	d = x.exp < 0 ? d / power[-x.exp] : d * power[x.exp];
	*out = x.minus ? -d : d;
	return 1;
}

double doc_double(const char *s, size_t len) {
	double x;
	return fast(doc_decimal_read(s, len), &x) ? x : slow(s, len);
}

// holds reports whether x, printed with as many digits as the text, equals it.
static int holds(decimal want, double x) {
	char printed[48];
	if (want.count > 17 || !isfinite(x)) return 0;
	int n = snprintf(printed, sizeof printed, "%.*e", want.count - 1, x);
	decimal got = doc_decimal_read(printed, (size_t)n);
	return got.digits == want.digits && got.exp == want.exp;
}

// equals_integer reports whether d is exactly the integer want.
static int equals_integer(decimal want, double d) {
	char printed[400];
	if (want.count > 19 || !isfinite(d)) return 0;
	int n = snprintf(printed, sizeof printed, "%.0f", fabs(d));
	decimal got = doc_decimal_read(printed, (size_t)n);
	return got.count == want.count && got.digits == want.digits && got.exp == want.exp;
}

int doc_exact(const char *s, size_t len, double *out) {
	decimal x = doc_decimal_read(s, len);
	int direct = fast(x, out);
	if (x.count <= 15 && direct && !(x.whole && fabs(*out) > 9007199254740992.0)) return 1;
	if (!direct) *out = slow(s, len);
	if (x.count == 0) return 1;
	if (x.whole && fabs(*out) < 9223372036854775808.0) return equals_integer(x, *out);
	return holds(x, *out);
}

int doc_decimal_int64(decimal x, int64_t *out) {
	if (x.count == 0) return *out = 0, DECIMAL_OK;
	if (x.exp < 0) return DECIMAL_FRACTION;
	if (x.count > 19 || x.exp > 19) return DECIMAL_RANGE;
	uint64_t v = x.digits;
	for (int32_t i = 0; i < x.exp; i++)
		if (__builtin_mul_overflow(v, (uint64_t)10, &v)) return DECIMAL_RANGE;
	if (v > (uint64_t)INT64_MAX + (x.minus ? 1 : 0)) return DECIMAL_RANGE;
	*out = x.minus ? (int64_t)(0 - v) : (int64_t)v;
	return DECIMAL_OK;
}

static size_t print_whole(char *out, uint64_t v, int minus) {
	char reversed[24];
	size_t n = 0, len = 0;
	do reversed[n++] = (char)('0' + v % 10);
	while (v /= 10);
	if (minus) out[len++] = '-';
	while (n) out[len++] = reversed[--n];
	return len;
}

// print_short prints x if it has at most 15 digits and at most 6 of them after the point, as most
// numbers do.
static size_t print_short(char *out, double x) {
	double a = fabs(x);
	for (int last_count = 1; last_count <= 6; last_count++) {
		double scaled = a * power[last_count];
		if (scaled >= 1e15) return 0;
		double whole = nearbyint(scaled);
		if (whole / power[last_count] != a) continue;
		uint64_t v = (uint64_t)whole, unit = (uint64_t)power[last_count];
		size_t len = print_whole(out, v / unit, x < 0);
		out[len] = '.';
		uint64_t rest = v % unit;
		for (int i = last_count; i > 0; i--, rest /= 10)
			out[len + (size_t)i] = (char)('0' + rest % 10);
		return len + 1 + (size_t)last_count;
	}
	return 0;
}

size_t doc_number_print(char *out, double x) {
	if (fabs(x) < 9223372036854775808.0 && x == (double)(int64_t)x)
		return print_whole(out, (uint64_t)fabs(x), x < 0);
	size_t len = fabs(x) >= 1e-3 && fabs(x) < 1e12 ? print_short(out, x) : 0;
	for (int digits = 15; len == 0 && digits <= 17; digits++) {
		int n = snprintf(out, NUMBER_MAX, "%.*g", digits, x);
		if (digits == 17 || strtod(out, NULL) == x) len = (size_t)n;
	}
	return len;
}

int doc_put_number(doc_buf *b, double x) {
	int error = doc_buf_need(b, NUMBER_MAX);
	if (error) return error;
	b->len += doc_number_print(b->data + b->len, x);
	return DOC_OK;
}
