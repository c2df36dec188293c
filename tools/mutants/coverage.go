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
// its child processes, which takes as long as the suite and is kept until product code changes.
// What it does not know is left to the tests of the faulty package: C code, and lines that ran in
// children that were killed or that have an environment of their own.
type coverage struct {
	Code   string             // checksum of the product code
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
	Tests    []int // that run it, indexes of coverage.Tests
}

// covering returns the tests that run the line of a fault. Outside of functions, and in C, these
// are the tests that run any code of the file or the folder.
func (c *coverage) covering(f fault) []test {
	found := map[int]bool{}
	add := func(b block) {
		for _, i := range b.Tests {
			found[i] = true
		}
	}
	for _, b := range c.Blocks[f.file] {
		if b.From <= f.line && f.line <= b.To {
			add(b)
		}
	}
	if len(found) == 0 {
		for file, blocks := range c.Blocks {
			if file == f.file || filepath.Ext(f.file) != ".go" && filepath.Dir(file) == filepath.Dir(f.file) {
				for _, b := range blocks {
					add(b)
				}
			}
		}
	}
	tests := make([]test, 0, len(found))
	for i := range found {
		tests = append(tests, c.Tests[i])
	}
	slices.SortFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.Seconds, b.Seconds), cmp.Compare(a.Folder, b.Folder), cmp.Compare(a.Name, b.Name))
	})
	return tests
}

// loadCoverage reads the coverage at path, or measures it if there is none of this code.
func loadCoverage(ctx context.Context, path string, trees []*tree) (*coverage, error) {
	code, err := trees[0].checksum()
	if err != nil {
		return nil, err
	}
	c := &coverage{}
	if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, c) == nil && c.Code == code {
		return c, nil
	}
	c = &coverage{Code: code}
	if err := c.measure(ctx, trees); err != nil {
		return nil, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return c, os.WriteFile(path, data, 0o644)
}

// checksum is that of the files in which faults are put, and of C headers.
func (t *tree) checksum() (string, error) {
	sum := sha256.New()
	for _, path := range t.files {
		if !isProductCode(path) || !slices.Contains([]string{".go", ".c", ".h"}, filepath.Ext(path)) {
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

// measure runs each test alone, on each tree one at a time.
func (c *coverage) measure(ctx context.Context, trees []*tree) error {
	folders := make(chan string, len(trees[0].hasTests))
	for _, folder := range slices.Sorted(maps.Keys(trees[0].hasTests)) {
		if trees[0].hasTests[folder] {
			folders <- folder
		}
	}
	close(folders)
	began, ran := time.Now(), blocks{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range trees {
		group.Go(func() error {
			for folder := range folders {
				err := t.coverTests(ctx, folder, func(one test, profile []byte) {
					mu.Lock()
					defer mu.Unlock()
					ran.add(profile, len(c.Tests))
					c.Tests = append(c.Tests, one)
				})
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintf(os.Stderr, "coverage of %s (%s)\n", folder, time.Since(began).Round(time.Second))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.Blocks = ran.byFile(trees[0].module)
	return nil
}

// coverTests runs each test of a folder and reports its profile.
func (t *tree) coverTests(ctx context.Context, folder string, report func(one test, profile []byte)) error {
	binary, out, err := t.compile(ctx, folder, "-cover", "-coverpkg=./...")
	if err != nil {
		return fmt.Errorf("%s does not compile: %s", folder, out)
	}
	defer func() { _ = os.Remove(binary) }()
	out, err = t.testCommand(ctx, folder, binary, "-test.list=.").Output()
	if err != nil {
		return fmt.Errorf("listing the tests of %s: %w", folder, err)
	}
	for _, name := range testName.FindAllString(string(out), -1) {
		data, err := os.MkdirTemp(t.folder, "coverage")
		if err != nil {
			return err
		}
		path := filepath.Join(data, "profile")
		cmd := t.testCommand(ctx, folder, binary, "-test.run=^"+name+"$", "-test.timeout=10m", "-test.gocoverdir="+data, "-test.coverprofile="+path)
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+data) // of child processes
		began := time.Now()
		_ = cmd.Run() // a test that fails with counters in the code runs lines, too
		one := test{folder, name, time.Since(began).Seconds()}
		profile, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // without one the test ended its process
			return err
		}
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		report(one, profile)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
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
