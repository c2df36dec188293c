//go:build cgo && luajit

package luajit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// hashOf reads the hash of an interned string, which LuaJIT stores before its length and text.
const hashOf = `
local ffi = require "ffi"
local function hash(s) return ffi.cast("const uint32_t *", ffi.cast("const char *", s))[-2] end
assert(ffi.cast("const uint32_t *", ffi.cast("const char *", "four"))[-1] == 4, "the length stands elsewhere")
`

// answer runs Lua code in a new VM, which returns its answer as an error.
func answer(t *testing.T, code string) string {
	t.Helper()
	err := open(t, defaults()).runTrusted(hashOf + code)
	var raised *Error
	if !errors.As(err, &raised) || !strings.HasPrefix(raised.Message, "answer ") {
		t.Fatal(err)
	}
	return strings.TrimPrefix(raised.Message, "answer ")
}

// TestStringHashIsSeeded finds strings that collide in one VM: they do not collide in others, so a
// sender of events cannot choose colliding strings.
func TestStringHashIsSeeded(t *testing.T) {
	const buckets, maxChain = 1024, 8
	chosen := answer(t, fmt.Sprintf(`
		local chosen, at = {}, hash("key 0") %% %d
		for i = 0, 1e6 do
			local s = "key " .. i
			if hash(s) %% %d == at then chosen[#chosen + 1] = i end
			if #chosen == 100 then break end
		end
		error("answer " .. table.concat(chosen, " "), 0)`, buckets, buckets))
	var seeds []string
	for range 6 {
		worst := answer(t, fmt.Sprintf(`
			local counts, worst = {}, 0
			for i in ("%s"):gmatch("%%d+") do
				local bucket = hash("key " .. i) %% %d
				counts[bucket] = (counts[bucket] or 0) + 1
				worst = math.max(worst, counts[bucket])
			end
			error(("answer %%d %%d"):format(worst, hash("seed")), 0)`, chosen, buckets))
		var n int
		var seed string
		if _, err := fmt.Sscan(worst, &n, &seed); err != nil {
			t.Fatal(err)
		}
		if n > maxChain {
			t.Errorf("%d of 100 strings that collide in one VM collide in another", n)
		}
		if slices.Contains(seeds, seed) {
			t.Errorf("two VMs hash a string to %s", seed)
		}
		seeds = append(seeds, seed)
	}
}

// TestStringsThatASparseHashTakesForOne makes strings that are equal at all bytes that LuaJIT's
// fast hash reads, with any seed: at both ends, in the middle and at a quarter. LuaJIT must switch
// to a hash that reads all bytes.
func TestStringsThatASparseHashTakesForOne(t *testing.T) {
	shared := answer(t, `
		local counts, worst, kept = {}, 0, {}
		for i = 1, 20000 do
			kept[i] = ("x"):rep(44) .. ("%08d"):format(i) .. ("x"):rep(12)
			-- 64 bytes: 0 to 3, 15 to 18, 30 to 33 and 60 to 63 are looked at
		end
		for i = 1, #kept do
			local h = hash(kept[i])
			counts[h] = (counts[h] or 0) + 1
			worst = math.max(worst, counts[h])
		end
		error("answer " .. worst, 0)`)
	var worst int
	if _, err := fmt.Sscan(shared, &worst); err != nil || worst > 100 {
		t.Errorf("%s of 20000 strings have one hash, error %v", shared, err)
	}
}
