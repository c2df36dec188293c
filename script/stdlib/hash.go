package stdlib

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/fnv"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/script"
)

// hashModule returns digests as hexadecimal strings, 32-bit hashes as numbers, and
// 64-bit hashes, which a Lua number cannot hold, as hexadecimal strings.
func hashModule() script.Module {
	m := script.Module{Name: "hash", Pure: map[string]script.Func{
		"crc32":   short(crc32.ChecksumIEEE),
		"fnv1a":   short(fnv1a),
		"hmac":    mac,
		"murmur3": murmur3Func,
		"xxhash":  xxhashFunc,
	}}
	for name, make := range digests() {
		m.Pure[name] = digest(make)
	}
	return m
}

func digests() map[string]func() hash.Hash {
	return map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}
}

func digest(make func() hash.Hash) script.Func {
	return func(_ context.Context, args []any) ([]any, error) {
		s, err := text(args, 0)
		if err != nil {
			return nil, err
		}
		return one(sum(make(), s)), nil
	}
}

func sum(h hash.Hash, s string) string {
	_, _ = h.Write([]byte(s)) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// mac is hmac(digest, key, text).
func mac(_ context.Context, args []any) ([]any, error) {
	var words [3]string
	for i := range words {
		var err error
		if words[i], err = text(args, i); err != nil {
			return nil, err
		}
	}
	make := digests()[words[0]]
	if make == nil {
		return nil, fmt.Errorf("unknown digest %q; use md5, sha1, sha256 or sha512", words[0])
	}
	return one(sum(hmac.New(make, []byte(words[1])), words[2])), nil
}

func short(f func([]byte) uint32) script.Func {
	return func(_ context.Context, args []any) ([]any, error) {
		s, err := text(args, 0)
		if err != nil {
			return nil, err
		}
		return one(float64(f([]byte(s)))), nil
	}
}

func fnv1a(data []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(data) // never fails
	return h.Sum32()
}

// seeded returns the arguments of a hash function: a string and a seed below limit.
func seeded(args []any, limit float64) (string, uint64, error) {
	s, err := text(args, 0)
	if err != nil {
		return "", 0, err
	}
	seed, err := optional(args, 1, 0)
	if err == nil && (seed < 0 || seed >= limit || seed != float64(uint64(seed))) {
		err = fmt.Errorf("argument 2, the seed, must be an integer from 0 to %.0f", limit-1)
	}
	return s, uint64(seed), err
}

// murmur3Func is murmur3(text, [seed]), the variant with 32 bits.
func murmur3Func(_ context.Context, args []any) ([]any, error) {
	s, seed, err := seeded(args, 1<<32)
	if err != nil {
		return nil, err
	}
	return one(float64(murmur3([]byte(s), uint32(seed)))), nil
}

// xxhashFunc is xxhash(text, [seed]), the variant with 64 bits.
func xxhashFunc(_ context.Context, args []any) ([]any, error) {
	s, seed, err := seeded(args, 1<<53)
	if err != nil {
		return nil, err
	}
	h := xxhash.NewWithSeed(seed)
	_, _ = h.WriteString(s) // never fails
	return one(fmt.Sprintf("%016x", h.Sum64())), nil
}
