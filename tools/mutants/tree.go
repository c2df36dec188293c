package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A tree is a copy of the repository in which faults are put, one at a time.
type tree struct {
	folder    string
	files     []string
	module    string
	importers map[string][]string // packages with tests that import a package, by folder
	hasTests  map[string]bool
	goEnv     []string // the environment that go test gives to tests
	users     int
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
	t := &tree{folder: folder, files: files}
	out, err := t.goTool(ctx, "env", "GOROOT", "GOFLAGS").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	root, flags, _ := strings.Cut(string(out), "\n")
	t.goEnv = []string{"PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH"), "GOFLAGS=" + strings.TrimSpace(flags)}
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

// readImports finds the importers of each package. The nearest users come first: packages below the
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
		t.module = p.Module.Path
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
	cmd := t.group(exec.CommandContext(ctx, "tools/go.sh", args...))
	cmd.Dir = t.folder
	return cmd
}

// group makes a command end with all its children: a fault may leave some behind.
func (t *tree) group(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// usersOf are the packages that import a folder, directly or not, and have tests; the nearest first.
func (t *tree) usersOf(folder string) []string {
	seen, users := map[string]bool{folder: true}, []string{}
	for level := []string{folder}; len(level) > 0; {
		var next []string
		for _, of := range level {
			for _, user := range t.importers[of] {
				if seen[user] {
					continue
				}
				seen[user] = true
				next = append(next, user)
				if t.hasTests[user] {
					users = append(users, user)
				}
			}
		}
		level = next
	}
	return users
}

// A testRun is some tests of a folder.
type testRun struct {
	folder  string
	tests   []string
	others  bool    // all but these tests
	seconds float64 // that they took without a fault
}

// plan lists the runs that try a fault: the tests of its package that run its line, the quick
// ones first; then those of the nearest users, a minute of each; then what else its package has,
// because coverage does not know everything.
func (t *tree) plan(f fault, c *coverage) []testRun {
	folder := t.packageOf(f.file)
	covering := map[string][]test{}
	for _, test := range c.covering(f) {
		covering[test.Folder] = append(covering[test.Folder], test)
	}
	var runs []testRun
	add := func(tests []test, secondsMax float64) {
		const quick = 10 // seconds
		var first, second testRun
		for _, test := range tests {
			if first.seconds+test.Seconds <= quick {
				first.add(test)
			} else if first.seconds+second.seconds+test.Seconds <= secondsMax {
				second.add(test)
			}
		}
		for _, r := range []testRun{first, second} {
			if r.tests != nil {
				runs = append(runs, r)
			}
		}
	}
	add(covering[folder], math.Inf(1))
	users := 0
	for _, user := range t.usersOf(folder) {
		if covering[user] != nil && users < t.users {
			users++
			add(covering[user], 60)
		}
	}
	if !t.hasTests[folder] {
		return runs
	}
	others := testRun{folder: folder, others: true}
	var all []test
	if c.Folders[folder] != nil {
		all = c.Folders[folder].Tests
	}
	for _, test := range all {
		if slices.Contains(covering[folder], test) {
			others.tests = append(others.tests, test.Name)
		} else {
			others.seconds += test.Seconds
		}
	}
	return append(runs, others)
}

// packageOf returns the folder of the package that a file belongs to: its own, or the nearest
// above it.
func (t *tree) packageOf(file string) string {
	folder := filepath.Dir(file)
	for {
		if _, ok := t.hasTests[folder]; ok || folder == "." {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}

func (r *testRun) add(t test) {
	*r = testRun{folder: t.Folder, tests: append(r.tests, t.Name), seconds: r.seconds + t.Seconds}
}

// compile builds the test binary of a folder.
func (t *tree) compile(ctx context.Context, folder string, flags ...string) (binary string, out []byte, err error) {
	binary = filepath.Join(t.folder, folder, "mutants.test")
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	out, err = t.goTool(ctx, append(args, "./"+folder)...).CombinedOutput()
	return binary, out, err
}

// testCommand runs a test binary as go test does.
func (t *tree) testCommand(ctx context.Context, folder, binary string, args ...string) *exec.Cmd {
	cmd := t.group(exec.CommandContext(ctx, binary, args...))
	cmd.Dir = filepath.Join(t.folder, folder)
	cmd.Env = append(append(os.Environ(), t.goEnv...), "PWD="+cmd.Dir)
	return cmd
}

// test puts the fault in, runs tests until one fails, and takes the fault out.
func (t *tree) test(ctx context.Context, f fault, c *coverage) (v verdict, err error) {
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
	binaries := map[string]string{}
	defer func() {
		for _, binary := range binaries {
			_ = os.Remove(binary)
		}
	}()
	for _, r := range t.plan(f, c) {
		binary := binaries[r.folder]
		if binary == "" {
			var out []byte
			if binary, out, err = t.compile(ctx, r.folder); err != nil {
				return verdict{invalid: "does not compile: " + brief(lastLine(out))}, ctx.Err()
			}
			binaries[r.folder] = binary
		}
		failure := t.runTests(ctx, binary, r)
		if failure == "" || ctx.Err() != nil {
			continue
		}
		if err := os.WriteFile(path, text, info.Mode().Perm()); err != nil {
			return v, err
		}
		if binary, out, err := t.compile(ctx, r.folder); err != nil {
			return v, fmt.Errorf("%s does not compile without %s: %s", r.folder, f, out)
		} else if without := t.runTests(ctx, binary, r); without != "" {
			return verdict{invalid: "fails without the fault, too: " + r.folder + ": " + without}, ctx.Err()
		}
		return verdict{killedBy: r.folder + ": " + failure, took: time.Since(began)}, ctx.Err()
	}
	return verdict{took: time.Since(began)}, ctx.Err()
}

// runTests runs tests until one fails, and returns what it said ("" if all pass). Tests that take
// much longer than without a fault have failed.
func (t *tree) runTests(ctx context.Context, binary string, r testRun) (failure string) {
	limit := time.Minute + time.Duration(5*r.seconds)*time.Second
	which := "-test.run="
	if r.others {
		which = "-test.skip="
	}
	within, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	out, err := t.testCommand(within, r.folder, binary, which+"^("+strings.Join(r.tests, "|")+")$", "-test.failfast", "-test.paniconexit0", "-test.timeout="+limit.String()).CombinedOutput()
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
