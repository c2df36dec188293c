//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// A model holds the expected contents of a table: the documents of each position.
type model struct {
	rows map[uint64][]string
	have event.Ranges
}

// values are chosen so that every column type meets every other and losses are visible:
// integers that a double cannot represent, text that looks like JSON.
var values = []string{
	`0.25`, `9007199254740993`, `1`, `-7`, `-9223372036854775808`, `18446744073709551615`, `123456789012345678901234567890`,
	`-1.5e3`, `1e20`, `true`, `false`, `null`, `""`, `"text"`, `"{\"a\":1}"`, `"null"`, `"1"`, `"a text of more than twelve bytes"`,
	`"\u0000 \u2603 \"quoted\""`, `{}`, `{"a":[1,2.50]}`, `[]`, `[null,{"b":"x"}]`, `"2026-01-01T00:00:00Z"`,
}

var keys = []string{
	"a", "A", "b", "select", "rowid", "_rest", "with space", `quo"te`, "☾", "", "_", "a_2", "time", "tab\tkey", "null", "x.y",
}

func randomDocument(r *rand.Rand, id string) string {
	fields := []string{`"id":"` + id + `"`}
	for _, k := range r.Perm(len(keys))[:r.IntN(5)] {
		key, _ := json.Marshal(keys[k])
		// Mostly one kind of value per key, so that column types last for a while.
		v := (k*5 + r.IntN(2)) % len(values)
		if r.IntN(20) == 0 {
			v = r.IntN(len(values))
		}
		fields = append(fields, string(key)+":"+values[v])
	}
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return "{" + strings.Join(fields, ",") + "}"
}

// batch returns an output of random events and records the new ones in the model.
func (m *model) batch(r *rand.Rand, fingerprints bool) *event.Output {
	first, count := uint64(r.IntN(400)), uint64(1+r.IntN(60))
	out := &event.Output{Range: event.Range{First: first, Count: count}}
	for i := range count {
		position := first + i
		known := m.have.Has(position)
		if fingerprints {
			out.Range.Fingerprints = append(out.Range.Fingerprints, uint32(position)*31)
		}
		for n := range r.IntN(3) {
			doc := randomDocument(r, fmt.Sprintf("%d.%d", position, n))
			out.Data = append(out.Data, doc...)
			out.Ends = append(out.Ends, uint32(len(out.Data)))
			out.From = append(out.From, uint32(i))
			if !known {
				m.rows[position] = append(m.rows[position], doc)
			}
		}
	}
	m.have.Add(event.Range{First: first, Count: count})
	return out
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			folder, m := t.TempDir(), &model{rows: map[uint64][]string{}}
			s := openStore(t, folder)
			table := openTable(t, s, TableConfig{})
			p := take(t, table)
			for range 40 {
				switch r.IntN(14) {
				case 4: // drop the table; the model starts again
					dropTable(t, s, "events")
					*m = model{rows: map[uint64][]string{}}
					table = openTable(t, s, TableConfig{})
					p = take(t, table)
				case 5: // rename the table and rename it back
					for _, names := range [][2]string{{"events", "other"}, {"other", "events"}} {
						if err := s.RenameTable(t.Context(), names[0], names[1], r.IntN(2) == 0); err != nil {
							t.Fatal(err)
						}
					}
					p = take(t, table)
				case 0:
					s.Close()
					s = openStore(t, folder)
					table = openTable(t, s, TableConfig{})
					p = take(t, table)
				case 1:
					p = take(t, table)
				case 2:
					seal(t, s)
				case 3:
					wake(s.compactor)
				}
				if err := p.Append(context.Background(), m.batch(r, seed%2 == 0)); err != nil {
					t.Fatal(err)
				}
			}
			m.check(t, s, table)
			s.Close()
			s = openStore(t, folder)
			m.check(t, s, openTable(t, s, TableConfig{}))
		})
	}
}

// check compares all rows and ranges of the table with the model.
func (m *model) check(t *testing.T, s *Store, table *Table) {
	t.Helper()
	done, err := committedRanges(table, "pipe", "part")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(withoutFingerprints(m.have), withoutFingerprints(done)); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
	for _, d := range done {
		for i, fingerprint := range d.Fingerprints {
			if want := uint32(d.First+uint64(i)) * 31; fingerprint != want {
				t.Fatalf("position %d has fingerprint %d, want %d", d.First+uint64(i), fingerprint, want)
			}
		}
	}
	var want []string
	for _, docs := range m.rows {
		for _, doc := range docs {
			want = append(want, canonical(t, doc))
		}
	}
	got := readBack(t, s, table)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// readBack converts a table's rows back to documents.
func readBack(t *testing.T, s *Store, table *Table) []string {
	t.Helper()
	names := map[string]string{}
	for _, c := range table.current().Columns {
		names[c.Name] = c.Path[0]
	}
	rows, err := s.Query(context.Background(), `SELECT * FROM events`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var docs []string
	for rows.Next() {
		var fields []string
		for i, value := range rows.Row() {
			column := rows.Columns()[i].Name
			text := string(protocol.AppendJSON(nil, value))
			if key, ok := names[column]; ok {
				name, _ := json.Marshal(key)
				fields = append(fields, string(name)+":"+text)
			} else if column == catalog.RestColumn && value != nil {
				fields = append(fields, strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"))
			}
		}
		docs = append(docs, canonical(t, "{"+strings.Join(fields, ",")+"}"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return docs
}

// canonical normalizes a document so that equal documents are equal strings: sorted keys, no
// top-level nulls, numbers as fractions.
func canonical(t *testing.T, doc string) string {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(doc))
	decoder.UseNumber()
	var root map[string]any
	if err := decoder.Decode(&root); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	for key, value := range root {
		if value == nil {
			delete(root, key)
		}
		if number, ok := value.(json.Number); ok {
			fraction, _ := new(big.Rat).SetString(number.String())
			root[key] = "number " + fraction.RatString()
		}
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConcurrentLanes(t *testing.T) {
	const lanes, each, size = 6, 30, 50
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	m := &model{rows: map[uint64][]string{}}
	outs := make(chan *event.Output, lanes*each)
	r := rand.New(rand.NewPCG(7, 7))
	for i := range uint64(lanes * each) {
		docs := make([]string, size)
		for n := range docs {
			docs[n] = randomDocument(r, fmt.Sprint(i*size+uint64(n)))
			m.rows[i*size+uint64(n)] = []string{docs[n]}
		}
		outs <- outputOf(i*size, docs...)
	}
	close(outs)
	m.have.Add(event.Range{Count: lanes * each * size})
	p := take(t, table)
	var group sync.WaitGroup
	for range lanes {
		group.Go(func() {
			for out := range outs {
				if err := p.Append(context.Background(), out); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	m.check(t, s, table)
}
