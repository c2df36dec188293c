//go:build linux && cgo

package eventservice

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestFilter(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	events := `[{"time":"2026-11-29T01:02:03.5Z","point":"source","partition":"p","position":18446744073709551615,"text":"{\"id\":1,\"tags\":[\"a\"],\"n\":null}"},` +
		`{"time":"2026-11-29T01:02:04Z","point":"dead","sink":"s","partition":"p","position":7,"text":"{\"id\":\"2\",\"big\":1e999}","stage":"script","error":"it's"},` +
		`{"time":"2026-11-29T01:02:05Z","point":"source","partition":"q","position":8,"text":"no JSON"},` +
		`{"time":"2026-11-29T01:02:03Z","point":"source","partition":"q","position":6,"text":"{\"odd\":\"\\ud800\"}"}]`
	for where, want := range map[string][]int{
		"true": {0, 1, 2, 3}, "false": nil, "NULL": nil,
		"point = 'source'":                    {0, 2, 3},
		"position > 7":                        {0, 2},
		"(event ->> 'id') = '2'":              {1},
		"TRY_CAST(event ->> 'id' AS INT) = 1": {0},
		"(event ->> '$.tags[0]') = 'a'":       {0},
		"(event -> 'n') IS NOT NULL":          {0}, "event IS NULL": {2, 3},
		"event IS NULL AND text LIKE 'no %'": {2},
		"error LIKE '%''%' -- a comment":     {1},
		"time >= '2026-11-29 01:02:04Z'":     {1, 2},
	} {
		f, err := NewFilter(t.Context(), where)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		for range 2 {
			if got, err := f.Pass(t.Context(), []byte(events)); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: passed %v, want %v: %v", where, got, want, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for where, want := range map[string]string{
		"nothing = 1":        "SQL:1:1",
		"point =\n  nothing": "SQL:2:3",
		"":                   "SQL",
		"event = (SELECT content FROM read_text('/etc/passwd'))": "not allowed",
	} {
		if _, err := NewFilter(t.Context(), where); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", where, err, want)
		}
	}
	f, err := NewFilter(t.Context(), "CAST(event ->> 'id' AS INT) = 1 AND point = 'dead' OR CAST(text AS INT) = 1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pass(t.Context(), []byte(events)); err == nil || !strings.Contains(err.Error()+event.HintOf(err), "TRY_CAST") {
		t.Errorf("%v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
