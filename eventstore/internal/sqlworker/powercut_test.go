//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder turns the test's process into a program that is recorded.
const powercutFolder = "SQLWORKER_POWERCUT"

// sealOnly turns it into one that seals and retries failures.
const sealOnly = "SQLWORKER_SEAL"

// A program replaces the testing.TB in test helpers that run outside of a test.
type program struct {
	testing.TB
	folder string
}

func (program) Helper()                  {}
func (program) Cleanup(func())           {}
func (program) Context() context.Context { return context.Background() }
func (p program) TempDir() string        { return p.folder }

func (p program) Errorf(format string, args ...any) { p.Fatal(fmt.Sprintf(format, args...)) }

func (program) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// sealAndMerge seals two log files, of two days each, and merges the results. It prints the
// files in the manifest.
func sealAndMerge(folder string) {
	if os.Getenv(sealOnly) != "" {
		sealAgain(folder)
		return
	}
	f := newFolder(program{folder: folder}, sqlclient.Options{Threads: 1})
	defer f.client.Close()
	f.LogSize = 64 << 10
	table := f.AddTable("events", storetest.Column(5, "key", event.String))
	table.Bloom = []string{"key"}
	const day = 86400
	for number := range uint64(2) {
		f.AppendFrame(number+1, storetest.FrameOf(table, 20, storetest.Row(day-10)))
		f.Seal(number + 1)
		fmt.Println("sealed")
	}
	f.MergeAll(table)
	fmt.Println("merged")
}

// sealAgain seals two log files like sealAndMerge, without merging. It retries failures under
// another number, and continues where a killed process stopped.
func sealAgain(path string) {
	runtime.LockOSThread() // strace counts calls by thread: this one saves the manifest
	f := &folder{Folder: &storetest.Folder{T: program{folder: path}, Path: path, LogSize: 64 << 10}, client: sqlclient.New(sqlclient.Options{Threads: 1, Folder: path})}
	defer f.client.Close()
	attempt := func(do func() error) {
		for try := 0; ; try++ {
			err := do()
			if err == nil {
				return
			}
			fmt.Println("failed", err)
			if try == 5 {
				f.T.Fatal(err)
			}
		}
	}
	save := func() {
		f.M.Version++
		attempt(func() error { return manifest.NewWriter(path).Save(f.M) })
	}
	var err error
	if f.M, err = manifest.Load(path); os.IsNotExist(err) {
		f.M = manifest.New()
		attempt(func() error { return durable.MkdirAll(manifest.TablesFolder(path), 0o700) })
		if err := os.MkdirAll(manifest.LogFolder(path), 0o700); err != nil {
			f.T.Fatal(err)
		}
		f.M.Tables = []*manifest.Table{{ID: 1, Name: "events", Time: "time", Event: "event", NextColumn: 5, Bloom: []string{"event"},
			Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{storetest.Column(2, "id", event.Int64), storetest.Column(3, "time", event.Timestamp), storetest.Column(4, "event", event.String)}}}}}
		f.M.NextTable = 2
		save()
	} else if err != nil {
		f.T.Fatal(err)
	}
	table := f.M.Tables[0]
	const day = 86400
	for number := f.M.LogStart; number <= 2; number++ {
		f.AppendFrame(number, storetest.FrameOf(table, 20, storetest.Row(day-10)))
		end := f.Ends[len(f.Ends)-1]
		attempt(func() error {
			written, err := f.client.WriteSegment(f.T.Context(), protocol.Segment{Version: f.M.Version, Log: end, Number: f.M.NextSegment})
			f.M.NextSegment++
			for _, w := range written {
				if err == nil {
					table.Files = append(table.Files, &w.File)
				}
			}
			return err
		})
		f.M.LogStart = number + 1
		save()
		fmt.Println("sealed", number)
	}
}

func sealRun(folder, fault string) powercut.Run {
	return powercut.SelfRun(fault, powercutFolder+"="+folder, sealOnly+"=yes")
}

// TestFailedSync makes one sync of each thread fail and cuts the power later. Each file in
// the manifest must be complete.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(3) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, sealRun(folder, fmt.Sprintf("fsync:error=EIO:when=%d", n))).EachCut(t, 100, checkSealed(folder))
		})
	}
}

// TestKillAndPowerCut kills the process or the worker at a sync, and cuts the power while
// another continues.
func TestKillAndPowerCut(t *testing.T) {
	for n := range powercut.SomeOf(6) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			killed := sealRun(folder, fmt.Sprintf("fsync:signal=KILL:when=%d", n))
			powercut.Record(t, folder, killed, sealRun(folder, "")).EachCut(t, 60, checkSealed(folder))
		})
	}
}

// checkSealed returns a check that compares the files in the manifest with those of the
// recorded folder, and checks their minimum number.
func checkSealed(folder string) func(t *testing.T, after string, said []string) {
	return func(t *testing.T, after string, said []string) {
		sealed := 0
		for _, line := range said {
			_, _ = fmt.Sscanf(line, "sealed %d", &sealed)
		}
		m, err := manifest.Load(after)
		if os.IsNotExist(err) && sealed == 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if files := checkFiles(t, m, folder, after); files < 4*sealed {
			t.Errorf("the manifest names %d files, and %d files of the log are sealed", files, sealed)
		}
	}
}

// checkFiles compares each file in the manifest with the one in the recorded folder, and
// returns the number of files.
func checkFiles(t *testing.T, m *manifest.Manifest, folder, after string) (files int) {
	t.Helper()
	for path := range m.Files(after) {
		files++
		name, err := filepath.Rel(after, path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the manifest has %s with %d bytes, and the disk %d of them, %v", name, len(want), len(got), err)
		}
	}
	return files
}

// TestPowerCutLosesOne cuts the power at every moment of sealing and merging, and loses one
// unsynced write, name or file. Each file in the manifest must be complete.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	recording := powercut.Record(t, folder, powercut.SelfRun("", powercutFolder+"="+folder))
	if said := strings.Join(recording.Said(), " "); said != "sealed sealed merged" {
		t.Fatalf("the program says %q", said)
	}
	recording.EachLoss(t, func(t *testing.T, after string, said []string) {
		m, err := manifest.Load(after)
		if os.IsNotExist(err) && len(said) == 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		files := checkFiles(t, m, folder, after)
		if least := 4 * min(len(said), 1); files < least || len(said) == 2 && files < 8 && files != 4 {
			t.Errorf("the manifest names %d files after %q", files, said)
		}
	})
}
