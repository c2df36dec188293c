package leaktest

import (
	"os"
	"path/filepath"
	"testing"
)

// A counter counts the errors of a test instead of failing it.
type counter struct {
	testing.TB
	errors int
}

func (c *counter) Helper()               {}
func (c *counter) Errorf(string, ...any) { c.errors++ }

func TestClosed(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("the system does not list open files: ", err)
	}
	folder := t.TempDir()
	make := func(name string) *os.File {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	make("before")
	for name, test := range map[string]struct {
		f    func()
		want int
	}{
		"nothing":     {func() {}, 0},
		"closed":      {func() { make("a").Close() }, 0},
		"open":        {func() { make("b") }, 1},
		"open again":  {func() { make("before") }, 1},
		"of two, one": {func() { make("c").Close(); make("d") }, 1},
		"somewhere else": {func() {
			f, err := os.Create(filepath.Join(t.TempDir(), "x"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}, 0},
	} {
		c := &counter{TB: t}
		Closed(c, folder, test.f)
		if c.errors != test.want {
			t.Errorf("%s: %d are reported, want %d", name, c.errors, test.want)
		}
	}
}
