package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/terminal"
)

type shadowCommand struct {
	Pipeline string `arg:"" help:"Name of the pipeline."`
	dataFlags
	Format string `enum:"text,json,html" default:"text" help:"text, json, or html: one page that needs no other file."`
	Reset  bool   `help:"Begin a new report, and start a shadow that has stopped."`
}

func (shadowCommand) Help() string {
	return `Shows how the results of the new version that shadow names in the configuration differ from those of the
script of the pipeline, on a sample of the live events. The report is that of perigee diff: kinds of
differences with their numbers of events and a few examples, the running version on the left.

The engine discards the results of the new version, and its measurements with stats. The new version does call
functions in Go and the network; its log lines have the attribute shadow. It costs at most half a core: while
it is busy, it skips events. A new version that fails on most events stops; a new text or --reset starts it.

Exit code: 0 if no event differs, 1 if one does or the shadow does not run, 2 on failure; --reset is 0 or 2.

Examples:
  perigee shadow emails
  perigee shadow emails --format html > report.html
  perigee shadow emails --reset`
}

func (s *shadowCommand) Run(c *console) error {
	var report admin.ShadowReport
	err := s.use(c, func(ctx context.Context, a *admin.Admin) (err error) {
		report, err = a.Shadow(ctx, s.Pipeline, s.Reset)
		return err
	})
	if err == nil {
		err = s.print(c, &report)
	}
	if err != nil {
		printError(c.err, err, "")
		return exitError(exitNoResult)
	}
	if !s.Reset && (report.State != admin.ShadowRunning || report.Different > 0) {
		return exitError(exitDifferent)
	}
	return nil
}

func (s *shadowCommand) print(c *console, r *admin.ShadowReport) error {
	switch {
	case s.Format == "json":
		return json.NewEncoder(c.out).Encode(r)
	case s.Reset:
		fmt.Fprintf(c.out, "the shadow of pipeline %s begins a new report\n", r.Pipeline)
		return nil
	case s.Format == "html" && r.Report != nil:
		return printDifferences(c, s.Format, r.Report)
	}
	fmt.Fprintln(c.out, describeShadow(r.Pipeline, &r.ShadowStatus))
	if r.Report == nil {
		return nil
	}
	fmt.Fprintln(c.out)
	return printDifferences(c, s.Format, r.Report)
}

// describeShadow describes the state of a shadow and its figures.
func describeShadow(pipeline string, s *admin.ShadowStatus) string {
	text := fmt.Sprintf("shadow of %s: %s is %s since %s UTC", pipeline, terminal.EscapeLine(s.Script), s.State, s.Since.UTC().Format(timeLayout))
	if s.Reason != "" {
		text += ": " + terminal.Escape(s.Reason)
	}
	text += fmt.Sprintf("\nsampled %s%% of the events: %s of %s differ", strconv.FormatFloat(100*s.Sample, 'g', 4, 64), thousands(s.Different), thousands(s.Events))
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %s skipped while it was busy", thousands(s.Skipped))
	}
	return text
}

type promoteCommand struct {
	Pipeline string `arg:"" help:"Name of the pipeline."`
	dataFlags
	Force bool `help:"Promote a shadow that has stopped, or fails on all recent events."`
}

func (promoteCommand) Help() string {
	return `Makes the shadow of a pipeline its script, between two batches. It is the version that the shadow runs, even
if its file has changed since; later changes of the file are taken over as before.

The configuration stays as it is. Until you change it, a restart of the engine, or a reload that changes the
pipeline, runs the script before it again, with the new version as its shadow.

Examples:
  perigee promote emails
  perigee promote emails --config pipeline.yaml`
}

func (p *promoteCommand) Run(c *console) error {
	return p.use(c, func(ctx context.Context, a *admin.Admin) error {
		done, err := a.Promote(ctx, p.Pipeline, p.Force)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "pipeline %s runs %s from its next batch on, in place of %s\n", done.Pipeline, done.Script, done.Before)
		fmt.Fprintf(c.out, "to keep it, make %s the script of the pipeline in the configuration, and remove shadow there;\n", done.Script)
		fmt.Fprintf(c.out, "until then, a restart or a reload that changes the pipeline runs %s again\n", done.Before)
		printData(c.out, a.Data())
		return nil
	})
}
