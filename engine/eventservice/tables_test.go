//go:build linux && cgo

package eventservice

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) {
	RunWorker()
	os.Exit(m.Run())
}

func parseTables(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("perigee.yaml", "tables:\n"+text+"\npipelines: {p: {source: {file: {}}, sink: {stdout: {}}}}\n",
		config.Known{Sources: []string{"file"}, Sinks: []string{"stdout"}, ColumnTypes: []string{"int64", "decimal"}}, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReloadOfTables declares tables before the store is open, and changes them while it is.
func TestReloadOfTables(t *testing.T) {
	s := &Store{folder: filepath.Join(t.TempDir(), folderName), log: slog.New(slog.DiscardHandler)}
	defer s.Close()
	names := func() (columns []string) {
		tables, err := s.opened.Tables()
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for _, c := range table.Columns {
				columns = append(columns, table.Name+"."+c.Name+" "+c.Type)
			}
		}
		return columns
	}
	if err := s.Configure(parseTables(t, `  a: {time: at, columns: [{name: n, type: int64}]}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.folder); err == nil {
		t.Error("the store was opened though nothing needs it")
	}
	if _, err := s.openTable("a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Configure(parseTables(t, `  a: {time: at, columns: [{name: n, type: int64}, {name: price, type: "decimal(9,2)"}]}
  b: {}`)); err != nil {
		t.Fatal(err)
	}
	want := []string{"a.at TIMESTAMP", "a.n BIGINT", "a.price DECIMAL(9,2)"}
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("the tables have %q, want %q", got, want)
	}
	err := s.Configure(parseTables(t, `  b: {}
  a: {time: later}`))
	faults, ok := errors.AsType[config.Errors](err)
	if !ok || faults[0].Line != 3 || !strings.Contains(faults[0].Hint, "perigee table set-time a later") {
		t.Errorf("another time column: %v", err)
	}
	if _, err := s.openTable("a"); err != nil {
		t.Errorf("after a reload that was refused: %v", err)
	}
	if err := s.Configure(&config.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.openTable("a"); err != nil {
		t.Errorf("a table whose declaration was removed: %v", err)
	}
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("the tables have %q, want %q", got, want)
	}
}

// TestReadIDs reads the column of a table whose whole numbers name the rows.
func TestReadIDs(t *testing.T) {
	data := t.TempDir()
	s := &Store{folder: filepath.Join(data, folderName), log: slog.New(slog.DiscardHandler)}
	if err := s.Configure(parseTables(t, `  a: {columns: [{name: n, type: int64}]}`)); err != nil {
		t.Fatal(err)
	}
	table, err := s.openTable("a")
	if err != nil {
		t.Fatal(err)
	}
	partition, _, err := table.TakeOver(t.Context(), "pipe", "part")
	if err != nil {
		t.Fatal(err)
	}
	doc := []byte(`{"n":1,"text":"x"}{"n":9007199254740993,"text":"y"}`)
	out := &event.Output{Range: event.Range{First: 0, Count: 2}, Data: doc, Ends: []uint32{18, uint32(len(doc))}, From: []uint32{0, 1}}
	if err := errors.Join(partition.Append(t.Context(), out), s.Close()); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	if err := ReadIDs(t.Context(), data, "a", "n", func(id uint64) { got = append(got, id) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := []uint64{1, 9007199254740993}; !slices.Equal(got, want) {
		t.Errorf("ids %d, want %d", got, want)
	}
	err = ReadIDs(t.Context(), data, "a", "text", func(id uint64) { t.Errorf("id %d of a text", id) })
	if err == nil || !strings.Contains(err.Error(), "column text of a row is") {
		t.Errorf("ids of a column of texts: %v", err)
	}
	if err := ReadIDs(t.Context(), t.TempDir(), "a", "n", nil); err == nil || !strings.Contains(err.Error(), "no event store") {
		t.Errorf("ids of a folder without a store: %v", err)
	}
}

// TestQueryOfRelativeFolder asks the store of a data folder that is relative to the working folder.
func TestQueryOfRelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	s := &Store{folder: filepath.Join("data", folderName)}
	writeTo(t, s, "p", []string{`{"id":1}`})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Query(t.Context(), "data", Request{SQL: "SELECT id FROM t", Format: "csv"}, &out); err != nil || out.String() != "id\n1\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// TestColumnsOfASink compares the columns of the table that a sink writes with its declaration.
func TestColumnsOfASink(t *testing.T) {
	s := new(Store)
	opts := engine.Options{Kinds: engine.Kinds{Sources: []source.Kind{generate.Kind()}, Sinks: s.Kinds(), Languages: []script.Language{lua.Language()}}, Services: []engine.Service{s}}
	c, err := config.Parse("p.yaml", "data: "+t.TempDir()+`
tables:
  Clicks: {time: at, time_unit: ms, columns: [{name: n, type: "decimal(5,2)"}, {name: user, type: string, field: who.name}]}
  seen: {time: t, columns: [{name: t, type: timestamp_ns, unit: us}]}
pipelines:
  a: {source: {generate: {events: 1}}, sinks: {x: {eventstore: {table: clicks}}, y: {eventstore: {table: seen}}, z: {eventstore: {table: other}}}}
`, config.Known{Sources: []string{"generate"}, Sinks: []string{"eventstore"}, Languages: []string{"lua"}, ColumnTypes: event.TableTypeNames()}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	stages, err := engine.LoadStages(t.Context(), c, "a", opts, engine.StageOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stages.Close()
	var got []string
	for _, sink := range stages.Sinks {
		got = append(got, fmt.Sprintf("%s %t", sink.Config.Name, sink.Documents))
		for _, c := range sink.Columns {
			got = append(got, fmt.Sprint(c.Name, c.Path, c.Type, c.Unit, c.Digits, c.Required))
		}
	}
	want := []string{
		"x true", "at[at] timestamp ms  true", "n[n] decimal s (5,2) false", "user[who name] string s  false",
		"y true", "t[t] timestamp_ns us  true", "z false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("columns are\n%q\nwant\n%q", got, want)
	}
}
