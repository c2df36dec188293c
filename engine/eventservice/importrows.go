//go:build linux && cgo

package eventservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/fileimport"
)

// beginImport begins an import.
func (s *Store) beginImport(ctx context.Context, file ImportFile) (begun importBegun, err error) {
	store, err := s.open()
	if err != nil {
		return begun, err
	}
	if file.Again {
		if err := fileimport.Forget(ctx, store, file.Table, file.File); err != nil {
			return begun, err
		}
	}
	begun.Inferred = len(file.Columns) == 0 && store.FindTable(file.Table) == nil
	table := eventstore.TableConfig{Time: file.Time}
	for _, c := range file.Columns {
		column := tableColumn(&config.Column{Name: c.Name, Type: c.Type})
		column.Path = []string{c.Name} // a name may contain dots
		if c.Name != file.Time || column.Type == event.Timestamp || column.Type == event.TimestampNS {
			table.Columns = append(table.Columns, column)
		}
	}
	i, done, err := fileimport.Begin(ctx, store, file.Table, file.File, table)
	if err != nil {
		return begun, err
	}
	begun.Next = done.Next(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.imports == nil {
		s.imports = map[[2]string]*fileimport.Import{}
	}
	s.imports[file.key()] = i
	return begun, nil
}

func (f *ImportFile) key() [2]string { return [2]string{f.Table, f.File} }

// importRows appends rows of a started import.
func (s *Store) importRows(ctx context.Context, file ImportFile, rows *fileimport.Batch) ([]catalog.RejectedRow, error) {
	s.mu.Lock()
	i := s.imports[file.key()]
	s.mu.Unlock()
	if i == nil {
		return nil, errors.New("the engine was restarted during the import: import the file again")
	}
	err := i.Append(ctx, rows.First, rows.Count, rows.Split(), rows.LeaveOut)
	if errors.Is(err, eventstore.ErrFenced) {
		return nil, event.WithHint(errors.New("another import of the same file has taken over"), "wait for it, and import the file again if it fails")
	}
	rejected, ok := errors.AsType[*eventstore.RejectedRows](err)
	if !ok {
		return nil, err
	}
	return rejected.Rows, nil
}

const importBytesMax = 256 << 20 // of one request

// serveRows appends the documents in the body.
func (s *Store) serveRows(w io.Writer, r *http.Request) error {
	query := r.URL.Query()
	var rows fileimport.Batch
	_, err := fmt.Sscanf(query.Get("first")+" "+query.Get("count"), "%d %d", &rows.First, &rows.Count)
	if err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	for _, row := range strings.FieldsFunc(query.Get("leave_out"), func(r rune) bool { return r == ',' }) {
		n, err := strconv.ParseUint(row, 10, 32)
		if err != nil {
			return fmt.Errorf("decode the request: %w", err)
		}
		rows.LeaveOut = append(rows.LeaveOut, uint32(n))
	}
	if rows.Documents, err = io.ReadAll(io.LimitReader(r.Body, importBytesMax)); err != nil {
		return err
	}
	rejected, err := s.importRows(r.Context(), ImportFile{Table: query.Get("table"), File: query.Get("file")}, &rows)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(rejected)
}
