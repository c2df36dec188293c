package scripttest

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// A file in testdata holds cases. A case is up to four sections:
//
//	-- NAME.lua --   the script
//	-- NAME.in --    one event a line; one event {} when the section is missing
//	-- NAME.out --   INDEX DOCUMENT a line, INDEX being the event it came from;
//	                 without it and without dead, every event leaves as it came
//	-- NAME.dead --  INDEX STAGE: PART | PART a line; the error has each part
//
//go:embed testdata/*.txtar testdata/modules/*.txtar
var testdata embed.FS

type testCase struct {
	name, script string
	in, out      []string
	dead         []string
}

func testCases(t *testing.T, lang script.Language, has Features) {
	for _, folder := range []string{"testdata", "testdata/modules"} {
		files, err := testdata.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if file.IsDir() || file.Name() == "mixed.txtar" && !has.MixedOrder {
				continue
			}
			topic := strings.TrimSuffix(file.Name(), ".txtar")
			t.Run(topic, func(t *testing.T) {
				for _, c := range readCases(t, path.Join(folder, file.Name())) {
					t.Run(c.name, func(t *testing.T) { c.run(t, lang) })
				}
			})
		}
	}
}

func readCases(t *testing.T, file string) []testCase {
	data, err := testdata.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []testCase
	for _, section := range txtar.Parse(data).Files {
		name, kind := strings.TrimSuffix(section.Name, path.Ext(section.Name)), path.Ext(section.Name)
		if kind == ".lua" {
			cases = append(cases, testCase{name: name, script: string(section.Data)})
			continue
		}
		if len(cases) == 0 || cases[len(cases)-1].name != name {
			t.Fatalf("%s: section %q follows no script of that name", file, section.Name)
		}
		c := &cases[len(cases)-1]
		switch kind {
		case ".in":
			c.in = lines(section.Data)
		case ".out":
			c.out = lines(section.Data)
		case ".dead":
			c.dead = lines(section.Data)
		default:
			t.Fatalf("%s: section %q is of no known kind", file, section.Name)
		}
	}
	for i := range cases {
		cases[i].setDefaults()
	}
	return cases
}

// setDefaults fills in what a case may leave out.
func (c *testCase) setDefaults() {
	if c.in == nil {
		c.in = []string{"{}"}
	}
	if c.out != nil || c.dead != nil {
		return
	}
	for i, doc := range c.in {
		c.out = append(c.out, fmt.Sprintf("%d %s", i, doc))
	}
}

// lines cuts a section. An empty line parts the cases and is no event.
func lines(data []byte) []string {
	cut := []string{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			cut = append(cut, line)
		}
	}
	return cut
}

func (c *testCase) run(t *testing.T, lang script.Language) {
	// No case is about time, and machines are slow at times.
	limits := script.Limits{EventTime: 20 * time.Second, BatchTime: time.Minute}
	s := load(t, lang, c.script, withModules(limits))
	res := run(t, s, c.in...)
	if diff := cmp.Diff(strings.Join(c.out, "\n"), strings.Join(outLines(&res.Outputs[0]), "\n")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	c.checkDead(t, res.Dead)
}

func outLines(out *event.Output) []string {
	var got []string
	for i := range out.Len() {
		got = append(got, fmt.Sprintf("%d %s", out.From[i], out.Doc(i)))
	}
	return got
}

func (c *testCase) checkDead(t *testing.T, dead []event.DeadLetter) {
	for i := range max(len(dead), len(c.dead)) {
		if i >= len(dead) {
			t.Errorf("missing dead letter: %s", c.dead[i])
			continue
		}
		got := fmt.Sprintf("%d %s: %s", dead[i].Position-firstPosition, dead[i].Stage, dead[i].Error)
		if i >= len(c.dead) {
			t.Errorf("unexpected dead letter: %s\n%s", got, dead[i].Traceback)
		} else if !matches(got, c.dead[i]) {
			t.Errorf("dead letter\n got: %s\nwant: %s", got, c.dead[i])
		}
	}
}

// matches reports whether got begins with the event and stage of want and contains all
// its parts.
func matches(got, want string) bool {
	head, parts, _ := strings.Cut(want, ": ")
	rest, found := strings.CutPrefix(got, head+": ")
	for part := range strings.SplitSeq(parts, " | ") {
		found = found && strings.Contains(rest, strings.TrimSpace(part))
	}
	return found
}
