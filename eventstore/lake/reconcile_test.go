package lake

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var begun = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

// incarnation returns an incarnation whose ID is a digit, repeated.
func incarnation(digit, step int) Incarnation {
	return Incarnation{ID: strings.Repeat(fmt.Sprint(digit), 16), Begun: begun.Add(time.Duration(digit) * time.Hour), Step: uint64(step)}
}

// file returns a file of the incarnation with that digit.
func file(number, digit, step int) File {
	name := FileName(fmt.Sprintf("2026-11-23/%010d-0.parquet", number), strings.Repeat(fmt.Sprint(digit), 16))
	return File{Name: name, Path: name, Rows: 1, Step: uint64(step)}
}

func property(digit, step, after int) map[string]string {
	value := fmt.Sprintf(`{"step":%d,"begun":%q`, step, begun.Add(time.Duration(digit)*time.Hour).Format(time.RFC3339))
	if after > 0 {
		value += fmt.Sprintf(`,"after":"%s"`, strings.Repeat(fmt.Sprint(after), 16))
	}
	return map[string]string{PropertyPrefix + strings.Repeat(fmt.Sprint(digit), 16): value + "}"}
}

func TestReconcile(t *testing.T) {
	a, b, c := file(1, 1, 1), file(2, 1, 2), file(3, 1, 3)
	remote, merged, again := c, file(4, 1, 3), file(5, 1, 4)
	remote.Path = ""
	merged.Replaces = []File{a, b}
	again.Replaces = []File{merged}
	const foreign = "00000-0-6f1c.parquet"
	type files = []File
	first, restored := []Incarnation{incarnation(1, 1)}, []Incarnation{incarnation(1, 1), incarnation(3, 3)}
	for name, test := range map[string]struct {
		incarnations []Incarnation
		step         int
		files        files
		properties   map[string]string
		has          []string
		want         Plan
		err          error
	}{
		"a new table":                                    {first, 1, files{a}, nil, nil, Plan{Add: files{a}, Properties: property(1, 1, 0)}, nil},
		"a merge of files that are gone":                 {first, 3, files{merged}, property(1, 2, 0), []string{b.Name, foreign}, Plan{Gone: []string{merged.Name}, Properties: property(1, 3, 0)}, nil},
		"a merge whose own are replaced":                 {first, 4, files{again}, property(1, 3, 0), []string{merged.Name}, Plan{Add: files{again}, Remove: []string{merged.Name}, Properties: property(1, 4, 0)}, nil},
		"a merge of one that was not added":              {first, 4, files{again}, property(1, 2, 0), []string{a.Name, b.Name}, Plan{Add: files{again}, Remove: []string{a.Name, b.Name}, Properties: property(1, 4, 0)}, nil},
		"a merge of one that could not be":               {first, 4, files{again}, property(1, 2, 0), []string{a.Name, foreign}, Plan{Gone: []string{again.Name}, Properties: property(1, 4, 0)}, nil},
		"a merge of one that is gone":                    {first, 4, files{again}, property(1, 3, 0), []string{foreign}, Plan{Gone: []string{again.Name}, Properties: property(1, 4, 0)}, nil},
		"a merge of files that were not sent":            {first, 3, files{merged}, property(1, 0, 0), nil, Plan{Add: files{merged}, Properties: property(1, 3, 0)}, nil},
		"a merge":                                        {first, 3, files{c}, property(1, 2, 0), []string{a.Name, b.Name, foreign}, Plan{Add: files{c}, Remove: []string{a.Name, b.Name}, Properties: property(1, 3, 0)}, nil},
		"an answer that was lost":                        {first, 3, files{c}, property(1, 3, 0), []string{c.Name}, Plan{}, nil},
		"a lost answer, and then another engine rewrote": {first, 3, files{c}, property(1, 3, 0), []string{foreign}, Plan{Gone: []string{c.Name}}, nil},
		"rewritten before":                               {first, 4, files{a, c}, property(1, 3, 0), []string{a.Name, foreign}, Plan{Gone: []string{c.Name}, Properties: property(1, 4, 0)}, nil},
		"nothing wanted":                                 {first, 4, nil, property(1, 3, 0), []string{a.Name, foreign}, Plan{Remove: []string{a.Name}, Properties: property(1, 4, 0)}, nil},
		"a table that was rolled back":                   {first, 3, files{c}, property(1, 3, 0), []string{a.Name, c.Name}, Plan{Remove: []string{a.Name}, Properties: property(1, 3, 0)}, nil},
		"a folder that was set back":                     {first, 2, files{a}, property(1, 3, 0), []string{c.Name}, Plan{}, ErrRolledBack},
		"files of another store":                         {first, 1, files{a}, property(2, 7, 0), []string{file(1, 2, 7).Name}, Plan{Add: files{a}, Properties: property(1, 1, 0)}, nil},
		"only the lake has it":                           {first, 4, files{remote}, property(1, 3, 0), []string{c.Name}, Plan{Properties: property(1, 4, 0)}, nil},
		"nobody has it":                                  {first, 3, files{a, remote}, property(1, 2, 0), []string{b.Name}, Plan{Lost: []string{c.Name}}, nil},
		"restored: as it was":                            {restored, 3, files{a, b}, property(1, 2, 0), []string{a.Name, b.Name}, Plan{Properties: property(3, 3, 1)}, nil},
		"restored: the earlier incarnation went on": {restored, 3, files{a, b}, property(1, 5, 0), []string{c.Name},
			Plan{Add: files{a, b}, Remove: []string{c.Name}, Properties: property(3, 3, 1)}, nil},
		"restored: gone before":            {restored, 3, files{a, b}, property(1, 2, 0), []string{a.Name, foreign}, Plan{Gone: []string{b.Name}, Properties: property(3, 3, 1)}, nil},
		"restored: who removed it?":        {restored, 3, files{a, b}, property(1, 5, 0), []string{a.Name, foreign}, Plan{}, ErrRewritten},
		"restored: all there, and foreign": {restored, 3, files{a, b}, property(1, 5, 0), []string{a.Name, b.Name, foreign}, Plan{Properties: property(3, 3, 1)}, nil},
		"a younger copy publishes":         {first, 3, files{a}, property(3, 3, 1), nil, Plan{}, ErrSuperseded},
		"restored once more":               {restored, 3, files{a}, property(2, 9, 1), []string{a.Name, file(8, 2, 9).Name}, Plan{Remove: []string{file(8, 2, 9).Name}, Properties: property(3, 3, 1)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			order := &TableOrder{Incarnations: test.incarnations, Step: uint64(test.step), Files: test.files}
			got, err := Reconcile(order, State{Properties: test.properties, Files: test.has})
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(valuesOf(test.want.Properties), valuesOf(got.Properties)); diff != "" {
				t.Errorf("properties (-want +got):\n%s", diff)
			}
			got.Properties, test.want.Properties = nil, nil
			for _, name := range test.has {
				if name == foreign || strings.HasSuffix(name, "0000000001-0-2222222222222222.parquet") {
					test.want.Foreign++
				}
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// valuesOf returns what properties record.
func valuesOf(properties map[string]string) map[string]record {
	records, err := readRecords(properties)
	if err != nil {
		panic(err)
	}
	return records
}

func TestReconcileRefusesProperties(t *testing.T) {
	order := &TableOrder{Incarnations: []Incarnation{incarnation(1, 1)}, Step: 1}
	_, err := Reconcile(order, State{Properties: map[string]string{PropertyPrefix + "x": "7 steps"}})
	if err == nil || !strings.Contains(err.Error(), `perigee.step.x is "7 steps"`) {
		t.Errorf("got %v", err)
	}
}

// TestReconcileKeepsRows publishes from a store that seals, merges and deletes files, into a
// table whose commits fail or whose answers are lost, which another engine compacts, and which
// two committers serve at once. After each commit the table must have exactly the rows that
// the store had at the covered step, besides those that another engine has rewritten.
func TestReconcileKeepsRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := map[string][]int{} // of each file, ours or foreign
		table := State{Properties: map[string]string{}}
		store := TableOrder{Incarnations: []Incarnation{incarnation(1, 1)}}
		wanted := map[uint64][]int{} // by step
		next, number := 0, 0
		var held []*TableOrder // orders that a second committer still carries out
		reported := uint64(0)
		excused := map[int]bool{} // rows that another engine has rewritten, and those in one file with them
		add := func(values []int, replaces ...File) {
			number++
			f := file(number, 1, 0)
			f.Replaces = replaces
			rows[f.Name] = values
			store.Files = append(slices.Clone(store.Files), f)
		}
		excuse := func(f File) {
			for _, row := range rows[f.Name] {
				excused[row] = true
			}
		}
		commit := func(o *TableOrder) {
			p, err := Reconcile(o, table)
			if errors.Is(err, ErrRolledBack) && o.Step < store.Step {
				return // a committer that is late
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range o.Files {
				if slices.Contains(p.Gone, f.Name) {
					excuse(f)
					f.each(excuse)
				}
			}
			if p.Properties == nil || rapid.IntRange(0, 3).Draw(t, "the commit fails") == 0 {
				return
			}
			table.Files = slices.DeleteFunc(slices.Clone(table.Files), func(name string) bool { return slices.Contains(p.Remove, name) })
			for _, f := range p.Add {
				table.Files = append(table.Files, f.Name)
			}
			table.Properties = maps.Clone(table.Properties)
			maps.Copy(table.Properties, p.Properties)
			var got []int
			for _, name := range table.Files {
				got = append(got, rows[name]...)
			}
			slices.Sort(got)
			if len(slices.Compact(slices.Clone(got))) < len(got) {
				t.Fatalf("step %d: the table has rows twice: %v", o.Step, got)
			}
			isExcused := func(row int) bool { return excused[row] }
			want, got := slices.DeleteFunc(slices.Clone(wanted[o.Step]), isExcused), slices.DeleteFunc(got, isExcused)
			slices.Sort(want)
			if !slices.Equal(want, got) {
				t.Fatalf("step %d: the table has rows %v, want %v", o.Step, got, want)
			}
			if rapid.Bool().Draw(t, "the store hears of it") {
				reported = max(reported, o.Step)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"seal": func(*rapid.T) {
				next++
				add([]int{next})
			},
			"merge or delete": func(t *rapid.T) {
				if len(store.Files) < 2 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(store.Files)-2).Draw(t, "first file")
				of := store.Files[i : i+rapid.IntRange(1, 2).Draw(t, "files")]
				isNew := func(f File) bool { return f.Step == 0 }
				isSent := func(f File) bool { return f.Step > 0 && f.Step <= reported }
				if len(of) > 1 && (isNew(of[0]) != isNew(of[1]) || isSent(of[0]) != isSent(of[1])) || len(of) > 1 && !isNew(of[0]) && !isSent(of[0]) {
					t.Skip() // a store does not merge such files
				}
				var values []int
				var replaces []File
				for _, f := range of {
					values = append(values, rows[f.Name]...)
					if isNew(f) {
						replaces = append(replaces, f.Replaces...)
					} else {
						replaces = append(replaces, f)
					}
				}
				store.Files = slices.Delete(slices.Clone(store.Files), i, i+len(of))
				add(values[rapid.IntRange(0, min(1, len(values))).Draw(t, "deleted rows"):], replaces...)
			},
			"order": func(t *rapid.T) {
				store.Step++
				for i := range store.Files {
					if store.Files[i].Step == 0 {
						store.Files[i].Step = store.Step
					}
				}
				for _, f := range store.Files {
					wanted[store.Step] = append(wanted[store.Step], rows[f.Name]...)
				}
				o := store
				o.Files = slices.Clone(store.Files)
				held = append(held, &o)
			},
			"commit": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				commit(held[rapid.IntRange(max(0, len(held)-2), len(held)-1).Draw(t, "order")])
			},
			"compact": func(t *rapid.T) {
				if len(table.Files) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(table.Files)-1).Draw(t, "file")
				number++
				name := fmt.Sprintf("foreign-%d.parquet", number)
				rows[name] = rows[table.Files[i]]
				for _, row := range rows[name] {
					excused[row] = true
				}
				table.Files = append(slices.Delete(slices.Clone(table.Files), i, i+1), name)
			},
		})
	})
}

// TestReconcileRefuses has orders that differ in one thing from one that is carried out.
func TestReconcileRefuses(t *testing.T) {
	a := file(1, 1, 1)
	order := TableOrder{ID: 7, Others: []Other{{8, "", nil}, {9, "here", []string{"here"}}, {10, "elsewhere", nil}, {12, "", []string{"there", "here"}}}, Incarnations: []Incarnation{incarnation(2, 1)}, Openings: []Opening{{"monday", 1}, {"tuesday", 3}}, Step: 3, Files: []File{a}}
	record := func(text string) map[string]string {
		return map[string]string{PropertyPrefix + order.Incarnations[0].ID: `{"begun":"2026-11-29T02:00:00Z",` + text + "}"}
	}
	for name, test := range map[string]struct {
		properties map[string]string
		look       bool
		want       error
	}{
		"the step before":                      {record(`"step":2,"table":7,"opening":"monday"`), false, nil},
		"the same step":                        {record(`"step":3,"table":7,"opening":"tuesday"`), false, nil},
		"a step of an earlier version":         {record(`"step":2`), false, nil},
		"a step that another opening assigned": {record(`"step":2,"opening":"sunday"`), false, ErrRolledBack},
		"the same step of another opening":     {record(`"step":3,"opening":"monday"`), false, ErrRolledBack},
		"a later step":                         {record(`"step":4,"opening":"tuesday"`), false, ErrRolledBack},
		"a later step, and it only looks":      {record(`"step":4,"opening":"wednesday"`), true, nil},
		"another table":                        {record(`"step":2,"table":8`), false, ErrOtherTable},
		"another table that is known here":     {record(`"step":2,"table":9`), false, ErrOtherTable},
		"another table that has moved":         {record(`"step":2,"table":10`), false, nil},
		"another table that left it":           {record(`"step":2,"table":12`), false, nil},
		"a table that was dropped":             {record(`"step":4,"table":11,"opening":"monday"`), false, nil},
		"a copy with a clock that is behind":   {property(1, 3, 2), false, ErrSuperseded},
	} {
		o := order
		o.Look = test.look
		if _, err := Reconcile(&o, State{UUID: "here", Properties: test.properties}); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

// TestReconcileDropped publishes where a table was that the store has dropped. Its rows must stay.
func TestReconcileDropped(t *testing.T) {
	first, second := incarnation(1, 1), incarnation(2, 3)
	record := func(table int) string {
		return fmt.Sprintf(`{"step":1,"begun":"2026-11-29T01:00:00Z","table":%d}`, table)
	}
	old := file(1, 1, 1)
	for name, test := range map[string]struct {
		tables [2]int // those that published in each incarnation; 0 for none
		has    []string
		want   error
	}{
		"a dropped one":                                 {[2]int{0, 11}, []string{old.Name}, ErrDropped},
		"a dropped one, before a restore":               {[2]int{11, 0}, []string{old.Name}, ErrDropped},
		"a dropped one, without files":                  {[2]int{0, 11}, []string{"foreign.parquet"}, nil},
		"a dropped one, before this one":                {[2]int{11, 7}, []string{old.Name}, nil},
		"another one that has moved, and a dropped one": {[2]int{11, 8}, []string{old.Name}, nil},
		"none": {[2]int{0, 0}, []string{old.Name}, nil},
	} {
		properties := map[string]string{}
		for i, table := range test.tables {
			if table > 0 {
				properties[PropertyPrefix+[]Incarnation{first, second}[i].ID] = record(table)
			}
		}
		o := &TableOrder{ID: 7, Tables: []uint32{7, 8}, Incarnations: []Incarnation{first, second}, Step: 4, Files: []File{file(9, 2, 4)}}
		if _, err := Reconcile(o, State{UUID: "here", Properties: properties, Files: test.has}); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

// TestReconcileReturning has an order of a table whose place has data of another one that must come back.
func TestReconcileReturning(t *testing.T) {
	o := &TableOrder{ID: 7, Returning: []string{"/lake/a/data/", "/lake/b/data/"}, Incarnations: []Incarnation{incarnation(2, 1)}, Step: 3, Files: []File{file(1, 1, 1)}}
	for location, want := range map[string]error{"file:///lake/b": ErrOtherTable, "/lake/c": nil} {
		if _, err := Reconcile(o, State{Location: location}); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", location, err, want)
		}
	}
}

// TestReconcileTakesOver publishes a table where another one of the store was before: the steps of that
// one say nothing of these files.
func TestReconcileTakesOver(t *testing.T) {
	current := incarnation(2, 1)
	o := &TableOrder{ID: 7, Incarnations: []Incarnation{current}, Step: 3, Files: []File{file(1, 1, 1)}}
	plan, err := Reconcile(o, State{Properties: map[string]string{PropertyPrefix + current.ID: `{"step":4,"table":8,"begun":"2026-11-29T02:00:00Z"}`}})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Add) != 1 || len(plan.Gone) > 0 {
		t.Errorf("got %d files to add and %q gone, want 1 and none", len(plan.Add), plan.Gone)
	}
}
