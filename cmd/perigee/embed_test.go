package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine/eventservice"
)

// TestEmbedPage compiles and runs the programs of the page, each in a module of its own that
// has nothing but this repository and what is in the cache of modules.
func TestEmbedPage(t *testing.T) {
	if testing.Short() {
		t.Skip("it links two programs")
	}
	page, err := os.ReadFile("../../docs/howto/embed-an-engine.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(page, -1)
	wants := []string{"{\"number\":1}\n{\"number\":2}\n{\"number\":3}\n", "numbers\n3\n"}
	if len(programs) != len(wants) {
		t.Fatalf("the page has %d programs, want %d", len(programs), len(wants))
	}
	for i, program := range programs {
		if strings.Contains(string(program[1]), "eventservice") && eventservice.Available() != nil {
			continue // the event store needs cgo
		}
		folder := t.TempDir()
		writeModule(t, folder, string(program[1]))
		run := exec.Command("go", "run", "-ldflags=-s -w", ".")
		run.Dir = folder
		// The tags of this test's own build stay, so that the cache has all packages and only the
		// programs are linked. TestInstalledWithoutMakefile builds without tags.
		run.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOPROXY=off", "GOWORK=off")
		var errs strings.Builder
		run.Stderr = &errs
		out, err := run.Output()
		if err != nil || string(out) != wants[i] {
			t.Errorf("program %d: %v, it prints %q, want %q\n%s", i+1, err, out, wants[i], &errs)
		}
	}
}

// writeModule writes a module with one program, which uses this repository as a dependency.
func writeModule(t *testing.T, folder, program string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			text = []byte(strings.Replace(string(text), "module github.com/perigeedb/perigee", "module example.com/embedding", 1) +
				"\nrequire github.com/perigeedb/perigee v0.0.0\n\nreplace github.com/perigeedb/perigee => " + root + "\n")
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
}
