package document_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/internal/document/report"
)

// manyFields returns an object with n fields.
func manyFields(n int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"k%d":0`, i)
	}
	b.WriteByte('}')
	return b.String()
}

func TestFieldsAreBounded(t *testing.T) {
	for name, check := range map[string]func([]byte) error{"document": check, "pure": pure.Check} {
		if err := check([]byte(manyFields(report.MaxFields))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, doc := range []string{
			manyFields(report.MaxFields + 1),
			`{"list":[` + strings.Repeat(`{"a":0},`, report.MaxFields) + `0]}`,
			` {"x":` + manyFields(report.MaxFields) + `}`,
		} {
			err := check([]byte(doc))
			if err == nil || !strings.Contains(err.Error(), "more than 32768 fields") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, doc := range []string{manyFields(report.MaxFields + 1), " [" + manyFields(report.MaxFields+1) + "]", `{"a":[{"x":0}],"x":` + manyFields(report.MaxFields) + `}`} {
		if got, want := fmt.Sprint(check([]byte(doc))), fmt.Sprint(pure.Check([]byte(doc))); got != want {
			t.Errorf("in C: %s; in Go: %s", got, want)
		}
	}
}

// fnv continues an FNV-1a hash, by which names were once found, and which has no seed.
func fnv(state uint32, s string) uint32 {
	for i := range len(s) {
		state = (state ^ uint32(s[i])) * 16777619
	}
	return state
}

// collidingNames returns 2^blocks names with the same hash: each block is one of two that collide.
func collidingNames(blocks int) []string {
	names, state := []string{""}, uint32(2166136261)
	for range blocks {
		seen := map[uint32]string{}
		for i := 1; ; i++ {
			block := strconv.FormatUint(uint64(i)*0x9E3779B97F4A7C15, 36)
			h := fnv(state, block)
			other, found := seen[h]
			if !found {
				seen[h] = block
				continue
			}
			state = h
			var longer []string
			for _, name := range names {
				longer = append(longer, name+block, name+other)
			}
			names = longer
			break
		}
	}
	return names
}

// TestChosenNames extracts columns from a document whose field names all have the same FNV-1a hash.
func TestChosenNames(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures C code")
	}
	chosen := collidingNames(14)
	usual := make([]string, len(chosen))
	for i, name := range chosen {
		usual[i] = fmt.Sprintf("%05d%s", i, name[5:])
	}
	// In a hash table without a seed, they would take hundreds of times as long.
	least := func(names []string) time.Duration {
		doc := []byte(`{"a":1`)
		for _, name := range names {
			doc = append(doc, `,"`+name+`":0`...)
		}
		doc = append(doc, '}')
		best := time.Hour
		for range 4 {
			x := document.NewExtractor([]event.Column{{Name: "a", Path: []string{"a"}, Type: event.Int64}})
			x.ReportUnknown()
			var cols event.Columns
			start := time.Now()
			r, err := x.Extract(doc, []uint32{uint32(len(doc))}, &cols)
			best = min(best, time.Since(start))
			if err != nil || len(r.Rejected) != 0 || len(r.Unknown) != len(names) {
				t.Fatalf("%v, rejected %v, %d unknown", err, r.Rejected, len(r.Unknown))
			}
		}
		return best
	}
	// On a busy machine a round may be interrupted: one undisturbed round suffices.
	took, other := least(chosen), least(usual)
	for turn := 0; turn < 20 && took > 20*other; turn++ {
		took = min(took, least(chosen))
	}
	if took > 20*other {
		t.Errorf("chosen names took %v, others %v", took, other)
	}
}
