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
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/script"
)

// hashModule returns digests as hexadecimal strings, 32-bit hashes as numbers, and
// 64-bit hashes, which a Lua number cannot hold, as hexadecimal strings.
func hashModule() script.Module {
	m := script.Module{Name: "hash", Pure: map[string]script.Func{
		"crc32":   short(crc32.NewIEEE),
		"fnv1a":   short(fnv.New32a),
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
	return func(ctx context.Context, args []any) ([]any, error) {
		s, err := text(args, 0)
		if err != nil {
			return nil, err
		}
		return sum(ctx, make(), s)
	}
}

// sum returns the digest of a text as a hexadecimal string.
func sum(ctx context.Context, h hash.Hash, s string) ([]any, error) {
	if err := write(ctx, h, s); err != nil {
		return nil, err
	}
	return one(hex.EncodeToString(h.Sum(nil))), nil
}

// chunk is how much is hashed between two looks at the time; it takes less than a millisecond.
const chunk = 128 << 10

// write hashes a text, until the script's time is over.
func write(ctx context.Context, h hash.Hash, s string) error {
	for len(s) > 0 {
		n := min(len(s), chunk)
		_, _ = io.WriteString(h, s[:n]) // never fails
		if s = s[n:]; s == "" {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// mac is hmac(digest, key, text).
func mac(ctx context.Context, args []any) ([]any, error) {
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
	key := []byte(words[1])
	if h := make(); len(key) > h.BlockSize() { // as HMAC shortens it
		if err := write(ctx, h, words[1]); err != nil {
			return nil, err
		}
		key = h.Sum(nil)
	}
	return sum(ctx, hmac.New(make, key), words[2])
}

func short[H hash.Hash32](make func() H) script.Func {
	return func(ctx context.Context, args []any) ([]any, error) {
		s, err := text(args, 0)
		if err != nil {
			return nil, err
		}
		h := make()
		err = write(ctx, h, s)
		return one(float64(h.Sum32())), err
	}
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
func xxhashFunc(ctx context.Context, args []any) ([]any, error) {
	s, seed, err := seeded(args, 1<<53)
	if err != nil {
		return nil, err
	}
	h := xxhash.NewWithSeed(seed)
	err = write(ctx, h, s)
	return one(fmt.Sprintf("%016x", h.Sum64())), err
}
