package eventservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/fileimport"
	"github.com/perigeedb/perigee/internal/durable"
)

// An ImportFile describes an imported file and its table.
type ImportFile struct {
	Table string `json:"table"`          // created if it is missing
	Time  string `json:"time,omitempty"` // time column of a new table
	File  string `json:"file"`           // identifies the content of the file
	// Columns are the declared columns of a new table, of types of the configuration.
	Columns []catalog.Column `json:"columns,omitempty"`
	Again   bool             `json:"again,omitempty"` // append the rows again, even if they were imported before
}

// Inferred is a table that an import has created, with inferred types.
type Inferred struct {
	Table       string
	Declaration string // line of YAML that declares its times, which are text; "" without times
}

// An Importer appends the rows of one file to a table of the event store: a fileimport.Target.
type Importer struct {
	file     ImportFile
	begun    importBegun
	inferred *Inferred
	append   func(ctx context.Context, rows *fileimport.Batch) ([]catalog.RejectedRow, error)
}

// An importBegun is the state of the table when an import begins.
type importBegun struct {
	Next     uint64 `json:"next"`     // first row that is not known to be imported
	Inferred bool   `json:"inferred"` // the import has created the table without declared columns
}

// The routes of an import.
const (
	importPath     = "/import"
	importRowsPath = "/import/rows"
)

// Import calls use to import a file into the event store in a data folder. A running engine
// writes the rows.
func Import(ctx context.Context, data string, file ImportFile, use func(*Importer) error) error {
	begun, err := admin.Perform[importBegun](ctx, data, importPath, file, nil)
	if errors.Is(err, admin.ErrNoEngine) {
		return importHere(ctx, data, file, use)
	}
	if err != nil {
		return err
	}
	return use(&Importer{file: file, begun: begun, append: func(ctx context.Context, rows *fileimport.Batch) ([]catalog.RejectedRow, error) {
		return sendRows(ctx, data, file, rows)
	}})
}

// importHere is Import without a running engine.
func importHere(ctx context.Context, data string, file ImportFile, use func(*Importer) error) error {
	if err := Available(); err != nil {
		return err
	}
	if err := durable.MkdirAll(filepath.Join(data, folderName), 0o700); err != nil { // the event store may not exist yet
		return fmt.Errorf("create the event store: %w", err)
	}
	return withStore(data, func(s folderStore) error {
		begun, err := s.beginImport(ctx, file)
		if err != nil {
			return err
		}
		return use(&Importer{file: file, begun: begun, append: func(ctx context.Context, rows *fileimport.Batch) ([]catalog.RejectedRow, error) {
			return s.importRows(ctx, file, rows)
		}})
	})
}

// Next returns the number of the first row that is not known to be imported. All rows before
// it are imported.
func (i *Importer) Next() uint64 { return i.begun.Next }

// Inferred describes the table that the import has created with inferred types, or is nil.
func (i *Importer) Inferred() *Inferred { return i.inferred }

// Append appends rows, which are durable when it returns. If the table rejects some of them,
// it returns these and appends none.
func (i *Importer) Append(ctx context.Context, rows *fileimport.Batch) ([]catalog.RejectedRow, error) {
	rejected, err := i.append(ctx, rows)
	if docs := rows.Split(); i.begun.Inferred && i.inferred == nil && err == nil && len(rejected) == 0 && len(docs) > 0 {
		i.inferred = &Inferred{Table: i.file.Table, Declaration: inferDeclaration(i.file.Table, i.file.Time, docs[:min(len(docs), undeclaredRowsMax)])}
	}
	return rejected, err
}

// sendRows sends rows to the engine.
func sendRows(ctx context.Context, data string, file ImportFile, rows *fileimport.Batch) (rejected []catalog.RejectedRow, err error) {
	var leaveOut []string
	for _, row := range rows.LeaveOut {
		leaveOut = append(leaveOut, strconv.FormatUint(uint64(row), 10))
	}
	query := url.Values{
		"table": {file.Table}, "file": {file.File}, "first": {strconv.FormatUint(rows.First, 10)}, "count": {strconv.FormatUint(rows.Count, 10)},
		"leave_out": {strings.Join(leaveOut, ",")},
	}
	var answer bytes.Buffer
	if err := admin.Post(ctx, data, importRowsPath, query, bytes.NewReader(rows.Documents), &answer, nil); err != nil {
		return nil, err
	}
	return rejected, json.Unmarshal(answer.Bytes(), &rejected)
}
