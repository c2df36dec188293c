// A hash that an attacker who chooses the names cannot predict.

#ifndef PERIGEE_HASH_H
#define PERIGEE_HASH_H

#include <stddef.h>
#include <stdint.h>

// doc_hash_seeded is SipHash-1-3 of a text, with a random key per process.
uint64_t doc_hash_seeded(const char *s, size_t len);

#endif
