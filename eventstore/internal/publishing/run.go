package publishing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/release"
)

// program is the name of the committer.
const program = "perigee-lake"

// timeMax limits the time of an order: the committer must not stop publishing for good. It gives
// up a table without progress long before. The next order goes on with the files that this one
// has put.
const timeMax = 30 * time.Minute

var errTimeMax = fmt.Errorf("%s was ended after %v", program, timeMax)

// Run carries out an order by the committer, a program beside that of this process or on the
// path. Without an error, the report has all tables of the order: if ctx ends, some of them with
// an error, and others that were published before.
func Run(ctx context.Context, order *lake.Order) (*lake.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeMax, errTimeMax)
	defer cancel()
	path, err := findProgram()
	if err != nil {
		return nil, err
	}
	versioned := *order
	versioned.Version = release.Version
	text, err := json.Marshal(&versioned)
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	command := exec.CommandContext(ctx, path, "publish")
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), &out, &said
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends that has started the process
	failed := command.Run()
	runtime.UnlockOSThread()
	report := new(lake.Report)
	unread := json.Unmarshal(out.Bytes(), report)
	if unread == nil && (failed == nil || ctx.Err() != nil) {
		completeReport(ctx, order, report)
		return report, nil
	}
	if err := failed; err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == lake.ExitVersion {
			return nil, &event.PermanentError{Err: errors.New(lastLine(said.String())), Hint: hintOfVersion}
		}
		return nil, fmt.Errorf("%s: %w: %s", program, err, lastLine(said.String()))
	}
	return nil, fmt.Errorf("%s: read its report: %w", program, unread)
}

// completeReport adds the missing tables to the report, and to unfinished ones the reason that the
// committer was ended.
func completeReport(ctx context.Context, order *lake.Order, report *lake.Report) {
	for i := len(report.Tables); i < len(order.Tables); i++ {
		report.Tables = append(report.Tables, lake.TableReport{Table: order.Tables[i].Table, Error: "the committer's report omits the table"})
	}
	for i := range report.Tables {
		if r := &report.Tables[i]; ctx.Err() != nil && strings.Contains(r.Error, lake.ErrEnded.Error()) {
			r.Error = fmt.Sprintf("%v: %s", context.Cause(ctx), r.Error)
		}
	}
}

// hintOfVersion is the hint for a committer of another release.
var hintOfVersion = "install perigee-lake " + release.Version + "; after an upgrade of both programs, restart the engine"

// CheckProgram checks that the committer is there and has the version of this process.
func CheckProgram(ctx context.Context) error {
	path, err := findProgram()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return &event.PermanentError{Err: fmt.Errorf("cannot read the version of %s: %w", path, err), Hint: hintOfVersion}
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if name, _, _ := strings.Cut(first, ","); name != program+" "+release.Version {
		return &event.PermanentError{Err: fmt.Errorf("%s is %s, and this is perigee %s", path, first, release.Version), Hint: hintOfVersion}
	}
	return nil
}

// Check tests whether the catalogs and the warehouses of lakes can be used. The result has an error or
// nil for each of them. It changes nothing.
func Check(ctx context.Context, lakes []lake.Settings) []error {
	order, failed := &lake.Order{}, make([]error, len(lakes))
	for _, one := range lakes {
		order.Tables = append(order.Tables, lake.TableOrder{Settings: one, Check: true})
	}
	report, err := Run(ctx, order)
	for i := range failed {
		if failed[i] = err; err == nil && report.Tables[i].Error != "" {
			failed[i] = &event.PermanentError{Err: errors.New(report.Tables[i].Error), Hint: cmp.Or(report.Tables[i].Hint, "correct lake.catalog or lake.warehouse of the table")}
		}
	}
	return failed
}

func findProgram() (string, error) {
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), program)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrNotFound) {
		return "", &event.PermanentError{Err: fmt.Errorf("the program %s, which publishes tables, is missing", program),
			Hint: "each package of perigee has it: put it beside perigee or on the path"}
	}
	return path, err
}

// lastLine returns the last line of a text that is not empty.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
