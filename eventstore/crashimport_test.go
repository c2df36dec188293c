//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
)

// crashImportFolder turns the test's process into one that imports an endless file, backs up
// the store meanwhile, and is killed. It prints:
//
//	imported NEXT  the rows before NEXT are durable
//	backup NEXT    the file backup.tar contains them
const crashImportFolder = "EVENTSTORE_CRASH_IMPORT"

const (
	importPipeline = "import of files" // see package fileimport
	importedFile   = "sha256:endless"
	importedTable  = "imported"
	backupName     = "backup.tar"
	backupPartial  = "backup.partial"
)

func importAndBackUp(folder string) error {
	s, err := Open(filepath.Join(folder, "events"), workOptions())
	if err != nil {
		return err
	}
	table, err := s.Table(importedTable, TableConfig{Time: "time"})
	if err != nil {
		return err
	}
	p, done, err := table.TakeOver(context.Background(), importPipeline, importedFile)
	if err != nil {
		return err
	}
	next := done.Next(0)
	w := &workload{}
	for batch := 0; ; batch++ {
		out := outputOf(next, workDocs(importedTable, next)...)
		// One row in a batch is rejected, as with --rejected.
		first := out.Ends[0]
		out.Data, out.Ends, out.From = out.Data[first:], out.Ends[1:], out.From[1:]
		for i := range out.Ends {
			out.Ends[i] -= first
		}
		if err := p.Append(context.Background(), out); err != nil {
			return err
		}
		next += workBatch
		w.say("imported %d", next)
		if batch%5 == 4 {
			if err := writeBackup(s, folder); err != nil {
				return err
			}
			w.say("backup %d", next)
		}
	}
}

func writeBackup(s *Store, folder string) error {
	partial := filepath.Join(folder, backupPartial)
	out, err := os.Create(partial)
	if err != nil {
		return err
	}
	if err := errors.Join(s.Backup(context.Background(), out), out.Close()); err != nil {
		return err
	}
	return os.Rename(partial, filepath.Join(folder, backupName))
}

// TestCrashImport repeatedly kills a process that imports a file and backs up the store. Each
// row must exist once, a complete backup must have the reported rows, and restoring an
// incomplete one must restore nothing.
func TestCrashImport(t *testing.T) {
	folder := t.TempDir()
	r := testseed.New(t)
	imported, backups := uint64(0), 0
	for kill := range countFrom(t, "PERIGEE_STORE_IMPORT_KILLS", 4) {
		backedUp := uint64(0)
		for _, line := range workAndKill(t, crashImportFolder, folder, 6+r.IntN(25), time.Duration(r.IntN(50_000))*time.Microsecond) {
			var next uint64
			if _, err := fmt.Sscanf(line, "imported %d", &next); err == nil {
				imported = next
			} else if _, err := fmt.Sscanf(line, "backup %d", &next); err == nil {
				backedUp, backups = next, backups+1
			}
		}
		figures.kills++
		s := openWork(t, filepath.Join(folder, "events"))
		figures.add(checkImported(t, s, imported))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		checkPartialBackup(t, filepath.Join(folder, backupPartial))
		if backedUp > 0 {
			figures.add(checkWholeBackup(t, filepath.Join(folder, backupName), backedUp))
		}
		if t.Failed() {
			t.Fatalf("after kill %d", kill+1)
		}
	}
	if backups == 0 {
		t.Error("no backup was written: the test proves little")
	}
}

// checkImported checks that each of the first rows of the file exists once, except the
// rejected ones.
func checkImported(t *testing.T, s *Store, least uint64) (v verdict) {
	t.Helper()
	table := s.tableNamed(importedTable)
	if table == nil {
		if least > 0 {
			t.Error("the table is gone")
			v.lost += int(least)
		}
		return v
	}
	committed, err := committedRanges(table, importPipeline, importedFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, gap := range committed.Missing(event.Range{Count: least}) {
		t.Errorf("rows %v were imported, and the table has %v", gap, committed)
		v.lost += int(gap.Count)
	}
	var rows, ids, leftOut int
	answer := ask(t, s, fmt.Sprintf("SELECT count(*), count(DISTINCT id), count(*) FILTER (id %% %d = 0) FROM imported", workBatch))
	if _, err := fmt.Sscanf(answer, "%d,%d,%d", &rows, &ids, &leftOut); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	want := countIn(committed, 0, 1<<62) / workBatch * (workBatch - 1)
	if rows != want || ids != want || leftOut > 0 {
		t.Errorf("the table has %d rows with %d ids, %d of them were left out; %d were imported", rows, ids, leftOut, want)
		v.lost += max(want-ids, 0)
		v.duplicated += rows - min(ids, want)
	}
	return v
}

// checkWholeBackup restores a backup and checks that it has the required rows.
func checkWholeBackup(t *testing.T, name string, least uint64) verdict {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "events")
	in, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := Restore(folder, in); err != nil {
		t.Fatalf("a whole backup: %v", err)
	}
	s := openWork(t, folder)
	defer s.Close()
	return checkImported(t, s, least)
}

// checkPartialBackup restores the backup that a kill has left. The restore must fail unless
// the backup was already complete.
func checkPartialBackup(t *testing.T, name string) {
	t.Helper()
	in, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	folder := filepath.Join(t.TempDir(), "events")
	if err := Restore(folder, in); err == nil {
		return
	} else if !strings.Contains(err.Error(), "the backup is damaged") {
		t.Errorf("half a backup: %v", err)
	}
	if left, _ := filepath.Glob(folder + "*"); len(left) > 0 {
		t.Errorf("half a backup restores %v", left)
	}
}
