package publishing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/release"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// newManifest returns a manifest with a table in a lake.
func newManifest() *manifest.Manifest {
	m := manifest.New()
	m.NextSegment, m.NextTable = 100, 2
	m.Tables = []*manifest.Table{{ID: 1, Name: "mails", NextColumn: 9, Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		{ID: 2, Name: "at", Type: event.TimestampNS}, {ID: 3, Name: "amount", Type: event.Int64}, {ID: 4, Name: "at_ns", Type: event.Decimal, Digits: event.Digits{Precision: 18, Scale: 2}},
		{ID: 5, Name: "nothing"}, {ID: 6, Name: "data", Type: event.JSON}, {ID: 7, Name: "seen", Type: event.Timestamp}, {ID: 8, Name: "raw", Type: event.Bytes},
	}}}}}
	m.Tables[0].SetLake(&catalog.Lake{Warehouse: "/lake"})
	m.BeginIncarnation("here", now)
	m.Incarnations[0].Segment = 1
	return m
}

// add adds a file of a segment, sealed some time ago.
func add(m *manifest.Manifest, segment uint64, age time.Duration) *manifest.File {
	f := &manifest.File{Name: manifest.FileName("2026-11-23", segment, 0), Segment: segment, Schema: 1, Day: "2026-11-23", Rows: 10, Bytes: 1 << 20, Sealed: now.Add(-age).Unix(), Open: true}
	m.Tables[0].Files = append(m.Tables[0].Files, f)
	return f
}

// order prepares an order and returns the wanted files, as segment:step, with those that they
// replace.
func order(t *testing.T, m *manifest.Manifest, at time.Time) (*lake.Order, string) {
	t.Helper()
	known := *m.Tables[0].Lake
	known.Tidied = at // TestTidy has orders that tidy
	m.Tables[0].Lake = &known
	o := Prepare(m, "/store", "first", at)
	if o == nil {
		return nil, "nothing"
	}
	text := func(f lake.File) string {
		_, number, _ := strings.Cut(f.Name, "/")
		return fmt.Sprintf("%s:%d", strings.TrimLeft(number[:10], "0"), f.Step)
	}
	var all []string
	for _, f := range o.Tables[0].Files {
		one := text(f)
		for _, r := range f.Replaces {
			one += "<" + text(r)
		}
		if f.Path == "" {
			one += "?"
		}
		all = append(all, one)
	}
	return o, strings.Join(all, " ")
}

// done applies the report of an order that the committer has carried out.
func done(m *manifest.Manifest, o *lake.Order) {
	report := &lake.Report{}
	for _, t := range o.Tables {
		for i := range t.Columns {
			t.Columns[i].Lake = int32(10 + i)
		}
		report.Tables = append(report.Tables, lake.TableReport{Table: t.Table, UUID: "u", Columns: t.Columns, Covered: t.Step})
	}
	Apply(m, o, report, now)
}

func TestColumns(t *testing.T) {
	m := newManifest()
	table := m.Tables[0]
	columns := columnsOf(table)
	want := []manifest.LakeColumn{
		{ID: manifest.MicrosID(2), Name: "at", Type: "timestamptz"}, {ID: 2, Name: "at_ns", Type: "long"}, {ID: 3, Name: "amount", Type: "long"},
		{ID: 4, Name: "at_ns_", Type: "decimal(18,2)"}, {ID: 6, Name: "data", Type: "string", JSON: true}, {ID: 7, Name: "seen", Type: "timestamptz"},
		{ID: 8, Name: "raw", Type: "binary"}, {ID: 1, Name: "_rest", Type: "string", JSON: true},
	}
	if diff := cmp.Diff(want, columns); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A dropped column stays in the lake; a new one comes last, and one that was empty too.
	table.Lake.Columns = columns
	changed := *table.Schemas[0]
	changed.Version, changed.Columns = 2, append(changed.Columns[2:3:3], manifest.Column{ID: 5, Name: "nothing", Type: event.Bool})
	table.Schemas = append(table.Schemas, &changed)
	if columns = columnsOf(table); len(columns) != 9 || columns[8] != (manifest.LakeColumn{ID: 5, Name: "nothing", Type: "boolean"}) {
		t.Errorf("got %+v", columns)
	}
	table.Lake.Columns = columns
	// A column never changes its type in the lake, whatever it becomes in the table.
	for _, kind := range []event.Type{event.Float64, event.JSON, event.TimestampNS, event.Timestamp} {
		changed.Columns = []manifest.Column{{ID: 3, Name: "amount", Type: kind}, {ID: 2, Name: "at", Type: event.Timestamp}}
		if got := columnsOf(table); !cmp.Equal(got, columns) {
			t.Errorf("as %v: %+v", kind, got)
		}
	}
}

// TestOrders follows a table through seals, merges, a delete and retention.
func TestOrders(t *testing.T) {
	m := newManifest()
	table := m.Tables[0]
	step := func(want string, at time.Time) {
		t.Helper()
		o, got := order(t, m, at)
		if got != want {
			t.Fatalf("order %q, want %q", got, want)
		}
		if o != nil {
			done(m, o)
		}
	}
	merge := func(number uint64, rows int64, files ...*manifest.File) *manifest.File {
		merged := &manifest.File{Name: manifest.FileName("2026-11-23", number, 0), Segment: number, Schema: 1, Rows: rows, Bytes: 1 << 20, Sealed: now.Unix(), Open: true}
		merged.Replaces, merged.Changed = Replaced(m, table, files, rows)
		kept := []*manifest.File{merged}
		for _, f := range table.Files {
			replaced := false
			for _, old := range files {
				replaced = replaced || old.Name == f.Name
			}
			if !replaced {
				kept = append(kept, f)
			}
		}
		table.Files = kept
		return merged
	}
	step("nothing", now)
	add(m, 1, 9*time.Minute)
	step("nothing", now)
	add(m, 2, 10*time.Minute)
	step("2:1", now) // the other one is not due
	step("nothing", now)
	add(m, 3, 0).Bytes = dueBytes
	step("2:1 3:2", now)
	if table.Lake.Columns[0].Lake != 10 || table.Lake.UUID != "u" || table.Lake.Step != 2 {
		t.Errorf("got %+v, want step 2 of the lake u, with its column 10", table.Lake)
	}
	merged := merge(4, 20, table.Files[1], table.Files[2])
	step("nothing", now) // the lake has its rows
	step("2:1? 3:2? 1:3", now.Add(time.Minute))
	// A delete changes the file.
	again := merge(5, 19, merged)
	if table.Publication(again) != manifest.Unknown {
		t.Errorf("a changed file has the publication %v", table.Publication(again))
	}
	step("5:4<2:1<3:2 1:3", now)
	// Retention removes a file.
	table.Files = table.Files[:1]
	step("5:4<2:1<3:2", now)
	// A file that cannot be read by other engines waits, and is rewritten.
	old := add(m, 6, time.Hour)
	old.Open = false
	step("nothing", now)
	if got := NeedRewrite(table); !slices.Equal(got, []*manifest.File{old}) {
		t.Errorf("need to be rewritten: %v", got)
	}
	table.Files = table.Files[:1]
	// Merged files are published when they replace many, or much later.
	for i := range uint64(manifest.ReplacesMin) {
		add(m, 10+i, time.Hour)
	}
	o, _ := order(t, m, now)
	done(m, o)
	table.Files = table.Files[1:]
	o, _ = order(t, m, now)
	done(m, o)
	few := merge(50, 20, table.Files[0], table.Files[1])
	step("nothing", now)
	step("nothing", now.Add(quietAfter-time.Second))
	rest := append([]*manifest.File{}, table.Files[1:]...)
	merge(51, 10*manifest.ReplacesMin, append(rest, few)...)
	o, got := order(t, m, now)
	if !strings.HasPrefix(got, "51:8<") || strings.Count(got, "<") != manifest.ReplacesMin {
		t.Errorf("the order of a file that replaces many is %q", got)
	}
	done(m, o)
	merge(52, 10*manifest.ReplacesMin, table.Files[0])
	step("nothing", now)
	step("52:9<51:8", now.Add(quietAfter))
}

// TestClockWasAhead has a file and a tidying of a time that is yet to come. Neither waits for it.
func TestClockWasAhead(t *testing.T) {
	m := newManifest()
	table := m.Tables[0]
	add(m, 1, -365*24*time.Hour)
	if _, got := order(t, m, now); got != "1:1" {
		t.Errorf("the order is %q, want the file", got)
	}
	table.Lake.Committed = now.Add(-time.Hour)
	if got := State(table, now).WaitingSince; !got.Equal(table.Lake.Committed) {
		t.Errorf("it waits since %v, want the last commit %v", got, table.Lake.Committed)
	}
	for since, want := range map[time.Duration]bool{-time.Minute: false, -tidyInterval: true, 365 * 24 * time.Hour: true} {
		if got := tidyOf(&manifest.Lake{Tidied: now.Add(since)}, now) != nil; got != want {
			t.Errorf("tidied at %v from now: due %t, want %t", since, got, want)
		}
	}
}

// TestReports checks what the manifest records of failures.
func TestReports(t *testing.T) {
	m := newManifest()
	table := m.Tables[0]
	add(m, 1, time.Hour)
	o, _ := order(t, m, now)
	Apply(m, o, &lake.Report{Tables: []lake.TableReport{{Error: "down", Hint: "wait"}}}, now)
	want := catalog.LakeState{Table: "mails", LakeTable: "perigee.mails", Warehouse: "/lake", Ordered: 1, WaitingFiles: 1, WaitingRows: 10, WaitingBytes: 1 << 20, WaitingSince: now.Add(-time.Hour), Misfits: 3, Error: "down", Hint: "wait"}
	table.Files[0].Misfits = 3
	if diff := cmp.Diff(want, State(table, now)); diff != "" {
		t.Errorf("the state (-want +got):\n%s", diff)
	}
	if table.Lake.Error != "down" || table.Lake.Hint != "wait" || table.Publication(table.Files[0]) != manifest.Unknown {
		t.Errorf("after a failure: %+v", table.Lake)
	}
	o, got := order(t, m, now)
	if got != "1:1" || o.Tables[0].Step != 2 { // the file keeps its step
		t.Errorf("after a failure: order %d, %q", o.Tables[0].Step, got)
	}
	gone := o.Tables[0].Files[0].Name
	Apply(m, o, &lake.Report{Tables: []lake.TableReport{{UUID: "u", Covered: 2, Gone: []string{gone}}}}, now)
	if f := table.Files[0]; table.Lake.Error != "" || !f.Gone || table.Publication(f) != manifest.Unknown {
		t.Errorf("after it was rewritten: %+v, %+v", table.Lake, f)
	}
	if _, got := order(t, m, now); got != "nothing" {
		t.Errorf("after it was rewritten: %q", got)
	}
	want = catalog.LakeState{Table: "mails", LakeTable: "perigee.mails", Warehouse: "/lake", Ordered: 2, Covered: 2, Committed: now, Gone: 1, Misfits: 3}
	if diff := cmp.Diff(want, State(table, now)); diff != "" {
		t.Errorf("the state (-want +got):\n%s", diff)
	}
	// Files that only the lake had, and lost, are published from the file with their rows.
	table.Files[0] = &manifest.File{Name: manifest.FileName("2026-11-23", 2, 0), Segment: 2, Schema: 1, Rows: 10, Sealed: now.Unix(), Open: true, Replaces: []manifest.LakeFile{{Name: gone, Rows: 10, Step: 1}}}
	o, _ = order(t, m, now.Add(time.Hour))
	if o != nil {
		t.Fatalf("got order %+v, want none", o)
	}
	add(m, 3, time.Hour)
	o, got = order(t, m, now)
	if got != "1:1? 3:3" {
		t.Fatalf("order %q", got)
	}
	Apply(m, o, &lake.Report{Tables: []lake.TableReport{{UUID: "u", Lost: []string{gone}}}}, now)
	if _, got := order(t, m, now.Add(time.Hour)); got != "2:4 3:3" {
		t.Errorf("after a loss: %q", got)
	}
	if rolledBack := Apply(m, o, &lake.Report{Tables: []lake.TableReport{{Error: "x", RolledBack: true}}}, now); !rolledBack {
		t.Error("a store that was set back does not hear of it")
	}
	if Apply(m, o, &lake.Report{}, now); table.Lake.Error == "" {
		t.Error("a report without the table is no error")
	}
	table.SetLake(&catalog.Lake{Warehouse: "/other"})
	if f := table.Files[0]; f.Step != 0 || f.Replaces != nil || table.Lake.UUID != "" {
		t.Errorf("in another lake: %+v of %+v", f, table.Lake)
	}
}

// TestTidy follows a delete until the lake has none of its rows either.
func TestTidy(t *testing.T) {
	m := newManifest()
	table := m.Tables[0]
	add(m, 10, time.Hour)
	prepare := func(at time.Time) *lake.TableOrder {
		t.Helper()
		o := Prepare(m, "/store", "first", at)
		if o == nil {
			return nil
		}
		return &o.Tables[0]
	}
	report := func(o *lake.TableOrder, tidied *lake.Tidied) {
		t.Helper()
		Apply(m, &lake.Order{Tables: []lake.TableOrder{*o}}, &lake.Report{Tables: []lake.TableReport{{Table: o.Table, UUID: "u", Covered: o.Step, Tidied: tidied}}}, now)
	}
	d := &manifest.Delete{Number: 7, Predicate: "id = 1", RequestedAt: now}
	if m.EndDelete(table, d, now); len(table.Lake.Purges) > 0 {
		t.Error("a table that was never published has a purge")
	}
	first := prepare(now)
	if first.Tidy == nil || len(first.Tidy.Purges) > 0 || first.Step != 1 {
		t.Fatalf("the first order: %+v", first)
	}
	report(first, &lake.Tidied{})
	if o := prepare(now.Add(tidyInterval - time.Second)); o != nil {
		t.Fatalf("nothing is due: got order %+v, want none", o)
	}
	m.EndDelete(table, d, now)
	o := prepare(now)
	if o == nil || o.Step != 1 || m.LastStep != 1 || !cmp.Equal(o.Tidy.Purges, []lake.Purge{{Number: 100, At: now}}) {
		t.Fatalf("with a purge: %+v", o)
	}
	if again := prepare(now.Add(purgeRetry - time.Second)); again != nil {
		t.Fatalf("it was tried: %+v", again)
	}
	m.EndDelete(table, &manifest.Delete{Number: 8}, now.Add(time.Minute))
	report(o, &lake.Tidied{Purged: []lake.Purged{{Waits: "1 snapshot", Until: now.Add(time.Hour)}}})
	if p := table.Lake.Purges; len(p) != 2 || p[0].Waits != "1 snapshot" || !p[0].Next.Equal(now.Add(time.Hour)) || p[1].Waits != "" {
		t.Fatalf("after the report: %+v", p)
	}
	o = prepare(now.Add(time.Minute)) // for the second one
	report(o, &lake.Tidied{Error: "no access"})
	if p := table.Lake.Purges; p[0].Waits != "no access" || p[1].Waits != "no access" || prepare(now.Add(time.Minute)) != nil {
		t.Fatalf("after an error: %+v", p)
	}
	o = prepare(now.Add(time.Hour))
	report(o, &lake.Tidied{Purged: []lake.Purged{{}, {Waits: "a tag"}}})
	if p := table.Lake.Purges; len(p) != 1 || p[0].Number != 8 || !p[0].Next.Equal(now.Add(time.Hour+tidyInterval)) {
		t.Fatalf("a person must help: %+v", p)
	}
	if !table.CancelPurge(8) || table.CancelPurge(8) || len(table.Lake.Purges) > 0 {
		t.Errorf("canceled: %+v", table.Lake.Purges)
	}
	// A new incarnation has not covered the step of the former one.
	m.BeginIncarnation("there", now)
	if o = prepare(now.Add(tidyInterval * 2)); o == nil || o.Step != 2 {
		t.Errorf("a new incarnation: %+v", o)
	}
}

// TestOtherProgram has a program in the place of the committer: none, one of another release, one that
// fails, and one of this release.
func TestOtherProgram(t *testing.T) {
	for _, test := range []struct{ name, script, check, run, hint string }{
		{"none", "", "the program perigee-lake, which publishes tables, is missing", "is missing", "each package of perigee has it"},
		{
			"another release", `[ "$1" = publish ] || { echo perigee-lake 0.0.1, commit abc; exit; }
echo perigee-lake: they differ >&2
exit 3`, "perigee-lake is perigee-lake 0.0.1, commit abc, and this is perigee " + release.Version, "perigee-lake: they differ", "install perigee-lake " + release.Version,
		},
		{"one with a longer version", "echo perigee-lake " + release.Version + ".1", ", and this is perigee", "read its report", "install perigee-lake " + release.Version},
		{"one without a version", "echo usage >&2; exit 2", "cannot read the version of ", "exit status 2: usage", "install perigee-lake " + release.Version},
		{"this release", `[ "$1" = publish ] && grep -q '"version":"` + release.Version + `"' && echo '{"tables":[]}' || echo perigee-lake ` + release.Version + `, commit abc`, "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv("PATH", folder+":/usr/bin:/bin")
			if test.script != "" {
				if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+test.script+"\n"), 0o700); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			for _, step := range []struct {
				name, want string
				err        error
			}{
				{"check", test.check, CheckProgram(t.Context())},
				{"run", test.run, func() error {
					_, err := Run(t.Context(), &lake.Order{Tables: []lake.TableOrder{}})
					return err
				}()},
			} {
				if step.want == "" && step.err != nil || step.want != "" && (step.err == nil || !strings.Contains(step.err.Error(), step.want)) {
					t.Errorf("%s: %v, want …%s", step.name, step.err, step.want)
				}
				if hint := event.HintOf(step.err); event.IsPermanent(step.err) && !strings.HasPrefix(hint, test.hint) {
					t.Errorf("%s: the hint is %q, want %s…", step.name, hint, test.hint)
				}
			}
			if err := CheckProgram(t.Context()); err != nil && !event.IsPermanent(err) {
				t.Errorf("check: %v has no hint", err)
			}
		})
	}
}

// TestNotReady merges published files while a new column is an integer; before the next order, the
// column becomes a float, for which the merged file has no column.
func TestNotReady(t *testing.T) {
	for _, files := range []uint64{4, manifest.ReplacesMin} { // quiet for long, or so many that they are replaced at once
		m := newManifest()
		table := m.Tables[0]
		for i := range files {
			add(m, 1+i, time.Hour)
		}
		o, published := order(t, m, now)
		done(m, o)
		integer := *table.Schemas[0]
		integer.Version, integer.Columns = 2, append(slices.Clone(integer.Columns), manifest.Column{ID: 9, Name: "price", Type: event.Int64})
		table.Schemas, table.NextColumn = append(table.Schemas, &integer), 10
		merged := &manifest.File{Name: manifest.FileName("2026-11-23", 40, 0), Segment: 40, Schema: 2, Day: "2026-11-23", Rows: 160, Sealed: now.Unix(), Open: true}
		merged.Replaces, merged.Changed = Replaced(m, table, table.Files, 160)
		table.Files = []*manifest.File{merged}
		float := integer
		float.Version, float.Columns = 3, slices.Clone(integer.Columns)
		float.Columns[len(float.Columns)-1].Type = event.Float64
		table.Schemas = append(table.Schemas, &float)
		want := strings.ReplaceAll(published, " ", "? ") + "?" // until the merged file has been rewritten
		o, got := order(t, m, now.Add(48*time.Hour))
		if got != want {
			t.Errorf("%d files: order %q, want %q", files, got, want)
		}
		if o != nil {
			done(m, o)
		}
		if got := NeedRewrite(table); len(got) != 1 {
			t.Errorf("%d files: need to be rewritten: %v, want the merged file", files, got)
		}
	}
}

// TestReplacedTwice rewrites a file whose order has failed. The lake has the files that it was to
// replace, or what another engine has made of them.
func TestReplacedTwice(t *testing.T) {
	m := newManifest()
	table := m.Tables[0]
	for i := range uint64(manifest.ReplacesMin) {
		add(m, 1+i, time.Hour)
	}
	o, _ := order(t, m, now)
	var present []string
	for _, f := range o.Tables[0].Files {
		present = append(present, f.Name)
	}
	done(m, o)
	properties := map[string]string{"perigee.step." + m.Incarnations[0].ID: `{"step":1,"begun":"2026-11-29T12:00:00Z"}`}
	rewrite := func(number uint64, rows int64) {
		f := &manifest.File{Name: manifest.FileName("2026-11-23", number, 0), Segment: number, Schema: 1, Day: "2026-11-23", Rows: rows, Sealed: now.Unix(), Open: true}
		f.Replaces, f.Changed = Replaced(m, table, table.Files, rows)
		table.Files = []*manifest.File{f}
	}
	rewrite(40, 160) // a merge
	o, _ = order(t, m, now.Add(time.Hour))
	merged := o.Tables[0].Files[0].Name
	Apply(m, o, &lake.Report{Tables: []lake.TableReport{{Error: "the catalog is away"}}}, now)
	rewrite(41, 159) // a delete
	o, _ = order(t, m, now.Add(2*time.Hour))
	rewritten := o.Tables[0].Files[0].Name
	covered := map[string]string{"perigee.step." + m.Incarnations[0].ID: `{"step":2,"begun":"2026-11-29T12:00:00Z"}`}
	for _, test := range []struct {
		name              string
		state             lake.State
		add, remove, gone int
	}{
		{"the order failed", lake.State{Properties: properties, Files: present}, 1, len(present), 0},
		{"only its answer was lost", lake.State{Properties: covered, Files: []string{merged}}, 1, 1, 0},
		{"another engine has compacted the files", lake.State{Properties: properties, Files: []string{"compacted.parquet"}}, 0, 0, 1},
		{"another engine has compacted the merged file", lake.State{Properties: covered, Files: []string{"compacted.parquet"}}, 0, 0, 1},
	} {
		plan, err := lake.Reconcile(&o.Tables[0], test.state)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if len(plan.Add) != test.add || len(plan.Remove) != test.remove || len(plan.Gone) != test.gone {
			t.Errorf("%s: %d files to add, %d to remove, %d gone; want %d, %d, %d", test.name, len(plan.Add), len(plan.Remove), len(plan.Gone), test.add, test.remove, test.gone)
		}
	}
	// The lake has lost the merged file, which the store has no longer: the files before are still replaced.
	lost := *table.Files[0]
	lost.Step = 0
	table.Files[0] = &lost
	Apply(m, o, &lake.Report{Tables: []lake.TableReport{{Error: "lost", Lost: []string{merged}}}}, now)
	if got := table.Files[0]; len(got.Replaces) != len(present) || !got.Changed {
		t.Errorf("%s replaces %d files, changed %v; want %d, true", rewritten, len(got.Replaces), got.Changed, len(present))
	}
}

// TestSetBack sets the disk of a store back to an earlier state, which then assigns steps and segments
// again that the lake has already.
func TestSetBack(t *testing.T) {
	for _, failed := range []int{0, 1, 3} { // orders since then, before the lake is reached
		m := newManifest()
		m.AssignStep("former") // before the state that the disk was set back to
		former := m.Incarnations[0].ID
		add(m, 1, time.Hour)
		var o *lake.Order
		for i := range 1 + failed {
			o, _ = order(t, m, now.Add(time.Duration(i)*time.Minute))
		}
		name := o.Tables[0].Files[0].Name // before, other rows were published under it
		state := lake.State{Properties: map[string]string{"perigee.step." + former: `{"step":2,"begun":"2026-11-29T12:00:00Z","opening":"former"}`}, Files: []string{name}}
		if plan, err := lake.Reconcile(&o.Tables[0], state); !errors.Is(err, lake.ErrRolledBack) {
			t.Errorf("after %d orders: %+v, %v, want %v", failed, plan, err, lake.ErrRolledBack)
			continue
		}
		if !Apply(m, o, &lake.Report{Tables: []lake.TableReport{{Error: "rolled back", RolledBack: true}}}, now) {
			t.Fatal("no new incarnation begins")
		}
		m.BeginAfterSetBack(now)
		o, _ = order(t, m, now.Add(time.Hour))
		plan, err := lake.Reconcile(&o.Tables[0], state)
		if err != nil || len(plan.Add) != 1 || plan.Add[0].Name == name || !slices.Equal(plan.Remove, []string{name}) {
			t.Errorf("after %d orders, the new incarnation adds %+v and removes %v (%v), want its own file, and %s removed", failed, plan.Add, plan.Remove, err, name)
		}
	}
}
