//go:build linux && cgo

package eventservice

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	eventsink "github.com/perigeedb/perigee/sink/eventstore"
)

// TestUndeclaredTableIsReported writes events to tables that nothing declares, and reads the
// declaration that the log proposes.
func TestUndeclaredTableIsReported(t *testing.T) {
	for _, test := range []struct {
		name, want string // in the log; the declaration where there is one
		docs       []string
	}{
		{"one time", "tables: {t: {time: at}}", []string{`{"id":1,"at":"2026-01-02T03:04:05Z"}`, `{"at":"2026-01-02T03:04:05.123456789+05:30"}`}},
		{"the usual name is the time", "tables: {t: {time: time, columns: [{name: seen, type: timestamp}]}}",
			[]string{`{"seen":"2026-01-02T03:04:05Z","time":"2026-01-02T03:04:05Z"}`}},
		{"a time that some lack is no time column", "tables: {t: {columns: [{name: at, type: timestamp}]}}",
			[]string{`{"at":"2026-01-02T03:04:05Z"}`, `{"at":null}`, `{"id":3}`}},
		{"names that YAML reads otherwise", `tables: {t: {time: "@timestamp", columns: [{name: "on", type: timestamp}]}}`,
			[]string{`{"on":"2026-01-02T03:04:05Z","@timestamp":"2026-01-02T03:04:05Z"}`}},
		{"texts that are times only sometimes", "level=INFO", []string{`{"at":"2026-01-02T03:04:05Z"}`, `{"at":"soon"}`}},
		{"texts that are nearly times", "level=INFO", []string{`{"at":"2026-01-02 03:04:05"}`, `{"at":"2026-01-02"}`}},
		{"no times", "level=INFO", []string{`{"id":1}`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			s := &Store{folder: filepath.Join(t.TempDir(), folderName), log: slog.New(slog.NewTextHandler(&log, nil))}
			defer s.Close()
			for _, pipeline := range []string{"first", "second"} { // of one table
				writeTo(t, s, pipeline, test.docs)
			}
			if got := strings.ReplaceAll(log.String(), `\"`, `"`); strings.Count(got, "created an undeclared table") != 1 || !strings.Contains(got, test.want) {
				t.Fatalf("the log says\n%s\nwant once %s", got, test.want)
			}
			if !strings.HasPrefix(test.want, "tables:") {
				return
			}
			c, err := config.Parse("perigee.yaml", test.want+"\npipelines: {p: {source: {file: {}}, sink: {stdout: {}}}}\n",
				config.Known{Sources: []string{"file"}, Sinks: []string{"stdout"}, ColumnTypes: []string{"timestamp"}}, func(string) (string, bool) { return "", false })
			if err != nil {
				t.Fatalf("the declaration is no configuration: %v", err)
			}
			log.Reset()
			declared := &Store{folder: filepath.Join(t.TempDir(), folderName), tables: c.Tables, log: s.log}
			defer declared.Close()
			writeTo(t, declared, "p", test.docs)
			tables, err := declared.opened.Tables()
			if err != nil {
				t.Fatal(err)
			}
			for _, column := range tables[0].Columns {
				if column.Name != "id" && column.Type != "TIMESTAMP" {
					t.Errorf("declared so, column %s is %s", column.Name, column.Type)
				}
			}
			if strings.Contains(log.String(), "declare") {
				t.Errorf("a declared table is reported: %s", log.String())
			}
		})
	}
}

func writeTo(t *testing.T, s *Store, pipeline string, docs []string) {
	t.Helper()
	made, err := eventsink.Kind(s.openTable, s.reportUndeclared).New(sink.Env{Pipeline: pipeline}, func(c any) error {
		c.(*eventsink.Config).Table = "t"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := made.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	out := &event.Output{Partition: "a", Range: event.Range{Count: uint64(len(docs))}}
	for i, doc := range docs {
		out.Data = append(out.Data, doc...)
		out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
	}
	if err := w.Write(context.Background(), out); err != nil {
		t.Fatal(err)
	}
}
