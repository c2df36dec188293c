//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
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
