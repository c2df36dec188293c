//go:build cgo && lmdb

/* sum.c: the checksum of records: CRC-32C (Castagnoli), for which x86-64 has an instruction, folded
 * into 2 bytes. Most records are small: 4 bytes made a file of integers a quarter larger. One of
 * 65,536 damaged records goes unnoticed. */
#include <pthread.h>

#include "core.h"

enum {
	POLYNOMIAL = 0x82F63B78 /* bit-reversed */
};

static uint32_t table[256];

static void fill_table(void) {
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;
		for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
		table[i] = c;
	}
}

static uint32_t add_by_table(uint32_t sum, const char *data, size_t len) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, fill_table);
	for (; len; len--) sum = sum >> 8 ^ table[(sum ^ (unsigned char)*data++) & 0xFF];
	return sum;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t add_by_instruction(
    uint32_t sum, const char *data, size_t len) {
	uint64_t wide = sum, word;
	for (; len >= 8; data += 8, len -= 8) {
		memcpy(&word, data, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	sum = (uint32_t)wide;
	for (; len; len--) sum = __builtin_ia32_crc32qi(sum, (unsigned char)*data++);
	return sum;
}
#endif

static uint32_t add(uint32_t sum, const char *data, size_t len) {
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2")) return add_by_instruction(sum, data, len);
#endif
	return add_by_table(sum, data, len);
}

uint32_t ndb_crc32c(const char *data, size_t len) { return ~add(~0u, data, len); }

static uint16_t fold(uint32_t sum) { return (uint16_t)(~sum ^ ~sum >> 16); }

uint16_t ndb_record_sum(const char *key, size_t key_len, const char *value, size_t len) {
	return fold(add(add(~0u, key, key_len), value, len));
}

uint16_t ndb_record_sum_by_table(const char *key, size_t key_len, const char *value, size_t len) {
	return fold(add_by_table(add_by_table(~0u, key, key_len), value, len));
}
