package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// coverage knows which tests run which lines. Each test of the module runs alone once for it, with
// its child processes. It is kept until product code changes;
// folders whose tests have changed are measured again.
// Some lines it does not know: C code, lines that ran in children that were killed or that have an
// environment of their own, and lines that a suite of another folder has reached since. The tests
// of the faulty package run for those.
type coverage struct {
	Code    string // checksum of the product code
	Folders map[string]*folderCoverage
}

// folderCoverage is that of the tests in a folder.
type folderCoverage struct {
	Code   string             // checksum of the folder's tests
	Tests  []test             // all tests, examples and fuzz targets
	Blocks map[string][]block // by file
}

type test struct {
	Folder, Name string
	Seconds      float64 // alone, with the counters of coverage
}

// A block is a sequence of statements that run together.
type block struct {
	From, To int   // lines, inclusive
	Tests    []int // that run it, indexes of the folder's tests
}

// covering returns the tests that run the line of a fault. Outside of functions, and in C, these
// are the tests that run any code of the file or the folder.
func (c *coverage) covering(f fault) []test {
	tests := c.running(func(file string, b block) bool { return file == f.file && b.From <= f.line && f.line <= b.To })
	if len(tests) == 0 {
		isGo, folder := filepath.Ext(f.file) == ".go", filepath.Dir(f.file)
		tests = c.running(func(file string, _ block) bool { return file == f.file || !isGo && filepath.Dir(file) == folder })
	}
	return tests
}

// running returns the tests that run one of some blocks, the quick ones first.
func (c *coverage) running(is func(file string, b block) bool) []test {
	var tests []test
	for _, folder := range c.Folders {
		found := map[int]bool{}
		for file, blocks := range folder.Blocks {
			for _, b := range blocks {
				if is(file, b) {
					for _, i := range b.Tests {
						found[i] = true
					}
				}
			}
		}
		for i := range found {
			tests = append(tests, folder.Tests[i])
		}
	}
	slices.SortFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.Seconds, b.Seconds), cmp.Compare(a.Folder, b.Folder), cmp.Compare(a.Name, b.Name))
	})
	return tests
}

// loadCoverage reads the coverage at path, and measures what it lacks.
func loadCoverage(ctx context.Context, path string, trees []*tree) (*coverage, error) {
	t := trees[0]
	code, err := t.checksum(func(path string) bool {
		return isProductCode(path) && slices.Contains([]string{".go", ".c", ".h"}, filepath.Ext(path))
	})
	if err != nil {
		return nil, err
	}
	c := &coverage{}
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, c) != nil || c.Code != code {
		c = &coverage{Code: code, Folders: map[string]*folderCoverage{}}
	}
	tests := map[string]string{}
	for folder, has := range t.hasTests {
		if !has {
			continue
		}
		if tests[folder], err = t.checksum(func(path string) bool {
			return strings.HasSuffix(path, "_test.go") && filepath.Dir(path) == folder || strings.HasPrefix(path, folder+"/testdata/")
		}); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(c.Folders, func(folder string, f *folderCoverage) bool { return f.Code != tests[folder] })
	if err := c.measure(ctx, trees, tests); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(c); err != nil {
		return nil, err
	}
	return c, os.WriteFile(path, data, 0o644)
}

// checksum is that of some of the tree's files.
func (t *tree) checksum(has func(path string) bool) (string, error) {
	sum := sha256.New()
	for _, path := range t.files {
		if !has(path) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.folder, path))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// measure adds the folders that are missing; tests are the checksums of their tests. On each tree
// one test runs at a time.
func (c *coverage) measure(ctx context.Context, trees []*tree, tests map[string]string) error {
	folders := make(chan string, len(tests))
	for _, folder := range slices.Sorted(maps.Keys(tests)) {
		if c.Folders[folder] == nil {
			folders <- folder
		}
	}
	close(folders)
	began := time.Now()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range trees {
		group.Go(func() error {
			for folder := range folders {
				f, failed, err := t.coverTests(ctx, folder)
				if err != nil {
					return err
				}
				f.Code = tests[folder]
				mu.Lock()
				c.Folders[folder] = f
				mu.Unlock()
				_, _ = fmt.Fprintf(os.Stderr, "coverage of %s (%s)\n", folder, time.Since(began).Round(time.Second))
				if failed != nil {
					_, _ = fmt.Fprintf(os.Stderr, "  with counters these fail: %s\n", strings.Join(failed, " "))
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// coverTests runs each test of a folder, also those that fail with counters in the code.
func (t *tree) coverTests(ctx context.Context, folder string) (f *folderCoverage, failed []string, err error) {
	binary, out, err := t.compile(ctx, folder, "-cover", "-coverpkg=./...")
	if err != nil {
		return nil, nil, fmt.Errorf("%s does not compile: %s", folder, out)
	}
	defer func() { _ = os.Remove(binary) }()
	out, err = t.testCommand(ctx, folder, binary, "-test.list=.").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("listing the tests of %s: %w", folder, err)
	}
	f = &folderCoverage{}
	ran := blocks{}
	for i, name := range testName.FindAllString(string(out), -1) {
		data, err := os.MkdirTemp(t.folder, "coverage")
		if err != nil {
			return nil, nil, err
		}
		path := filepath.Join(data, "profile")
		cmd := t.testCommand(ctx, folder, binary, "-test.run=^"+name+"$", "-test.timeout=10m", "-test.gocoverdir="+data, "-test.coverprofile="+path)
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+data) // of child processes
		began := time.Now()
		if cmd.Run() != nil {
			failed = append(failed, name)
		}
		f.Tests = append(f.Tests, test{folder, name, time.Since(began).Seconds()})
		profile, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // without one the test ended its process
			return nil, nil, err
		}
		ran.add(profile, i)
		if err := os.RemoveAll(data); err != nil {
			return nil, nil, err
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
	f.Blocks = ran.byFile(t.module)
	return f, failed, nil
}

var testName = regexp.MustCompile(`(?m)^(?:Test|Fuzz|Example)\w*$`)

// blocks are the tests that run a block, by the place that a profile names.
type blocks map[place][]int

type place struct {
	file     string
	from, to int
}

// add adds the blocks that ran in a profile, by the test of an index.
func (b blocks) add(profile []byte, test int) {
	for _, m := range profileLine.FindAllSubmatch(profile, -1) {
		from, _ := strconv.Atoi(string(m[2]))
		to, _ := strconv.Atoi(string(m[3]))
		at := place{string(m[1]), from, to}
		if tests := b[at]; len(tests) == 0 || tests[len(tests)-1] != test {
			b[at] = append(tests, test)
		}
	}
}

func (b blocks) byFile(module string) map[string][]block {
	files := map[string][]block{}
	for at, tests := range b {
		file := strings.TrimPrefix(at.file, module+"/")
		files[file] = append(files[file], block{at.from, at.to, tests})
	}
	return files
}

// FILE:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT, of blocks that ran
var profileLine = regexp.MustCompile(`(?m)^(\S+):(\d+)\.\d+,(\d+)\.\d+ \d+ [1-9]\d*$`)
