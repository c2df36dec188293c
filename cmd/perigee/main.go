// Command perigee moves events from queues through scripts into tables.
//
// This package defines the flags and the output of each command, one file per command.
// kinds.go lists the linked sources, sinks and languages. Packages engine and admin do
// the work.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/script/isolate"
)

// Exit codes. If a second signal stops a command, it exits with 128 plus the signal's
// number, like a shell.
const (
	exitFailure = 1
	exitUsage   = 2
)

type commands struct {
	Run        runCommand        `cmd:"" group:"Pipelines:" help:"Run the pipelines of a configuration."`
	Check      checkCommand      `cmd:"" group:"Pipelines:" help:"Check a configuration and its scripts; no server is needed."`
	Eval       evalCommand       `cmd:"" group:"Scripts:" help:"Run a script on lines of JSON from standard input."`
	Init       initCommand       `cmd:"" group:"Trying it out:" help:"Write a new project: configuration, script, events and a test."`
	Inspect    inspectCommand    `cmd:"" group:"Trying it out:" help:"Show the fields of events: types, values, times, and what is odd."`
	Test       testCommand       `cmd:"" group:"Scripts:" help:"Run tests of pipelines; no server is needed."`
	Diff       diffCommand       `cmd:"" group:"Scripts:" help:"Compare two versions of a script on the same events."`
	Query      queryCommand      `cmd:"" group:"Event store:" help:"Query the event store with SQL."`
	Tail       tailCommand       `cmd:"" group:"Event store:" help:"Follow the rows that a running engine appends to a table."`
	Table      tableCommand      `cmd:"" group:"Event store:" help:"Show and change the tables of the event store, and delete rows."`
	Import     importCommand     `cmd:"" group:"Event store:" help:"Append the rows of files to a table of the event store, each once."`
	Export     exportCommand     `cmd:"" group:"Event store:" help:"Write the rows of a table of the event store into files."`
	Backup     backupCommand     `cmd:"" group:"Event store:" help:"Back up the event store into one file."`
	Restore    restoreCommand    `cmd:"" group:"Event store:" help:"Restore the event store from a backup."`
	Replay     replayCommand     `cmd:"" group:"Pipelines:" help:"Send stored events through a pipeline once more, into another table or folder."`
	Status     statusCommand     `cmd:"" group:"Pipelines:" help:"Show the state of the pipelines of a running engine."`
	Top        topCommand        `cmd:"" group:"Pipelines:" help:"Show the pipelines of a running engine on the terminal, with rates and lag."`
	Tap        tapCommand        `cmd:"" group:"Pipelines:" help:"Show events live as they flow through a pipeline of a running engine."`
	Pause      pauseCommand      `cmd:"" group:"Pipelines:" help:"Pause a pipeline until it is resumed, even after a restart."`
	Resume     resumeCommand     `cmd:"" group:"Pipelines:" help:"Resume a paused pipeline."`
	LogLevel   logLevelCommand   `cmd:"" group:"Pipelines:" help:"Show or change the log level of a running engine."`
	Shadow     shadowCommand     `cmd:"" group:"Pipelines:" help:"Show how the new version of a script that runs beside it differs, on live events."`
	Promote    promoteCommand    `cmd:"" group:"Pipelines:" help:"Make the new version that runs beside a script the script of the pipeline."`
	DLQ        dlqCommand        `cmd:"" group:"Pipelines:" name:"dlq" help:"Show, retry and delete dead letters (failed events)."`
	Position   positionCommand   `cmd:"" group:"Pipelines:" help:"Show and set the positions that pipelines continue from."`
	State      stateCommand      `cmd:"" group:"Pipelines:" help:"Show what the scripts of pipelines remember."`
	Config     configCommand     `cmd:"" group:"Pipelines:" help:"Show a configuration with its defaults, or the JSON Schema of configurations."`
	Node       nodeCommand       `cmd:"" group:"Node database:" help:"Read, write and maintain a node database."`
	Demo       demoCommand       `cmd:"" group:"Trying it out:" help:"Move a million generated events through a script into a table, and verify the result."`
	Verify     verifyCommand     `cmd:"" group:"Trying it out:" help:"Kill processes of a pipeline at random, and check that each event is delivered once."`
	Bench      benchCommand      `cmd:"" group:"Scripts:" help:"Measure a script with different numbers of VMs, goroutines, cores and events."`
	List       listCommand       `cmd:"" group:"About this program:" help:"List sources, sinks, languages and metrics, with their settings."`
	Version    versionCommand    `cmd:"" group:"About this program:" help:"Show the version and the linked components."`
	Completion completionCommand `cmd:"" group:"About this program:" help:"Print a completion script for a shell."`
	Help       helpCommand       `cmd:"" group:"About this program:" help:"Show the help of a command."`
	pluginCommands

	ShowVersion bool `name:"version" short:"v" help:"Show the version."`
}

// helpCommand adds help to the list of commands: perigee turns "help run" into "run --help".
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

// A console holds the input, the outputs and the environment of a command.
type console struct {
	in       io.Reader
	out, err io.Writer
	lookup   func(string) (string, bool) // environment

	isolation *isolate.Launcher
}

func main() {
	eventservice.RunWorker()                  // first, because this process may be a worker of the event store
	isolation := isolate.Init(languages()...) // then, because this process may be a script worker
	os.Exit(perigee(os.Args[1:], console{os.Stdin, os.Stdout, os.Stderr, os.LookupEnv, isolation}))
}

// perigee runs one command and returns its exit code.
func perigee(args []string, c console) int {
	// A terminal gets all text of events, scripts and servers escaped.
	for _, w := range []*io.Writer{&c.out, &c.err} {
		*w = terminal.Guard(*w)
		if escaping, ok := (*w).(*terminal.Writer); ok {
			defer escaping.Flush()
		}
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(args[1:], "--help")
	case args[0] == "test":
		args = acceptSingleDash(args)
	case args[0] == "--version" || args[0] == "-v":
		args = []string{"version"}
	}
	parser, exited := newParser(c)
	chosen, err := parser.Parse(args)
	if exited() {
		return 0
	}
	if err != nil {
		printError(c.err, err, fmt.Sprintf("perigee %s--help shows the usage", commandOf(parser, args)))
		return exitUsage
	}
	return exitCode(c.err, chosen.Run(&c))
}

// newParser returns the parser of the command line. exited reports whether the parser
// has printed the help that the arguments ask for.
func newParser(c console) (parser *kong.Kong, exited func() bool) {
	done := false
	parser, err := kong.New(&commands{},
		kong.Name("perigee"),
		kong.Description("Moves events from queues through Lua into tables, each event exactly once."),
		kong.Writers(c.out, c.err),
		kong.Exit(func(int) { done = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
	)
	if err != nil {
		panic(fmt.Sprintf("invalid declaration of the command line: %v", err))
	}
	return parser, func() bool { return done }
}

// commandOf returns the command that args name, such as "dlq list ".
func commandOf(parser *kong.Kong, args []string) string {
	node := parser.Model.Node
	var words strings.Builder
	for _, arg := range args {
		child := childOf(node, arg)
		if child == nil {
			break
		}
		node = child
		words.WriteString(arg + " ")
	}
	return words.String()
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}
