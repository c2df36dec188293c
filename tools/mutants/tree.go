package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A tree is a copy of the repository in which faults are put.
type tree struct {
	folder    string
	importers map[string][]string // packages with tests that import a package, by folder
	hasTests  map[string]bool
	users     int
	timeout   time.Duration
}

// A verdict says what the tests made of a fault.
type verdict struct {
	killedBy string // the package whose tests failed, and how; empty: nobody noticed
	invalid  string // the fault is not counted: it does not compile, changes nothing, or the tests fail without it
	took     time.Duration
}

func trackedFiles(top string) ([]string, error) {
	out, err := exec.Command("git", "-C", top, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("listing files: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// copyTree copies the tracked files of top. Build results are shared.
func copyTree(ctx context.Context, top string) (*tree, error) {
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	files, err := trackedFiles(top)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		if err := copyFile(filepath.Join(top, path), filepath.Join(folder, path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	build, err := filepath.Abs(filepath.Join(top, ".build"))
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(build, filepath.Join(folder, ".build")); err != nil {
		return nil, err
	}
	t := &tree{folder: folder}
	return t, t.readImports(ctx)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return cmp.Or(err, out.Close())
}

// readImports finds who imports what. The nearest users come first: packages below the
// same folder, then those that import least, whose tests are quick and to the point.
func (t *tree) readImports(ctx context.Context) error {
	cmd := t.goTool(ctx, "list", "-json=Dir,ImportPath,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles,Module,Deps", "./...")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	type listed struct {
		Dir, ImportPath                    string
		Imports, TestImports, XTestImports []string
		TestGoFiles, XTestGoFiles, Deps    []string
		Module                             struct{ Path string }
	}
	t.importers, t.hasTests = map[string][]string{}, map[string]bool{}
	deps := map[string]int{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		folder := t.relative(p.Dir)
		t.hasTests[folder] = len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
		deps[folder] = len(p.Deps)
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if of, ok := strings.CutPrefix(imported, p.Module.Path+"/"); ok && of != folder && !slices.Contains(t.importers[of], folder) {
				t.importers[of] = append(t.importers[of], folder)
			}
		}
	}
	for of, importers := range t.importers {
		near := func(folder string) int {
			if strings.HasPrefix(folder, of+"/") || strings.HasPrefix(folder, filepath.Dir(of)+"/") && filepath.Dir(of) != "internal" {
				return 0
			}
			return 1
		}
		slices.SortFunc(importers, func(a, b string) int { return cmp.Or(near(a)-near(b), deps[a]-deps[b], cmp.Compare(a, b)) })
	}
	return nil
}

func (t *tree) relative(path string) string {
	if resolved, err := filepath.EvalSymlinks(t.folder); err == nil {
		if rel, err := filepath.Rel(resolved, path); err == nil && !strings.HasPrefix(rel, "..") {
			return rel
		}
	}
	rel, _ := filepath.Rel(t.folder, path)
	return rel
}

func (t *tree) goTool(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "tools/go.sh", args...)
	cmd.Dir = t.folder
	// A fault may leave children behind: the whole group ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// packagesFor are the packages to test for a fault in folder: its own, then its nearest
// users that have tests. A package without tests, such as a contract, passes on its users'.
func (t *tree) packagesFor(folder string) []string {
	seen, chosen := map[string]bool{}, []string{}
	if t.hasTests[folder] {
		chosen = append(chosen, folder)
	}
	for level := []string{folder}; len(level) > 0 && len(chosen) <= t.users; {
		var next []string
		for _, of := range level {
			for _, user := range t.importers[of] {
				if seen[user] || user == folder {
					continue
				}
				seen[user] = true
				next = append(next, user)
				if t.hasTests[user] && len(chosen) <= t.users {
					chosen = append(chosen, user)
				}
			}
		}
		level = next
	}
	return chosen
}

// test puts the fault in, runs tests until one fails, and takes the fault out.
func (t *tree) test(ctx context.Context, f fault) (v verdict, err error) {
	if f.commutes {
		return verdict{invalid: "both orders do the same"}, nil
	}
	path := filepath.Join(t.folder, f.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return v, err
	}
	defer func() { err = cmp.Or(err, os.WriteFile(path, text, info.Mode().Perm())) }()
	if err := os.WriteFile(path, f.apply(text), info.Mode().Perm()); err != nil {
		return v, err
	}
	began := time.Now()
	folder := filepath.Dir(f.file)
	if out, err := t.goTool(ctx, "build", "-o", os.DevNull, "./"+folder).CombinedOutput(); err != nil {
		return verdict{invalid: "does not compile: " + brief(lastLine(out))}, ctx.Err()
	}
	for _, pkg := range t.packagesFor(folder) {
		failure := t.failure(ctx, pkg)
		if failure == "" || ctx.Err() != nil {
			continue
		}
		if err := os.WriteFile(path, text, info.Mode().Perm()); err != nil {
			return v, err
		}
		if without := t.failure(ctx, pkg); without != "" {
			return verdict{invalid: "fails without the fault, too: " + pkg + ": " + without}, ctx.Err()
		}
		return verdict{killedBy: pkg + ": " + failure, took: time.Since(began)}, ctx.Err()
	}
	return verdict{took: time.Since(began)}, ctx.Err()
}

// failure runs the tests of a package and returns what failed, or "".
func (t *tree) failure(ctx context.Context, pkg string) string {
	within, cancel := context.WithTimeout(ctx, t.timeout+time.Minute)
	defer cancel()
	out, err := t.goTool(within, "test", "-failfast", "-timeout", t.timeout.String(), "./"+pkg).CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		for _, sign := range []string{"--- FAIL: ", "panic: ", "fatal error: ", "SIGSEGV", "AddressSanitizer"} {
			if at := strings.Index(line, sign); at >= 0 {
				return brief(strings.TrimPrefix(line[at:], "--- FAIL: "))
			}
		}
	}
	return brief(lastLine(out))
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
