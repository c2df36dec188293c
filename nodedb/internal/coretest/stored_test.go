//go:build cgo && lmdb

package coretest

import (
	"hash/crc32"
	"strings"
	"testing"
)

// TestStoredValues decodes stored values, including invalid ones: these must be reported as
// corrupt, and nothing may be read beyond their end.
func TestStoredValues(t *testing.T) {
	const expires = "\x00\x00\x01\x8b\xcf\xe5\x68\xff" // 1,700,000,000,255 ms
	for _, test := range []struct {
		stored string
		expiry uint64
		want   coreScalar // without a kind if the value is corrupt
	}{
		{"\x01", 0, num(0)},
		{"\x01\x7f", 0, num(127)},
		{"\x01\x80", 0, num(-128)},
		{"\x01\x80\x00", 0, num(128)},
		{"\x01\x00\x00\x00\x00\x00\x00\x20", 0, num(1 << 53)},
		{"\x01\x00\x00\x00\x00\x00\x00\xe0", 0, num(-1 << 53)},
		{"\x01\x00\x00\x00\x00\x00\x00\x00\x40", 0, num(1 << 62)},
		{"\x01\x00\x00\x00\x00\x00\x00\x00\x80", 0, num(-1 << 63)},
		{"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00", 0, coreScalar{}},
		{"\x02\x00\x00\x00\x00\x00\x00\xe0\x3f", 0, num(0.5)},
		{"\x02\x00\x00\x00\x00\x00\xe0\x3f", 0, coreScalar{}},
		{"\x02\x00\x00\x00\x00\x00\x00\xe0\x3f\x00", 0, coreScalar{}},
		{"\x0312", 0, digits("12")},
		{"\x04", 0, str("")},
		{"\x04a\x00b", 0, str("a\x00b")},
		{"\x05", 0, coreScalar{kind: coreFalse}},
		{"\x06", 0, coreScalar{kind: coreTrue}},
		{"\x05\x00", 0, coreScalar{}},
		{"\x06\x00", 0, coreScalar{}},
		{"\x81" + expires, 1_700_000_000_255, num(0)},
		{"\x84" + expires + "a", 1_700_000_000_255, str("a")},
		{"\x84" + expires[:7], 0, coreScalar{}},
		{"\x80" + expires, 0, coreScalar{}},
		{"\x44aSU", 0, str("a")}, // with a checksum
		{"\x44SU", 0, str("")},
		{"\x41\x7fSU", 0, num(127)},
		{"\x46SU", 0, coreScalar{kind: coreTrue}},
		{"\xc4" + expires + "aSU", 1_700_000_000_255, str("a")},
		{"\x41S", 0, coreScalar{}},
		{"\xc4" + expires + "S", 0, coreScalar{}},
		{"\x03x", 0, coreScalar{}},
		{"", 0, coreScalar{}},
		{"\x00", 0, coreScalar{}},
		{"\x07", 0, coreScalar{}},
		{"\x11", 0, coreScalar{}},
	} {
		got, expiry, err := coreStoredRead([]byte(test.stored))
		switch {
		case test.want.kind != coreAbsent && (err != nil || got != test.want || expiry != test.expiry):
			t.Errorf("% x: %+v that expires at %d, %v, want %+v and %d", test.stored, got, expiry, err, test.want, test.expiry)
		case test.want.kind == coreAbsent && (err == nil || !strings.HasPrefix(err.Error(), "NDB_E_CORRUPT")):
			t.Errorf("% x: %+v, %v, want NDB_E_CORRUPT", test.stored, got, err)
		}
	}
}

// TestRecordSum checks that the checksum is CRC-32C, folded, by the processor's instruction and by
// table.
func TestRecordSum(t *testing.T) {
	const all = "123456789, and some bytes behind them, so that whole words are summed"
	for i := range len(all) {
		for _, length := range []int{9, len(all)} {
			key, value := all[:min(i, length)], all[min(i, length):length]
			sum := crc32.Checksum([]byte(all[:length]), crc32.MakeTable(crc32.Castagnoli))
			want := uint16(sum ^ sum>>16)
			if fast, slow := coreRecordSum(key, value); fast != want || slow != want {
				t.Errorf("%q, %q: %x and %x, want %x", key, value, fast, slow, want)
			}
		}
	}
}
