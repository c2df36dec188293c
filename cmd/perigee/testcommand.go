package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/engine/suite"
)

type testCommand struct {
	Files    []string `arg:"" optional:"" help:"Test files, or folders with them (default: all below the working folder)."`
	Match    string   `name:"run" placeholder:"PATTERN" help:"Run only the cases whose names match a regular expression."`
	Update   bool     `help:"Write snapshots again, with what comes out now."`
	Watch    bool     `help:"Run again whenever a file changes, until interrupted."`
	Format   string   `enum:"text,junit,tap,json" default:"text" help:"Format of the result: text, junit, tap or json."`
	Coverage bool     `help:"Print the lines of each script that never ran, on standard error."`
	LCOV     string   `name:"lcov" placeholder:"FILE" help:"Write which lines of scripts ran to a file, in lcov's format."`
	Allow    []string `placeholder:"HOST" sep:"none" help:"Allow a host for configuration and code, in addition to the allow list of the configuration. May be repeated."`

	watched []string // folders of the files that tests depend on
}

func (testCommand) Help() string {
	return `Runs tests of pipelines. A test file has a name that ends in _test.yaml and is beside the configuration:
its cases give events to a pipeline, and say which rows, documents, dead letters and log lines must come of
them. Script, computed columns and the conversion to the columns of each sink run as in an engine, under
the script's limits. No source, no sink and no server is needed, and nothing is written but snapshots.

A case that fails is shown with its line and what differs: - is what the case says, + what came out.
The keys of a test file are in docs/reference/tests.md.

A case with "snapshot: FILE" writes the file when it is missing, and compares with it from then on. With
the environment variable CI set, a missing file is a failure.

Exit code: 0 if all cases hold, 1 if one failed or a file has a fault.

Examples:
  perigee test
  perigee test pipeline_test.yaml --run 'domain|address'
  perigee test --update
  perigee test --watch
  perigee test --format junit > report.xml
  perigee test --coverage --lcov coverage.lcov`
}

// acceptSingleDash turns -run, as go test spells it, into --run.
func acceptSingleDash(args []string) []string {
	accepted := make([]string, len(args))
	for i, arg := range args {
		if arg == "-run" || strings.HasPrefix(arg, "-run=") {
			arg = "-" + arg
		}
		accepted[i] = arg
	}
	return accepted
}

func (t *testCommand) Run(c *console) error {
	settings := suite.Settings{Engine: engineOptions(c, t.Allow, nil), Update: t.Update}
	if t.Match != "" {
		match, err := regexp.Compile(t.Match)
		if err != nil {
			return usageError("--run is not a regular expression: " + err.Error())
		}
		settings.Run = match
	}
	ci, _ := c.lookup("CI")
	settings.Frozen = ci != "" && ci != "false"
	if len(t.Files) == 0 {
		t.Files = []string{"."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if t.Watch {
		return t.watch(ctx, c, settings)
	}
	return t.runOnce(ctx, c, settings)
}

// runOnce runs all files. Its error is exitError(exitFailure) if a case failed or a file has a
// fault, which it has printed.
func (t *testCommand) runOnce(ctx context.Context, c *console, settings suite.Settings) error {
	files, err := suite.Find(t.Files)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no test files: no name below %s ends in %s", strings.Join(t.Files, ", "), suite.Suffix)
	}
	if t.Coverage || t.LCOV != "" {
		settings.Coverage = new(suite.Coverage)
	}
	w := t.newWriter(c)
	failed, err := t.runFiles(ctx, c, files, settings, w)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	if err := t.writeCoverage(c, settings.Coverage); err != nil {
		return err
	}
	if failed {
		return exitError(exitFailure)
	}
	return nil
}

// newWriter returns a writer to standard output, with colours on a terminal.
func (t *testCommand) newWriter(c *console) suite.Writer {
	if t.Format != "text" {
		return suite.NewWriter(c.out, t.Format, false)
	}
	out, colour := coloured(c)
	return suite.NewWriter(out, t.Format, colour) // which escapes all text itself
}

func (t *testCommand) runFiles(ctx context.Context, c *console, files []string, settings suite.Settings, w suite.Writer) (failed bool, err error) {
	cases := 0
	for _, file := range files {
		report, fault := suite.Run(ctx, file, settings)
		switch {
		case ctx.Err() != nil:
			return true, errors.New("interrupted")
		case fault != nil:
			failed = true
			printError(c.err, fault, "")
			err = w.Fault(file, fault)
		case len(report.Results) > 0 || settings.Run == nil:
			cases += len(report.Results)
			t.watched = append(t.watched, report.Folders...)
			failed = failed || report.Failed() > 0
			err = w.Report(report)
		}
		if err != nil {
			return failed, fmt.Errorf("write the result: %w", err)
		}
	}
	if cases == 0 && !failed {
		return true, fmt.Errorf("no case has a name that matches %s", settings.Run)
	}
	return failed, nil
}

func (t *testCommand) writeCoverage(c *console, coverage *suite.Coverage) error {
	if t.Coverage {
		if err := coverage.WriteText(c.err); err != nil {
			return err
		}
	}
	if t.LCOV == "" {
		return nil
	}
	file, err := os.Create(t.LCOV)
	if err != nil {
		return fmt.Errorf("write coverage: %w", err)
	}
	return errors.Join(coverage.WriteLCOV(file), file.Close())
}

// watchPoll is how often watch looks for changed files.
const watchPoll = 300 * time.Millisecond

// watch runs the tests at once and after each change of a file in the folders that they depend on. A
// change while they run, such as by a snapshot that is written, makes them run once more.
func (t *testCommand) watch(ctx context.Context, c *console, settings suite.Settings) error {
	stamps := map[string]string{}
	addStamps(stamps, t.Files)
	for run := true; ; run = updateStamps(stamps) {
		if run {
			err := t.runOnce(ctx, c, settings)
			addStamps(stamps, t.watched)
			t.watched = nil
			if ctx.Err() == nil {
				exitCode(c.err, err) // prints an error that the run has not
				fmt.Fprintln(c.err, "waiting for changes; Ctrl-C ends")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPoll):
		}
	}
}

// addStamps adds the stamps of paths that have none.
func addStamps(stamps map[string]string, paths []string) {
	for _, path := range paths {
		if _, known := stamps[path]; !known {
			stamps[path] = stampOf(path)
		}
	}
}

// updateStamps takes all stamps again and reports whether one has changed.
func updateStamps(stamps map[string]string) (changed bool) {
	for path, before := range stamps {
		now := stampOf(path)
		changed = changed || now != before
		stamps[path] = now
	}
	return changed
}

// stampOf returns a text that changes with the files in a folder and its subfolders, or in the folder
// of a file.
func stampOf(path string) string {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	var stamp strings.Builder
	_ = filepath.WalkDir(path, func(found string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && found != path && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if info, err := entry.Info(); err == nil && !entry.IsDir() {
			fmt.Fprintf(&stamp, "%s %d %d\n", found, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return stamp.String()
}
