#include "extract.h"

static inline int digits(const char *s, int n, int *out) {
	*out = 0;
#pragma GCC unroll 4
	for (int i = 0; i < n; i++) {
		if ((unsigned)(s[i] - '0') > 9) return 0;
		*out = *out * 10 + (s[i] - '0');
	}
	return 1;
}

// days counts days from 1970-01-01 in the proleptic Gregorian calendar.
static int64_t days(int y, int m, int d) {
	y -= m <= 2; // years start in March
	int era = y / 400, of_era = y - era * 400;
	int of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int month_days(int y, int m) {
	static const int length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
	return length[m - 1] + (m == 2 && leap);
}

static int date(const char *s, int64_t *out) {
	int y, m, d;
	if (!digits(s, 4, &y) || s[4] != '-' || !digits(s + 5, 2, &m) || s[7] != '-' ||
	    !digits(s + 8, 2, &d))
		return 0;
	if (y < 1 || m < 1 || m > 12 || d < 1 || (d > 28 && d > month_days(y, m))) return 0;
	*out = days(y, m, d);
	return 1;
}

static int clock(const char *s, int64_t *out) {
	int h, m, sec;
	if (!digits(s, 2, &h) || s[2] != ':' || !digits(s + 3, 2, &m) || s[5] != ':' ||
	    !digits(s + 6, 2, &sec))
		return 0;
	if (h > 23 || m > 59 || sec > 59) return 0;
	*out = (h * 60 + m) * 60 + sec;
	return 1;
}

// fraction parses ".123…" and returns its length, or 0.
static size_t fraction(const char *s, size_t len, int32_t *nanos) {
	static const int unit[] = {
	    1000000000, 100000000, 10000000, 1000000, 100000, 10000, 1000, 100, 10, 1};
	size_t i = 1;
	int part = 0;
	for (; i < len && i < 10 && (unsigned)(s[i] - '0') <= 9; i++) part = part * 10 + (s[i] - '0');
	*nanos = part * unit[i - 1];
	while (i < len && (unsigned)(s[i] - '0') <= 9) i++; // ignores digits beyond nanoseconds
	return i > 1 ? i : 0;
}

// zone parses "Z" or "+01:00".
static int zone(const char *s, size_t len, int64_t *seconds) {
	int h, m;
	if (len == 1 && *s == 'Z') return 1;
	if (len != 6 || (*s != '+' && *s != '-') || s[3] != ':') return 0;
	if (!digits(s + 1, 2, &h) || !digits(s + 4, 2, &m) || h > 23 || m > 59) return 0;
	*seconds = (*s == '-' ? -60 : 60) * (h * 60 + m);
	return 1;
}

int doc_time_parse(const char *s, size_t len, int64_t *seconds, int32_t *nanos) {
	const size_t whole = sizeof "2006-01-02T15:04:05" - 1;
	int64_t day, second, offset = 0;
	*nanos = 0;
	if (len < whole || (s[10] != 'T' && s[10] != ' ') || !date(s, &day) || !clock(s + 11, &second))
		return 0;
	size_t i = whole;
	if (i < len && s[i] == '.') {
		size_t n = fraction(s + i, len - i, nanos);
		if (!n) return 0;
		i += n;
	}
	if (s[10] == 'T' ? !zone(s + i, len - i, &offset) : i != len) return 0;
	*seconds = day * 86400 + second - offset;
	return 1;
}
