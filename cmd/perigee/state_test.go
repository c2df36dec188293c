package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/nodedb"
)

// TestStatePage runs the commands of the page about state, and compares their output.
func TestStatePage(t *testing.T) {
	skipWithoutState(t)
	p := openPage(t, "docs/howto/remember-with-state.md")
	p.play(t)
	p.wants(t, `"visit":3`, "│ NULL │     7 │     1 │", `^users("unknown","visits")`, "and sink changelog keeps only the changes from", `{"abandoned":150,"cart":"a"}`)
}

// TestStateExamples runs the examples of scripts with a state, each in two runs, so that the second
// one continues with the state of the first, and compares their rows with those that they show.
func TestStateExamples(t *testing.T) {
	skipWithoutState(t)
	pipelines, err := filepath.Glob("../../examples/state/*/pipeline.yaml")
	if err != nil || len(pipelines) < 6 {
		t.Fatalf("got %d examples (%v), want at least 6", len(pipelines), err)
	}
	for _, pipeline := range pipelines {
		example := filepath.Dir(pipeline)
		t.Run(filepath.Base(example), func(t *testing.T) {
			t.Parallel()
			p := &page{path: example, folder: newPageFolder(t), env: []string{"HTTP=off"}}
			if err := os.CopyFS(p.folder, os.DirFS(example)); err != nil {
				t.Fatal(err)
			}
			events := readFile(t, filepath.Join(example, "events.ndjson"))
			half := bytes.IndexByte(events[len(events)/2:], '\n') + len(events)/2 + 1
			p.put(t, "events.ndjson", string(events[:half]))
			p.step(t, "perigee run pipeline.yaml > rows.ndjson")
			p.put(t, "events.ndjson", string(events))
			p.step(t, "perigee run pipeline.yaml >> rows.ndjson")
			if got, want := readFile(t, filepath.Join(p.folder, "rows.ndjson")), readFile(t, filepath.Join(example, "expected.ndjson")); !bytes.Equal(got, want) {
				t.Errorf("rows: got\n%swant\n%s\nthe commands print\n%s", got, want, p.out.String())
			}
			if letters := p.step(t, "perigee dlq list --config pipeline.yaml"); !strings.HasPrefix(letters, "0 dead letters") {
				t.Errorf("dead letters: got %s, want none", letters)
			}
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func skipWithoutState(t *testing.T) {
	t.Helper()
	if nodedb.Version() == "" {
		t.Skip("a state needs cgo and the build tag lmdb")
	}
}
