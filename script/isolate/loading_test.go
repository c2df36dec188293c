//go:build linux && cgo

package isolate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/goplugin"
	"github.com/perigeedb/perigee/script/lua"
)

// attacker builds the plugin in testdata/attacker, once for all tests.
var attacker = sync.OnceValues(func() (string, error) { return buildPlugin("attacker") })

// A finding is a report of an attacker.
type finding struct {
	Attempts int
	Leaks    []string
}

// secret is the text that no attacker may find.
const secret = "perigee-test-secret"

// hideSecrets puts secrets where an attacker would look: the environment, a descriptor that child
// processes inherit, and files. It returns the folder of the files.
func hideSecrets(t *testing.T) (folder string) {
	t.Helper()
	t.Setenv("PERIGEE_TEST_SECRET", secret)
	t.Setenv("TZ", "UTC")
	folder = t.TempDir()
	for _, name := range []string{"secret", "secret.yaml", "secret.lua", "lib/secret.txt"} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inherited, err := unix.Open(filepath.Join(folder, "secret"), unix.O_RDWR, 0) // as a C library opens files
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(inherited) })
	return folder
}

// TestLoadingLeaks loads code that searches its process, the machine and the engine, while it is
// loaded and while it runs: a Go plugin in its init, and a Lua script in its top-level text. No
// search may find an environment variable, a descriptor, a file or a byte of the engine's memory.
func TestLoadingLeaks(t *testing.T) {
	path, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	folder := hideSecrets(t)
	attempts, leaks := 0, 0
	count := func(who string, found finding) {
		if found.Attempts == 0 {
			t.Errorf("%s tried nothing", who)
		}
		attempts += found.Attempts
		leaks += len(found.Leaks)
		for _, leak := range found.Leaks {
			t.Errorf("%s found %s", who, leak)
		}
	}
	patient := script.Options{Limits: script.Limits{EventTime: 20 * time.Second, BatchTime: 40 * time.Second}} // a search is no matter of time
	plugin := load(t, goplugin.Language(), script.Code{Name: path, Files: script.Folder(folder)}, patient)
	report := func(who string, s script.Script) {
		t.Helper()
		var found struct{ Loading, Running finding }
		res := runDocs(t, s, `{}`)
		if err := json.Unmarshal([]byte(outLines(res)), &found); err != nil {
			t.Fatalf("%s: %v, dead letters %v", who, err, res.Dead)
		}
		count(who+" that loads", found.Loading)
		count(who+" that runs", found.Running)
	}
	report("a plugin", plugin)
	text, err := os.ReadFile("testdata/attacker/attacker.lua")
	if err != nil {
		t.Fatal(err)
	}
	luaScript := load(t, lua.Language(), script.Code{Name: "attacker.lua", Text: text, Files: script.Folder(folder)}, patient)
	report("a script", luaScript)
	fmt.Printf("figure isolate_attempts %d\nfigure isolate_leaks %d\n", attempts, leaks)
}
