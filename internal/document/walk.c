#include "walk.h"

#include "text.h"

// check_escapes checks, from *next on, the escapes that begin with the backslashes in bits, which
// belong to the block at `base`. It stores the end of the last one in *next, and returns the offset
// of an invalid one, or to.
static uint32_t check_escapes(
    const char *text, uint64_t bits, uint32_t base, uint32_t to, uint32_t *next) {
	for (; bits; bits &= bits - 1) {
		uint32_t slash = base + (uint32_t)__builtin_ctzll(bits);
		if (slash < *next) continue; // the second of two backslashes
		size_t n = doc_escape_len(text + slash, to - slash);
		if (n == 0) return slash;
		*next = slash + (uint32_t)n;
	}
	return to;
}

int doc_check_string(doc *d, const char *text, uint32_t from, uint32_t to) {
	uint32_t next = from;
	int escaped = 0;
	for (uint32_t base = from & ~63u; base < to; base += 64) {
		uint64_t mine = ~(uint64_t)0;
		if (base < from) mine <<= from - base;
		if (to - base < 64) mine &= ((uint64_t)1 << (to - base)) - 1;
		uint64_t slash = d->blocks[base / 64].slash & mine,
		         control = d->blocks[base / 64].control & mine;
		if (slash) escaped = DOC_ESCAPED;
		if (control) slash &= (control & -control) - 1;
		uint32_t invalid = check_escapes(text, slash, base, to, &next);
		if (invalid < to) return -fail(d, DOC_BAD_ESCAPE, invalid);
		if (control) return -fail(d, DOC_CONTROL, base + (uint32_t)__builtin_ctzll(control));
	}
	return escaped;
}
