//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// TestManifestIsReadOnce checks that a worker which has a version of the manifest does not
// read the file again for that version or an older one.
func TestManifestIsReadOnce(t *testing.T) {
	saved := manifest.New()
	var read []uint64
	folder := t.TempDir()
	m := manifests{reader: manifest.NewReader(folder), loaded: func(m *manifest.Manifest) { read = append(read, m.Version) }}
	for _, step := range []struct {
		saved, asked, want uint64 // want is 0 for an error
		read               []uint64
	}{
		{5, 6, 0, nil}, {5, 5, 5, []uint64{5}}, {7, 5, 5, []uint64{5}}, {7, 4, 5, []uint64{5}},
		{7, 6, 7, []uint64{5, 7}}, {7, 7, 7, []uint64{5, 7}}, {7, 8, 0, []uint64{5, 7}},
	} {
		saved.Version = step.saved
		if err := manifest.NewWriter(folder).Save(saved); err != nil {
			t.Fatal(err)
		}
		var version uint64
		got, err := m.load(step.asked)
		if err == nil {
			version = got.Version
		}
		if version != step.want || !slices.Equal(read, step.read) {
			t.Errorf("version %d of %d is saved: got %d, %v; want %d; read %v, want %v", step.asked, step.saved, version, err, step.want, read, step.read)
		}
	}
}

// TestRowsOfRequests reads the messages that follow a request. Only rows of a table are
// valid.
func TestRowsOfRequests(t *testing.T) {
	for _, test := range []struct {
		kind protocol.Kind
		body string
		err  error
	}{
		{protocol.RowsMessage, "\x02\x00\x00\x00[1]", nil}, {protocol.RowsMessage, "\x02\x00\x00\x00", nil},
		{protocol.RowsMessage, "\x02\x00\x00", protocol.ErrInvalidMessage}, {protocol.RowsMessage, "", protocol.ErrInvalidMessage},
		{protocol.ValuesMessage, "\x02\x00\x00\x00[1]", protocol.ErrInvalidMessage}, {protocol.RequestMessage, "{}", protocol.ErrInvalidMessage},
	} {
		var b bytes.Buffer
		w := protocol.NewWriter(&b)
		if err := errors.Join(w.Write(test.kind, []byte(test.body)), w.Flush()); err != nil {
			t.Fatal(err)
		}
		j := &job{in: protocol.NewReader(&b)}
		table, rows, err := j.nextRows()
		if err != test.err || err == nil && (table != 2 || string(rows) != test.body[4:]) {
			t.Errorf("message %d %q: table %d, rows %q, %v", test.kind, test.body, table, rows, err)
		}
		if _, _, err := j.nextRows(); err != protocol.ErrCanceled {
			t.Errorf("at the end of the stream: %v", err)
		}
	}
}

// TestWrongRequests requests missing objects. Each request returns an error, and the worker
// continues.
func TestWrongRequests(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(0)))
	f.Seal(1)
	file := table.Files[0].Name
	f.AppendFrame(2, storetest.FrameOf(table, 10, storetest.Row(10)))
	for name, ask := range map[string]func() error{
		"a version that is not there yet": func() error {
			_, err := storetest.Read(f.client.Query(t.Context(), sqlclient.Query{Version: f.M.Version + 1, SQL: `SELECT count(*) FROM events`}))
			return err
		},
		"a segment of such a version": func() error {
			_, err := f.client.WriteSegment(t.Context(), protocol.Segment{Version: f.M.Version + 1, Log: f.Ends[1], Number: 90})
			return err
		},
		"a file of the log that is missing": func() error {
			_, err := f.client.WriteSegment(t.Context(), protocol.Segment{Version: f.M.Version, Log: wal.FileEnd{Number: 70, End: 1000}, Number: 91})
			return err
		},
		"files of an unknown table": func() error {
			_, err := f.client.Merge(t.Context(), protocol.Merge{Version: f.M.Version, Table: 99, Groups: [][]string{{file}}, Number: 92})
			return err
		},
		"an unknown file": func() error {
			_, err := f.client.Merge(t.Context(), protocol.Merge{Version: f.M.Version, Table: table.ID, Groups: [][]string{{file, "2026-11-22/none.parquet"}}, Number: 93})
			return err
		},
		"a predicate for such a version":   func() error { return f.client.CheckPredicate(t.Context(), f.M.Version+1, table.ID, "true") },
		"a predicate for an unknown table": func() error { return f.client.CheckPredicate(t.Context(), f.M.Version, 99, "true") },
	} {
		if err := ask(); err == nil || errors.Is(err, sqlclient.ErrCrashed) {
			t.Errorf("%s: got error %v, want one of a worker that goes on", name, err)
		}
	}
	f.Want(`SELECT count(*) FROM events`, "20")
	if parquet, _ := filepath.Glob(filepath.Join(f.Path, "tables", "events", "*", "*.parquet")); len(parquet) != 1 {
		t.Errorf("got files %q, want one", parquet)
	}
}

// TestAbandonedRequest serves a request of a sender that is gone. The request is no longer
// watched, and its socket is closed.
func TestAbandonedRequest(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(pair[1]), "request")
	if err := unix.Close(pair[0]); err != nil {
		t.Fatal(err)
	}
	w := &worker{settings: protocol.Settings{Role: protocol.QueryRole}, memory: newMemoryWatch(-1 << 40)}
	w.serveJob(socket)
	if w.memory.evictOldest() { // every running request exceeds the limit
		t.Error("got a request that the watch of memory ends, want none, because none runs")
	}
	if err := socket.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("close the socket again: got %v, want %v", err, os.ErrClosed)
	}
}

// TestUnreadableSettings starts a worker with settings that are not JSON. It reports that and
// exits.
func TestUnreadableSettings(t *testing.T) {
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = []string{protocol.WorkerVariable + "={"}
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "sql worker: read the settings") {
		t.Errorf("it ends with %v and says %q", err, out)
	}
}
