package deadletter

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// TestRelease checks that the file's pages do not stay resident, and that their contents
// stay readable.
func TestRelease(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	const letters = 5000
	dead := make([]event.DeadLetter, letters)
	for i := range dead {
		dead[i] = event.DeadLetter{Position: uint64(i), Stage: "script", Error: "no", Original: make([]byte, 1000)}
	}
	replace(t, s, "p", "q", event.Range{Count: letters}, dead...)
	path := filepath.Join(folder, FileName)
	if n := len(list(t, s, Filter{})); n != letters {
		t.Fatalf("%d letters are there", n)
	}
	read := resident(t, path)
	if read < letters*1000 {
		t.Fatalf("%d bytes are resident after all letters were read", read)
	}
	for i := range uint64(releaseInterval) { // one of them at least is the one that releases
		replace(t, s, "p", "q", event.Range{First: letters + i, Count: 1}, event.DeadLetter{Position: letters + i, Stage: "script"})
	}
	if held := resident(t, path); held > read/4 {
		t.Errorf("%d of %d bytes are resident still", held, read)
	}
	if n := len(list(t, s, Filter{})); n != letters+releaseInterval {
		t.Errorf("%d letters are there", n)
	}
}

// resident returns how much of a mapped file counts as memory of this process.
func resident(t *testing.T, path string) (bytes int64) {
	t.Helper()
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	of := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		var kib int64
		switch n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); {
		case n == 1 && of:
			bytes += kib << 10
		case strings.Contains(strings.Fields(line)[0], "-"):
			of = strings.HasSuffix(line, path)
		}
	}
	return bytes
}
