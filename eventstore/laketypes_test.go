//go:build linux && cgo

package eventstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/testseed"
)

// lakeRows returns the columns of a lake table, as NAME TYPE, and its rows by id, as pyiceberg
// and DuckDB see them.
func lakeRows(t *testing.T, location string) (columns []string, rows map[int]map[string]any) {
	t.Helper()
	out, err := exec.Command(os.Getenv("PERIGEE_LAKE_PYTHON"), "../tools/lake/rows.py", location).CombinedOutput()
	if err != nil {
		t.Fatalf("%s (%v)", out, err)
	}
	head, body, _ := strings.Cut(string(out), "\n\n")
	rows = map[int]map[string]any{}
	for line := range strings.Lines(body) {
		row := map[string]any{}
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		id, _ := row["id"].(json.Number).Int64()
		if rows[int(id)] != nil {
			t.Fatalf("row %d is there twice", id)
		}
		rows[int(id)] = row
	}
	return strings.Split(head, "\n"), rows
}

// openLake opens a store with a table in a lake, for tests that need the committer.
func openLake(t *testing.T) (s *Store, p *Partition, location string) {
	t.Helper()
	useCommitter(t)
	folder := t.TempDir()
	s = openStore(t, filepath.Join(folder, "store"))
	p = take(t, openTable(t, s, TableConfig{Lake: &catalog.Lake{Warehouse: filepath.Join(folder, "warehouse"), Table: "test.events"}}))
	return s, p, filepath.Join(folder, "warehouse", "test", "events")
}

// typeValues returns JSON of the values that a field has before and after its column becomes
// wider. Only the first have the type of the column in the lake.
func typeValues(r *rand.Rand, field string) (before, after string) {
	number := strconv.Itoa(r.IntN(2000) - 1000)
	double := strconv.FormatFloat(float64(r.IntN(4000)-2000)/4, 'f', 2, 64)
	text := fmt.Sprintf(`"text %d é\n"`, r.IntN(20))
	document := fmt.Sprintf(`{"x":[%d,null]}`, r.IntN(9))
	switch field {
	case "a": // int, double
		return number, []string{double, number}[r.IntN(2)]
	case "b": // int, JSON
		return number, []string{number, double, text, "true", document, "9223372036854775807"}[r.IntN(6)]
	case "c": // double, JSON
		return double, []string{double, number, text, "false", "9007199254740993", "1e300"}[r.IntN(6)]
	case "d": // string, JSON
		return text, []string{text, number, document, "true"}[r.IntN(4)]
	case "e": // bool, JSON
		return []string{"true", "false"}[r.IntN(2)], []string{"true", "false", number, text}[r.IntN(4)]
	}
	return document, []string{document, text, number}[r.IntN(3)]
}

// typeDocs returns documents with the fields of typeValues.
func typeDocs(r *rand.Rand, first, n int, wide bool) (docs []string) {
	for i := range n {
		doc := fmt.Sprintf(`{"id":%d`, first+i)
		for _, field := range []string{"a", "b", "c", "d", "e", "f"} {
			before, after := typeValues(r, field)
			switch {
			case r.IntN(4) == 0 && i > 0:
			case wide:
				doc += fmt.Sprintf(`,%q:%s`, field, after)
			default:
				doc += fmt.Sprintf(`,%q:%s`, field, before)
			}
		}
		docs = append(docs, doc+"}")
	}
	return docs
}

// fitsLake returns a JSON value as a lake column has it, and whether it fits.
func fitsLake(source, kind string, isJSON bool) (any, bool) {
	isText, isNumber := source[0] == '"', !strings.ContainsAny(source[:1], `"tf{[`)
	switch {
	case isJSON:
		return source, true
	case kind == "string" && isText:
		var text string
		_ = json.Unmarshal([]byte(source), &text)
		return text, true
	case kind == "boolean" && (source == "true" || source == "false"):
		return source == "true", true
	case kind == "long" && isNumber:
		f, _ := strconv.ParseFloat(source, 64)
		whole, fraction, _ := strings.Cut(source, ".")
		return json.Number(whole), strings.Trim(fraction, "0") == "" && !strings.Contains(source, "e") && (f != 0 || source[0] != '-')
	case kind == "double" && isNumber:
		f, _ := strconv.ParseFloat(source, 64)
		return f, source != "9007199254740993"
	}
	return nil, false
}

// checkLakeTypes compares the rows of a lake table with documents. kinds are the types of the
// fields in the lake, with json for JSON texts. It returns the number of misfits.
func checkLakeTypes(t *testing.T, location string, docs []string, kinds map[string]string) (misfits int64) {
	t.Helper()
	columns, rows := lakeRows(t, location)
	for field, kind := range kinds {
		if kind == "json" {
			kind = "string"
		}
		if !strings.Contains(strings.Join(columns, "\n")+"\n", field+" "+kind+"\n") {
			t.Errorf("field %s is not %s: %v", field, kind, columns)
		}
	}
	if len(rows) != len(docs) {
		t.Errorf("%d rows, want %d", len(rows), len(docs))
	}
	wrong := 0
	for id, doc := range docs {
		fields, rest := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(doc), &fields); err != nil {
			t.Fatal(err)
		}
		row := rows[id]
		if text, ok := row["_rest"].(string); ok {
			if err := json.Unmarshal([]byte(text), &rest); err != nil {
				t.Fatalf("_rest %s: %v", text, err)
			}
		}
		for field, kind := range kinds {
			source, has := fields[field]
			kind, isJSON := strings.CutPrefix(kind, "json")
			var want any
			fits := true
			if has {
				want, fits = fitsLake(string(source), kind, isJSON)
			}
			if !fits {
				want = nil
				misfits++
			}
			got := row[field]
			if n, ok := got.(json.Number); ok && kind == "double" {
				got, _ = n.Float64()
			}
			kept, found := rest[field]
			// A column that was a double has forgotten how its values were spelled.
			same := string(kept) == string(source)
			if a, err := strconv.ParseFloat(string(kept), 64); err == nil {
				b, err := strconv.ParseFloat(string(source), 64)
				same = same || err == nil && a == b
			}
			if text, ok := got.(string); ok && isJSON && text != asText(want) {
				a, err := strconv.ParseFloat(text, 64)
				b, _ := strconv.ParseFloat(asText(want), 64)
				if err == nil && a == b {
					got = want
				}
			}
			if got != want || found == fits || found && !same {
				if wrong++; wrong < 10 {
					t.Errorf("row %d: %s of %s is %#v in the lake, want %#v; _rest is %v", id, field, doc, row[field], want, row["_rest"])
				}
			}
		}
	}
	return misfits
}

func asText(v any) string {
	text, _ := v.(string)
	return text
}

// publishAll publishes until the lake has all rows.
func publishAll(t *testing.T, s *Store) {
	t.Helper()
	waitUntil(t, s, func() bool {
		if err := s.publish(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, f := range filesOf(s) {
			if s.current().Table("events").Publication(f) != manifest.Published {
				return false
			}
		}
		return true
	})
}

// growTypes appends n rows, seals them, and returns docs with them.
func growTypes(t *testing.T, s *Store, p *Partition, r *rand.Rand, docs []string, n int, wide bool) []string {
	t.Helper()
	more := typeDocs(r, len(docs), n, wide)
	appendDocs(t, p, uint64(len(docs)), more...)
	seal(t, s)
	return append(docs, more...)
}

// widenInLake widens a column and waits until the lake has it.
func widenInLake(t *testing.T, s *Store, column string) {
	t.Helper()
	if _, err := s.WidenInLake("events", column); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, s, func() bool {
		if err := s.publish(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		return s.LakeStates()[0].Widening == ""
	})
}

// TestLakeTypes publishes a table whose columns become wider. Values that no longer fit must be
// in _rest of the lake, and only there.
func TestLakeTypes(t *testing.T) {
	s, p, location := openLake(t)
	r := testseed.New(t)
	var docs []string
	grow := func(n int, wide bool) {
		t.Helper()
		docs = growTypes(t, s, p, r, docs, n, wide)
	}
	kinds := map[string]string{"a": "long", "b": "long", "c": "double", "d": "string", "e": "boolean", "f": "json"}
	grow(100, false)
	publishAll(t, s)
	if misfits := checkLakeTypes(t, location, docs, kinds); misfits != 0 {
		t.Errorf("got %d misfits, want none", misfits)
	}
	for range 5 {
		grow(60, true)
		grow(30, false)
		publishAll(t, s)
	}
	wake(s.compactor)
	publishAll(t, s)
	want, counted := checkLakeTypes(t, location, docs, kinds), int64(0)
	for _, f := range filesOf(s) {
		counted += f.Misfits
	}
	if counted != want || want == 0 {
		t.Errorf("%d misfits are counted, want %d", counted, want)
	}
	state := ask(t, s, "SELECT table_name, lake_table, covered = ordered AND covered > 0, committed > now() - INTERVAL 1 HOUR, waiting_files, waiting_since, gone_files, misfits, error FROM perigee.lakes")
	if want := fmt.Sprintf("events,test.events,true,true,0,,0,%d,", want); state != want {
		t.Errorf("the state is %s, want %s", state, want)
	}
	have := 0
	for _, doc := range docs {
		have += strings.Count(doc, `"b":`)
	}
	if got := ask(t, s, `SELECT count(b) FROM events`); got != strconv.Itoa(have) {
		t.Errorf("our own queries see %s values, want %d", got, have)
	}
}

// TestLakeAfterDelete checks that files without deleted rows are published as all others are: none
// waits, they are merged, and columns can be widened.
func TestLakeAfterDelete(t *testing.T) {
	s, p, _ := openLake(t)
	r := testseed.New(t)
	for i := range mergeMin - 1 {
		appendDocs(t, p, uint64(40*i), typeDocs(r, 40*i, 40, i > 0)...)
		seal(t, s)
		publishAll(t, s)
	}
	if _, err := s.Delete(t.Context(), "events", "id % 10 = 3"); err != nil {
		t.Fatal(err)
	}
	publishAll(t, s)
	if state := s.LakeStates()[0]; state.WaitingFiles != 0 || state.Misfits == 0 {
		t.Errorf("after the delete: %+v", state)
	}
	if err := mergeQuiet(t.Context(), s); err != nil || len(filesOf(s)) != 1 {
		t.Errorf("%d files are left, want 1 (%v)", len(filesOf(s)), err)
	}
	for _, field := range []string{"b", "c"} {
		widenInLake(t, s, field)
	}
}

// TestLakeWiden widens the columns of a lake table one after the other, while rows arrive, the
// committer fails and the store is opened again. Readers must see each column either in its old
// type or in the new one.
func TestLakeWiden(t *testing.T) {
	s, p, location := openLake(t)
	r := testseed.New(t)
	var docs []string
	grow := func(n int, wide bool) {
		t.Helper()
		docs = growTypes(t, s, p, r, docs, n, wide)
	}
	kinds := map[string]string{"a": "long", "b": "long", "c": "double", "d": "string", "e": "boolean", "f": "json"}
	grow(60, false)
	publishAll(t, s)
	if _, err := s.WidenInLake("events", "a"); err == nil || !strings.Contains(err.Error(), "nothing to widen") {
		t.Fatalf("a column that is no wider: %v", err)
	}
	grow(60, true)
	grow(20, true)
	publishAll(t, s)
	checkLakeTypes(t, location, docs, kinds)
	for _, wrong := range [][2]string{{"f", "nothing to widen"}, {"x", "no column x"}} {
		if _, err := s.WidenInLake("events", wrong[0]); err == nil || !strings.Contains(err.Error(), wrong[1]) {
			t.Errorf("widen %s: %v", wrong[0], err)
		}
	}
	config := TableConfig{Lake: &s.current().Table("events").Lake.Lake}
	path := os.Getenv("PATH")
	for i, field := range []string{"a", "b", "c", "d", "e"} {
		t.Setenv("PATH", t.TempDir()) // without the committer
		state, err := s.WidenInLake("events", strings.ToUpper(field))
		if err != nil || state.Widening != field {
			t.Fatalf("%s: %+v, %v", field, state, err)
		}
		if i < 4 {
			if _, err := s.WidenInLake("events", string("abcde"[i+1])); err == nil {
				t.Errorf("two columns are widened at once")
			}
		}
		if i == 0 {
			if _, err := s.CancelWidenInLake("events", field); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CancelWidenInLake("events", field); err == nil || s.LakeStates()[0].Widening != "" {
				t.Errorf("canceled twice: %v", err)
			}
			if _, err := s.WidenInLake("events", field); err != nil {
				t.Fatal(err)
			}
		}
		waitUntil(t, s, func() bool { return s.LakeStates()[0].WidenedFiles == len(filesOf(s)) })
		_ = s.publish(t.Context(), time.Now().Add(24*time.Hour)) // begins the swap, and fails
		w := s.current().Table("events").Lake.Widening
		if w == nil || w.Step == 0 || s.LakeStates()[0].Error == "" {
			t.Fatalf("%s: the failed commit was not begun: %+v, %+v", field, w, s.LakeStates())
		}
		if _, err := s.CancelWidenInLake("events", field); err == nil {
			t.Errorf("%s is canceled during its commit", field)
		}
		checkLakeTypes(t, location, docs, kinds) // all in the old type
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, s.folder)
		p = take(t, openTable(t, s, config))
		grow(10, true)
		t.Setenv("PATH", path)
		publishAll(t, s)
		if kinds[field] = "json"; field == "a" {
			kinds[field] = "double"
		}
		left := checkLakeTypes(t, location, docs, kinds)
		if state := s.LakeStates()[0]; state.Widening != "" || state.Error != "" || state.Misfits != left {
			t.Errorf("%s: %+v", field, state)
		}
	}
	misfits := checkLakeTypes(t, location, docs, kinds)
	grow(10, true)
	publishAll(t, s)
	if again := checkLakeTypes(t, location, docs, kinds); misfits != 0 || again != 0 {
		t.Errorf("%d and %d misfits are left", misfits, again)
	}
	if columns, _ := lakeRows(t, location); len(columns) != 8 {
		t.Errorf("got columns %v, want 8", columns)
	}
}

// TestLakeRestoredBeforeWidening restores a backup that is older than the widening of columns in the
// lake, and one of a widening that was begun.
func TestLakeRestoredBeforeWidening(t *testing.T) {
	s, p, location := openLake(t)
	folder := filepath.Dir(s.folder)
	r := testseed.New(t)
	var docs []string
	grow := func(n int, wide bool) {
		t.Helper()
		docs = growTypes(t, s, p, r, docs, n, wide)
	}
	grow(60, false)
	publishAll(t, s)
	grow(60, true)
	publishAll(t, s)
	kinds := map[string]string{"a": "long", "b": "long", "c": "double", "d": "string", "e": "boolean", "f": "json"}
	for i, begun := range []bool{false, true} {
		if begun {
			if _, err := s.WidenInLake("events", "d"); err != nil {
				t.Fatal(err)
			}
		}
		var backup bytes.Buffer
		if err := s.Backup(t.Context(), &backup); err != nil {
			t.Fatal(err)
		}
		kept := len(docs)
		if begun {
			waitUntil(t, s, func() bool {
				_ = s.publish(t.Context(), time.Now().Add(24*time.Hour))
				return s.LakeStates()[0].Widening == ""
			})
			kinds["d"] = "json"
			widenInLake(t, s, "e")
			kinds["e"] = "json"
		} else {
			widenInLake(t, s, "a")
			kinds["a"] = "double"
			widenInLake(t, s, "b")
			kinds["b"] = "json"
		}
		grow(20, true)
		publishAll(t, s)
		checkLakeTypes(t, location, docs, kinds)
		restored := filepath.Join(folder, fmt.Sprintf("restored%d", i))
		if err := errors.Join(s.Close(), Restore(restored, &backup)); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, restored)
		p = take(t, openTable(t, s, TableConfig{Lake: &catalog.Lake{Warehouse: filepath.Join(folder, "warehouse"), Table: "test.events"}}))
		docs = docs[:kept]
		grow(20, true)
		waitUntil(t, s, func() bool { // the first order is refused, for the columns' types
			_ = s.publish(t.Context(), time.Now().Add(24*time.Hour))
			l := s.current().Table("events").Lake
			return !l.Rebuilding && l.Widening == nil && l.Error == ""
		})
		for range 2 {
			publishAll(t, s)
			checkLakeTypes(t, location, docs, kinds)
			grow(20, true)
		}
		publishAll(t, s)
	}
}
