//go:build cgo && (linux || darwin || freebsd)

package goplugin

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// folderOf makes a folder of files, given as name and content.
func folderOf(t *testing.T, files ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(folder, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// wantError checks that err says each of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one of %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q:\n%v", part, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(folderOf(t, "text.so", "no plugin"), "text.so")
	for _, c := range []struct {
		path, symbol string
		parts        []string
	}{
		{"missing.so", "", []string{"read plugin: open missing.so", "no such file"}},
		{text, "", []string{text + " is not a Go plugin"}},
		{self, "", []string{self + " is not a Go plugin: it was built with -buildmode=exe", "perigee plugin build"}},
		{shapesPath(t), "", []string{"exports no function Main", "funcname"}},
		{shapesPath(t), "outer", []string{"exports no function outer"}},
		{shapesPath(t), "Other", []string{"Other is of type func(int) string", "want func(map[string]any) (any, error), func([][]byte, "}},
		{shapesPath(t), "Variable", []string{"Variable is of type *int"}},
	} {
		_, err := Open(c.path, c.symbol)
		wantError(t, err, c.parts...)
	}
}

// TestAnotherPatchRelease gives a plugin the name of another release, as Go would
// open it without a word.
func TestAnotherPatchRelease(t *testing.T) {
	content, err := os.ReadFile(shapesPath(t))
	if err != nil {
		t.Fatal(err)
	}
	name := []byte(release())
	other := bytes.Clone(name)
	other[len(other)-1] ^= 1
	path := filepath.Join(folderOf(t, "old.so", string(bytes.ReplaceAll(content, name, other))), "old.so")
	for _, err := range []error{Match(path), second(Open(path, "Shapes"))} {
		var mismatch *Mismatch
		if !errors.As(err, &mismatch) {
			t.Fatalf("error is %v, want a mismatch", err)
		}
		if diff := cmp.Diff([]Difference{{"Go", string(other), string(name)}}, mismatch.Differences); diff != "" {
			t.Error(diff)
		}
	}
}

func second[T any](_ T, err error) error { return err }

const tiny = "package main\n\nfunc Main(row map[string]any) (any, error) { return row, nil }\n"

// buildPlain builds as one would without Build.
func buildPlain(t *testing.T, folder string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plain.so")
	command := exec.Command(goPath(t), append(append([]string{"build", "-buildmode=plugin", "-buildvcs=false", "-o", path}, flags...), "main.go")...)
	command.Dir, command.Env = folder, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1")
	if _, err := output(command); err != nil {
		t.Fatal(err)
	}
	return path
}

func goPath(t *testing.T) string {
	t.Helper()
	found, err := findTool(t.Context(), release(), candidates(release()))
	if err != nil {
		t.Fatal(err)
	}
	return found.path
}

func TestOtherFlags(t *testing.T) {
	folder := folderOf(t, "main.go", tiny)
	ours, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-race", "-trimpath"} {
		value, want := "true", Difference{"build setting " + flag, "true", ""}
		if relevant(ours, flag) == "true" {
			value, want = "false", Difference{"build setting " + flag, "", "true"}
		}
		flags := flags(ours)
		err := Match(buildPlain(t, folder, append(flags, flag+"="+value)...))
		var mismatch *Mismatch
		if !errors.As(err, &mismatch) {
			t.Fatalf("error is %v, want a mismatch", err)
		}
		if diff := cmp.Diff([]Difference{want}, mismatch.Differences); diff != "" {
			t.Error(diff)
		}
	}
}

// TestReload builds and opens a changed plugin under the same path.
func TestReload(t *testing.T) {
	const text = "package main\n\nfunc Main(map[string]any) (any, error) { return VERSION, nil }\n\nfunc main() {}\n"
	folder := folderOf(t, "gen.go", "//go:build ignore\n\npackage main\n\nfunc main() {}\n")
	path := filepath.Join(folder, "out.so")
	var opened []*Plugin
	before := Loaded()
	for _, version := range []string{"1", "2", "1"} {
		if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(strings.ReplaceAll(text, "VERSION", version)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Build(t.Context(), folder, path); err != nil {
			t.Fatal(err)
		}
		p, err := Open(path, "")
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, p)
	}
	for i, want := range []int{1, 2, 1} {
		if got, err := opened[i].Row(nil); got != want || err != nil {
			t.Errorf("version %d says %v, %v", want, got, err)
		}
	}
	if opened[0].String() != opened[2].String() || opened[0].String() == opened[1].String() {
		t.Errorf("versions are called %v", opened)
	}
	if got := Loaded() - before; got != 2 {
		t.Errorf("%d plugins loaded, want 2", got)
	}
}

func TestPanicWhileLoading(t *testing.T) {
	folder := folderOf(t, "main.go", "package main\n\nvar Main = func() string { panic(\"at once\") }()\n\nfunc main() {}\n")
	path := filepath.Join(folder, "out.so")
	if err := Build(t.Context(), folder, path); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path, "")
	wantError(t, err, path, "panic while its packages were initialized: at once")
	_, err = Open(path, "")
	wantError(t, err, path, "restart")
}

func TestBuildRefuses(t *testing.T) {
	err := Build(t.Context(), folderOf(t), "unused.so")
	wantError(t, err, "has no Go files", "package main")
	err = Build(t.Context(), folderOf(t, "main_test.go", "package main\n"), "unused.so")
	wantError(t, err, "has no Go files", "package main")
	err = Build(t.Context(), folderOf(t, "lib.go", "package lib\n"), "unused.so")
	wantError(t, err, "is package lib", "package main")
	err = Build(t.Context(), "no-such-folder", "unused.so")
	wantError(t, err, "no-such-folder")
	err = Build(t.Context(), folderOf(t, "main.go", "package main\n\nfunc Main() int { return x }\n"), filepath.Join(t.TempDir(), "out.so"))
	wantError(t, err, "build plugin", "main.go:3:26: undefined: x")
	err = Build(t.Context(), folderOf(t, "main.go", tiny, "go.mod", "module plugin\n\ngo 1.24\n", "go.sum/file", "no file of sums"), filepath.Join(t.TempDir(), "out.so"))
	wantError(t, err, "read ", "go.sum: is a directory")
	t.Setenv("CC", "no-such-compiler")
	err = Build(t.Context(), folderOf(t, "main.go", tiny), filepath.Join(t.TempDir(), "out.so"))
	wantError(t, err, "no-such-compiler", "install gcc or clang, or name one in CC")
}

func TestFindTool(t *testing.T) {
	_, err := findTool(t.Context(), "go1.26.8", nil)
	wantError(t, err, "must be built with go1.26.8; there is no go command on the path", "https://go.dev/dl", "GOROOT")
	_, err = findTool(t.Context(), "go1.26.8", []string{filepath.Join(t.TempDir(), "go")})
	wantError(t, err, "there is no go command on the path")

	const script = "#!/bin/sh\nif [ \"$GOTOOLCHAIN\" = local ]; then echo go1.25.1; else echo offline >&2; exit 1; fi\n"
	old := filepath.Join(folderOf(t, "go", script), "go")
	if err := os.Chmod(old, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = findTool(t.Context(), "go1.26.8", []string{old})
	wantError(t, err, old+" is go1.25.1", old+" could not fetch go1.26.8", "offline")

	ours := goPath(t)
	found, err := findTool(t.Context(), release(), []string{old, ours})
	if err != nil || found != (tool{ours, "local"}) {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestModules makes a binary that has modules, which test binaries do not know of
// themselves, and lets it open and build a plugin that asks for another version.
func TestModules(t *testing.T) {
	if testing.Short() {
		t.Skip("links a binary")
	}
	host := filepath.Join(t.TempDir(), "host")
	link := exec.Command(goPath(t), "build", "-buildvcs=false", "-o", host, "./testdata/host")
	if _, err := output(link); err != nil {
		t.Fatal(err)
	}
	folder := folderOf(t)
	if err := os.CopyFS(folder, os.DirFS("testdata/pinned")); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
	before := textOf(t, filepath.Join(folder, "go.mod"))

	_, err = output(exec.Command(host, "open", buildPlain(t, folder)))
	wantError(t, err, "does not match this binary", "module github.com/google/go-cmp: the plugin has ./cmp (devel), this binary v0.7.0 h1:", "perigee plugin build DIR")

	path := filepath.Join(folder, "out.so")
	if _, err := output(exec.Command(host, "build", folder, path)); err != nil {
		t.Fatal(err)
	}
	if said, err := output(exec.Command(host, "open", path)); err != nil || !strings.Contains(said, "the real one") {
		t.Errorf("the plugin says %q, %v", said, err)
	}
	if after := textOf(t, filepath.Join(folder, "go.mod")); after != before {
		t.Errorf("go.mod was changed to\n%s", after)
	}
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestReleaseIsPlain(t *testing.T) {
	if !strings.HasPrefix(runtime.Version(), release()) || strings.Contains(release(), " ") {
		t.Errorf("release is %q", release())
	}
}
