//go:build linux && cgo

package eventservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/fileimport"
	"github.com/perigeedb/perigee/internal/durable"
)

// An Importer appends the rows of one file to a table of the event store: a fileimport.Target.
type Importer struct {
	file     ImportFile
	begun    importBegun
	inferred *Inferred
	append   func(ctx context.Context, rows *fileimport.Batch) ([]fileimport.RejectedRow, error)
}

// An importBegun is the state of the table when an import begins.
type importBegun struct {
	Next     uint64 `json:"next"`     // first row that is not known to be imported
	Inferred bool   `json:"inferred"` // the import has created the table without declared columns
}

// Import calls use to import a file into the event store in a data folder. A running engine
// writes the rows.
func Import(ctx context.Context, data string, file ImportFile, use func(*Importer) error) error {
	var answer bytes.Buffer
	request, err := json.Marshal(file)
	if err != nil {
		return err
	}
	err = admin.Post(ctx, data, "/import", nil, bytes.NewReader(request), &answer)
	if errors.Is(err, admin.ErrNoEngine) {
		if err := durable.MkdirAll(filepath.Join(data, folderName), 0o700); err != nil { // the event store may not exist yet
			return fmt.Errorf("create the event store: %w", err)
		}
		return withStore(data, func(s *Store) error {
			begun, err := s.beginImport(ctx, file)
			if err != nil {
				return err
			}
			return use(&Importer{file: file, begun: begun, append: func(ctx context.Context, rows *fileimport.Batch) ([]fileimport.RejectedRow, error) {
				return s.importRows(ctx, file, rows)
			}})
		})
	}
	if err != nil {
		return err
	}
	i := &Importer{file: file, append: func(ctx context.Context, rows *fileimport.Batch) ([]fileimport.RejectedRow, error) {
		return sendRows(ctx, data, file, rows)
	}}
	if err := json.Unmarshal(answer.Bytes(), &i.begun); err != nil {
		return err
	}
	return use(i)
}

// Next returns the number of the first row that is not known to be imported. All rows before
// it are imported.
func (i *Importer) Next() uint64 { return i.begun.Next }

// Inferred describes the table that the import has created with inferred types, or is nil.
func (i *Importer) Inferred() *Inferred { return i.inferred }

// Append appends rows, which are durable when it returns. If the table rejects some of them,
// it returns these and appends none.
func (i *Importer) Append(ctx context.Context, rows *fileimport.Batch) ([]fileimport.RejectedRow, error) {
	rejected, err := i.append(ctx, rows)
	if docs := rows.Split(); i.begun.Inferred && i.inferred == nil && err == nil && len(rejected) == 0 && len(docs) > 0 {
		i.inferred = &Inferred{Table: i.file.Table, Declaration: inferDeclaration(i.file.Table, i.file.Time, docs[:min(len(docs), undeclaredRowsMax)])}
	}
	return rejected, err
}

// sendRows sends rows to the engine.
func sendRows(ctx context.Context, data string, file ImportFile, rows *fileimport.Batch) (rejected []fileimport.RejectedRow, err error) {
	var leaveOut []string
	for _, row := range rows.LeaveOut {
		leaveOut = append(leaveOut, strconv.FormatUint(uint64(row), 10))
	}
	query := url.Values{
		"table": {file.Table}, "file": {file.File}, "first": {strconv.FormatUint(rows.First, 10)}, "count": {strconv.FormatUint(rows.Count, 10)},
		"leave_out": {strings.Join(leaveOut, ",")},
	}
	var answer bytes.Buffer
	if err := admin.Post(ctx, data, "/import/rows", query, bytes.NewReader(rows.Documents), &answer); err != nil {
		return nil, err
	}
	return rejected, json.Unmarshal(answer.Bytes(), &rejected)
}

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
	begun.Inferred = len(file.Columns) == 0 && !hasTable(store, file.Table)
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
func (s *Store) importRows(ctx context.Context, file ImportFile, rows *fileimport.Batch) ([]fileimport.RejectedRow, error) {
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
	var all []fileimport.RejectedRow
	for _, r := range rejected.Rows {
		all = append(all, fileimport.RejectedRow{Row: r.Row, Column: r.Column, Reason: r.Reason})
	}
	return all, nil
}

// serveImport answers with an importBegun.
func (s *Store) serveImport(w io.Writer, r *http.Request) error {
	var file ImportFile
	if err := json.NewDecoder(r.Body).Decode(&file); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	begun, err := s.beginImport(r.Context(), file)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(begun)
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
