#include "hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t seed[2];

// draw_seed draws a random key. If the kernel cannot provide random numbers, it uses addresses and
// the time.
static void draw_seed(void) {
	if (getrandom(seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	seed[0] = (uint64_t)(uintptr_t)&t ^ (uint64_t)t.tv_nsec << 32;
	seed[1] = (uint64_t)(uintptr_t)seed ^ (uint64_t)t.tv_sec;
}

static inline uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static inline void mix(uint64_t v[4]) {
	v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
	v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
	v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
	v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

static inline void add_word(uint64_t v[4], uint64_t word) {
	v[3] ^= word;
	mix(v);
	v[0] ^= word;
}

uint64_t doc_hash_seeded(const char *s, size_t len) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, draw_seed);
	uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d,
	    seed[0] ^ 0x6c7967656e657261, seed[1] ^ 0x7465646279746573};
	uint64_t word, last = (uint64_t)len << 56;
	size_t left = len;
	for (; left >= 8; s += 8, left -= 8) {
		memcpy(&word, s, 8);
		add_word(v, word);
	}
	word = 0;
	memcpy(&word, s, left);
	add_word(v, last | word);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++) mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
