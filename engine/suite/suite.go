// Package suite runs tests of pipelines. A test file is YAML beside a configuration: its cases give
// events to a pipeline and say what must come of them. Package trial runs the pipeline, without
// a source, a server or a data folder.
package suite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Suffix ends the names of test files.
const Suffix = "_test.yaml"

// fileMax is the maximum size of a test file and of a file with events; it guards against wrong
// files.
const fileMax = 64 << 20

// Settings say how test files run.
type Settings struct {
	Engine engine.Options
	// Run selects the cases whose names it matches; nil selects all.
	Run *regexp.Regexp
	// Update replaces snapshots by what comes out. Otherwise only a missing snapshot is
	// written, and not even that with Frozen, as in CI.
	Update, Frozen bool
	// Coverage collects the lines of scripts that run, if it is not nil.
	Coverage *Coverage
}

// A Report is the result of one test file.
type Report struct {
	File    string
	Results []Result
	Took    time.Duration
	Folders []string // of the test file, of the configuration and of the code
}

// Failed returns the number of cases that failed.
func (r *Report) Failed() (n int) {
	for i := range r.Results {
		if r.Results[i].Failed() {
			n++
		}
	}
	return n
}

// A Result is the result of one case.
type Result struct {
	Name        string        `json:"name"`
	File        string        `json:"file"`
	Line        int           `json:"line"`
	Took        time.Duration `json:"-"`
	Note        string        `json:"note,omitempty"` // such as that a snapshot was written
	Differences []Difference  `json:"differences,omitempty"`
}

// Failed reports whether the case failed.
func (r *Result) Failed() bool { return len(r.Differences) > 0 }

// A Difference is one thing that came out otherwise than the case says.
type Difference struct {
	What string `json:"what"`           // such as "rows of mysql, row 1, domain"
	Line int    `json:"line,omitempty"` // of the expectation in the file; 0 if there is none
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
}

// Find returns the test files that paths name: files, and those in folders and their
// subfolders. It skips folders whose names begin with a dot.
func Find(paths []string) (files []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("find tests: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		err = filepath.WalkDir(path, func(found string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && found != path && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case !entry.IsDir() && strings.HasSuffix(found, Suffix):
				files = append(files, found)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find tests: %w", err)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// Run runs the cases of a test file. Its faults, and those of the configuration and of the script,
// are config.Errors.
func Run(ctx context.Context, path string, s Settings) (*Report, error) {
	began := time.Now()
	file, err := read(path)
	if err != nil {
		return nil, err
	}
	r := &runner{file: file, opts: s}
	defer r.close()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	report := &Report{File: path, Folders: r.folders()}
	for _, c := range file.cases {
		if s.Run == nil || s.Run.MatchString(c.settings.Name) {
			report.Results = append(report.Results, r.run(ctx, c))
		}
	}
	if s.Coverage != nil {
		s.Coverage.add(r.pipeline, r.covered)
	}
	report.Took = time.Since(began)
	return report, ctx.Err()
}

// readText reads a file of at most fileMax bytes.
func readText(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > fileMax {
		err = fmt.Errorf("%s is larger than %d MiB", path, fileMax>>20)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// load loads the pipeline and checks the cases against it.
func (r *runner) load(ctx context.Context) error {
	c, opts, err := r.loadConfig(ctx)
	if err != nil {
		return err
	}
	name, _ := r.file.settings.Pipeline.Text()
	if _, err := engine.FindPipeline(c, name); err != nil && r.file.settings.Pipeline.IsSet() {
		return r.file.settings.Pipeline.At(err, event.HintOf(err))
	} else if err != nil {
		return event.WithHint(fmt.Errorf("%s: %w", r.file.path, err), event.HintOf(err))
	}
	r.folder = c.Folder
	with := trial.Options{Documents: true, Functions: r.file.replacedFunctions()}
	if r.opts.Coverage != nil {
		r.covered = new(script.Coverage)
		with.Coverage = r.covered
	}
	if err := r.file.checkReplaced(opts.Kinds.Modules); err != nil {
		return err
	}
	r.loadPipeline = func() (*trial.Pipeline, error) { return trial.Load(ctx, c, name, opts, with) }
	if r.pipeline, err = r.loadPipeline(); err != nil {
		return err
	}
	return r.bind(ctx)
}

// folders returns the folders of the local files that the tests depend on.
func (r *runner) folders() []string {
	folders := []string{filepath.Dir(r.file.path), r.folder}
	for _, code := range r.pipeline.Codes {
		if filepath.IsAbs(code.Name) {
			folders = append(folders, filepath.Dir(code.Name))
		}
	}
	return folders
}

// refresh loads the pipeline, and the functions if a case calls one, without the state that earlier
// cases left.
func (r *runner) refresh(ctx context.Context) error {
	pipeline, err := r.loadPipeline()
	if err != nil {
		return err
	}
	called := r.functions != nil
	r.close()
	r.pipeline, r.functions = pipeline, nil
	if called {
		r.functions, err = pipeline.LoadCallable(ctx)
	}
	return err
}

// loadConfig loads the configuration of the file, with its variables.
func (r *runner) loadConfig(ctx context.Context) (*config.Config, engine.Options, error) {
	opts, file := r.opts.Engine, r.file
	path, err := file.configPath()
	if err != nil {
		return nil, opts, err
	}
	lookup := opts.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	opts.Lookup = func(name string) (string, bool) {
		if value, given := file.settings.Env[name]; given {
			return value, true
		}
		return lookup(name)
	}
	c, err := engine.Load(ctx, path, opts)
	if faults, ok := errors.AsType[config.Errors](err); ok {
		for _, fault := range faults {
			if _, name, found := strings.Cut(fault.Message, "environment variable "); found && strings.HasSuffix(name, " is not set") {
				fault.Hint = fmt.Sprintf("give it a value for tests in %s: env: {%s: …}", file.path, strings.TrimSuffix(name, " is not set"))
			}
		}
	}
	return c, opts, err
}

// configPath returns the path of the configuration.
func (f *testFile) configPath() (string, error) {
	folder := filepath.Dir(f.path)
	if f.settings.Config.IsSet() {
		name, _ := f.settings.Config.Text()
		path := name
		if !filepath.IsAbs(name) && !strings.Contains(name, "://") {
			path = filepath.Join(folder, name)
		}
		if _, err := os.Stat(path); err != nil && !strings.Contains(name, "://") {
			return "", f.settings.Config.At(fmt.Errorf("no configuration %s", name), suggestFile(folder, name))
		}
		return path, nil
	}
	own := strings.TrimSuffix(filepath.Base(f.path), Suffix) + ".yaml"
	for _, name := range []string{own, "pipeline.yaml"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return filepath.Join(folder, name), nil
		}
	}
	return "", event.WithHint(fmt.Errorf("%s: no configuration %s or pipeline.yaml beside the test file", f.path, own), "name it in the test file: config: PATH")
}

// suggestFile returns a hint at the file in a folder with the most similar name.
func suggestFile(folder, name string) string {
	entries, _ := os.ReadDir(filepath.Join(folder, filepath.Dir(name)))
	var names []string
	for _, entry := range entries {
		names = append(names, filepath.ToSlash(filepath.Join(filepath.Dir(name), entry.Name())))
	}
	if near := config.SuggestNear(name, names); near != "" {
		return near
	}
	return "paths begin in the folder of the test file"
}
