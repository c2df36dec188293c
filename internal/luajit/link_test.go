//go:build cgo && luajit && !asan

package luajit

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewArchiveIsLinked changes the identity of LuaJIT's archive, as a changed patch does, and
// checks that the compiled package changes, so that programs are linked again. The go command
// itself does not look at archives. The unchanged package comes from the cache, with the tags of
// tools/go.sh, so that only the changed one is compiled.
func TestNewArchiveIsLinked(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package")
	}
	header, err := filepath.Abs("luajit_build.h")
	if err != nil {
		t.Fatal(err)
	}
	present, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(text string) string {
		dir := t.TempDir()
		changed, overlay := filepath.Join(dir, "changed.h"), filepath.Join(dir, "overlay.json")
		replaced, _ := json.Marshal(map[string]any{"Replace": map[string]string{header: changed}})
		for name, text := range map[string]string{changed: text, overlay: string(replaced)} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		command := exec.Command("go", "list", "-tags=luajit,lmdb", "-overlay="+overlay, "-export", "-f", "{{.BuildID}}", ".")
		command.Stderr = os.Stderr
		id, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, made, _ := strings.Cut(string(id), "/") // the content ID follows the action ID
		return made
	}
	first, again, other := compiled(string(present)), compiled(string(present)), compiled("#define LUAJIT_BUILD \"another\"\n")
	if first == "" || first != again || first == other {
		t.Errorf("the package is %q, %q with the same archive and %q with another", first, again, other)
	}
}
