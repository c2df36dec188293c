package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPartialWrites uses calls that write fewer bytes than requested, as on a nearly full
// disk, or are interrupted.
func TestPartialWrites(t *testing.T) {
	all := func(n int) int { return n }
	for name, take := range map[string]func(n int) int{
		"all":           all,
		"one byte":      func(int) int { return 1 },
		"all but one":   func(n int) int { return max(n-1, 1) },
		"a half":        func(n int) int { return (n + 1) / 2 },
		"seven at most": func(n int) int { return min(n, 7) },
	} {
		for _, sizes := range [][]int{{5}, {1, 1, 1}, {3, 0, 4, 9}, {0, 2}, {2, 0}, slices.Repeat([]int{1, 3}, buffersMax), slices.Repeat([]int{2}, buffersMax), slices.Repeat([]int{2}, buffersMax+1)} {
			const offset = 17
			var want, got []byte
			var buffers [][]byte
			for i, size := range sizes {
				one := bytes.Repeat([]byte{byte(i + 1)}, size)
				buffers, want = append(buffers, one), append(want, one...)
			}
			interrupted := false
			err := writeAll(func(some [][]byte, at int64) (int, error) {
				if len(some) == 0 || len(some) > buffersMax || at != int64(offset+len(got)) {
					return 0, fmt.Errorf("a call with %d buffers at offset %d, and %d bytes are written", len(some), at, len(got))
				}
				if interrupted = !interrupted; interrupted {
					return -1, unix.EINTR
				}
				given := bytes.Join(some, nil)
				n := take(len(given))
				got = append(got, given[:n]...)
				return n, nil
			}, buffers, offset)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s of %d buffers: %d of %d bytes, %v", name, len(sizes), len(got), len(want), err)
			}
		}
	}
}

// TestWriteThatEnds: a call that writes nothing or fails ends the write with its error.
func TestWriteThatEnds(t *testing.T) {
	for _, want := range []error{io.ErrShortWrite, unix.ENOSPC} {
		calls := 0
		err := writeAll(func(some [][]byte, _ int64) (int, error) {
			if calls++; calls == 1 {
				return 3, nil
			}
			if want == io.ErrShortWrite && calls < 5 {
				return 0, nil
			}
			return -1, want
		}, [][]byte{[]byte("ab"), []byte("cd")}, 0)
		if !errors.Is(err, want) || calls != 2 {
			t.Errorf("after %d calls: %v, want %v", calls, err, want)
		}
	}
}
