#include "walk.h"

#include "text.h"

// first_bit returns the offset of the first set bit of one kind in [from, to), or to.
static uint32_t first_bit(const doc_block *blocks, int slash, uint32_t from, uint32_t to) {
	for (uint32_t i = from / 64; i * 64 < to; i++) {
		uint64_t bits = slash ? blocks[i].slash : blocks[i].control;
		if (i == from / 64) bits &= ~(uint64_t)0 << (from % 64);
		if (bits) {
			uint32_t at = i * 64 + (uint32_t)__builtin_ctzll(bits);
			return at < to ? at : to;
		}
	}
	return to;
}

int check_string(doc *d, const char *text, uint32_t from, uint32_t to) {
	const doc_block *blocks = d->blocks;
	uint32_t control = first_bit(blocks, 0, from, to);
	uint32_t slash = first_bit(blocks, 1, from, to);
	int escaped = slash < to ? DOC_ESCAPED : 0;
	while (slash < to && slash < control) {
		size_t n = escape_len(text + slash, to - slash);
		if (n == 0) return -fail(d, DOC_BAD_ESCAPE, slash);
		slash = first_bit(blocks, 1, slash + (uint32_t)n, to);
	}
	return control < to ? -fail(d, DOC_CONTROL, control) : escaped;
}
