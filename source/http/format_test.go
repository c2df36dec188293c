package http

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/source/format"
)

func TestParseRecords(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings format.Settings
		body     string
		docs     []string
		rejected []rejection
	}{
		{"lines", format.Settings{Format: format.Lines}, "a\r\n\n{\"b\":1}\n", []string{`{"line":"a"}`, `{"line":""}`, `{"line":"{\"b\":1}"}`}, nil},
		{"csv", format.Settings{Format: format.CSV}, "id,text\n1,\"x\ny\"\n2\n3,z", []string{`{"id":1,"text":"x\ny"}`, `{"id":3,"text":"z"}`},
			[]rejection{{2, "not csv: the record has 1 fields, not 2"}}},
		{"csv with columns", format.Settings{Format: format.CSV, Columns: []string{"a"}}, "1\n2\n", []string{`{"a":1}`, `{"a":2}`}, nil},
		{"logfmt", format.Settings{Format: format.Logfmt}, "a=1\n\nhello\n", []string{`{"a":1}`}, []rejection{{2, "not logfmt: it has no key=value"}}},
	} {
		f, err := format.New(c.settings)
		if err != nil {
			t.Fatal(err)
		}
		posted, err := parseRecords([]byte(c.body), f, func(int) error { return nil })
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var docs []string
		start := uint32(0)
		for _, end := range posted.ends {
			docs, start = append(docs, string(posted.data[start:end])), end
		}
		if !slices.Equal(docs, c.docs) || !slices.Equal(posted.rejected, c.rejected) {
			t.Errorf("%s: got %q and %v, want %q and %v", c.name, docs, posted.rejected, c.docs, c.rejected)
		}
	}
}

// TestParseRecordsTakesMemory: documents may be much larger than the records, whose fields
// have long names. Their memory is taken before it is used.
func TestParseRecordsTakesMemory(t *testing.T) {
	f, err := format.New(format.Settings{Format: format.CSV})
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("n", 10_000) + "\n" + strings.Repeat("1\n", 10_000)
	taken := 0
	_, err = parseRecords([]byte(body), f, func(bytes int) error {
		if taken += bytes; taken > 1<<20 {
			return errBusy
		}
		return nil
	})
	if !errors.Is(err, errBusy) || taken > 2<<20 {
		t.Errorf("got %v after %d bytes, want %v after 1 MiB", err, taken, errBusy)
	}
}
