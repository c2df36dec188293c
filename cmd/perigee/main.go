// Command perigee drains event queues through a script into tables.
//
// This package is flags and wiring: one file for each command, and in kinds.go
// the one literal list of the sources, sinks and languages linked in.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/perigeedb/perigee/event"
)

// Exit codes. A command that a second signal stopped exits with 128 and the
// signal's number, as a shell reports it.
const (
	exitFailure = 1
	exitUsage   = 2
)

type commands struct {
	Run        runCommand        `cmd:"" help:"Run the pipelines of a configuration."`
	Check      checkCommand      `cmd:"" help:"Check a configuration and its scripts; no server is needed."`
	Eval       evalCommand       `cmd:"" help:"Run a script on lines of JSON from standard input."`
	Query      queryCommand      `cmd:"" help:"Ask the event store with SQL, also beside a running engine."`
	Status     statusCommand     `cmd:"" help:"Show what the pipelines of a running engine do."`
	Pause      pauseCommand      `cmd:"" help:"Stop reading for a pipeline, over restarts too."`
	Resume     resumeCommand     `cmd:"" help:"Go on after a pause."`
	DLQ        dlqCommand        `cmd:"" name:"dlq" help:"Show, retry and delete dead letters: events that could not be processed."`
	Position   positionCommand   `cmd:"" help:"Show and move the positions that pipelines go on from."`
	Demo       demoCommand       `cmd:"" help:"Move a million made-up events through a script into a table, and verify it."`
	Verify     verifyCommand     `cmd:"" help:"Kill everything in the chain at random and at named points, and look for every event."`
	Bench      benchCommand      `cmd:"" help:"Measure a script over pools of VMs, goroutines, cores and batches, and report."`
	List       listCommand       `cmd:"" help:"List sources, sinks and languages, and their settings."`
	Version    versionCommand    `cmd:"" help:"Show the version and what is linked in."`
	Completion completionCommand `cmd:"" help:"Print a completion script for a shell."`
	pluginCommands
}

// A console is the surroundings of a command.
type console struct {
	in       io.Reader
	out, err io.Writer
	lookup   func(string) (string, bool) // environment
}

func main() {
	os.Exit(perigee(os.Args[1:], console{os.Stdin, os.Stdout, os.Stderr, os.LookupEnv}))
}

// perigee runs one command and returns its exit code.
func perigee(args []string, c console) int {
	parser, exited := newParser(c)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	chosen, err := parser.Parse(args)
	if exited() {
		return 0
	}
	if err != nil {
		report(c.err, event.WithHint(err, "perigee "+commandOf(parser, args)+"--help shows how"))
		return exitUsage
	}
	return conclude(c.err, chosen.Run(&c))
}

// newParser makes the parser of the command line. exited tells whether it has
// answered by itself, as it does to --help.
func newParser(c console) (parser *kong.Kong, exited func() bool) {
	done := false
	parser, err := kong.New(&commands{},
		kong.Name("perigee"),
		kong.Description("Drains event queues through Lua into tables, each event exactly once."),
		kong.Writers(c.out, c.err),
		kong.Exit(func(int) { done = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		panic(fmt.Sprintf("the command line is declared wrongly: %v", err))
	}
	return parser, func() bool { return done }
}

// commandOf names the command that args are for, followed by a space.
func commandOf(parser *kong.Kong, args []string) string {
	for _, command := range parser.Model.Children {
		if command.Name == args[0] {
			return command.Name + " "
		}
	}
	return ""
}
