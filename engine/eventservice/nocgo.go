//go:build !linux || !cgo

package eventservice

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/fileimport"
	"github.com/perigeedb/perigee/eventstore/systemtable"
	"github.com/perigeedb/perigee/sink"
)

// Available returns an error if this build has no event store.
func Available() (err error) {
	return event.WithHint(errors.New("this perigee has no event store: it was built without cgo, or not for Linux"), "build it on Linux with CGO_ENABLED=1")
}

// RunWorker does nothing, because this build has no event store.
func RunWorker() {}

// Version returns no version.
func Version() []string { return nil }

// A Store is never used without cgo.
type Store struct{}

var _ engine.Service = (*Store)(nil)

// Kinds returns no sinks.
func (*Store) Kinds() []sink.Kind { return nil }

// Configure implements engine.Service.
func (*Store) Configure(c *config.Config) error {
	if len(c.Tables) > 0 {
		return c.Tables[0].At(Available(), event.HintOf(Available()))
	}
	if len(c.Functions) > 0 {
		return c.Functions[0].At(Available(), event.HintOf(Available()))
	}
	return nil
}

// Start implements engine.Service.
func (*Store) Start(h engine.Host) error {
	h.Handle("POST /query", admin.Handler(func(io.Writer, *http.Request) error { return Available() }))
	return nil
}

// Collect implements prometheus.Collector.
func (*Store) Collect(chan<- prometheus.Metric) {}

// Close implements engine.Service.
func (*Store) Close() error { return nil }

// Query returns the error of Available.
func Query(context.Context, string, Request, io.Writer) error { return Available() }

// ReadIDs returns the error of Available.
func ReadIDs(context.Context, string, string, string, func(uint64)) error { return Available() }

// Macros returns none.
func Macros() []Macro { return nil }

// SystemTables returns none.
func SystemTables() []systemtable.Table { return nil }

// Functions returns the functions that queries may call.
func Functions() []FunctionGroup { return nil }

// Tables returns the error of Available.
func Tables(context.Context, string) ([]Table, error) { return nil, Available() }

// DeleteRows returns the error of Available.
func DeleteRows(context.Context, string, string, string) (Delete, error) {
	return Delete{}, Available()
}

// WaitDeleted returns the error of Available.
func WaitDeleted(context.Context, string, Delete) error { return Available() }

// CancelDelete returns the error of Available.
func CancelDelete(context.Context, string, string, uint64) (int, error) { return 0, Available() }

// CancelRecompute returns the error of Available.
func CancelRecompute(context.Context, string, string, string) (Recompute, error) {
	return Recompute{}, Available()
}

// RecomputeColumn returns the error of Available.
func RecomputeColumn(context.Context, string, string, string) (Recompute, error) {
	return Recompute{}, Available()
}

// RecomputeState returns the error of Available.
func RecomputeState(context.Context, string, Recompute) (Recompute, error) {
	return Recompute{}, Available()
}

// DropTable returns the error of Available.
func DropTable(context.Context, string, string) (bool, error) { return false, Available() }

// RenameTable returns the error of Available.
func RenameTable(context.Context, string, TableChange) error { return Available() }

// SetTableTime returns the error of Available.
func SetTableTime(context.Context, string, TableChange) error { return Available() }

// WaitDivided returns the error of Available.
func WaitDivided(context.Context, string, string) error { return Available() }

// DropColumn returns the error of Available.
func DropColumn(context.Context, string, string, string) error { return Available() }

// Uses returns nothing.
func Uses(*config.Config, string) []string { return nil }

// CheckTables returns nothing, because Configure refuses tables.
func CheckTables(*config.Config) ([]string, error) { return nil, nil }

// Tail returns the error of Available.
func Tail(context.Context, string, TailRequest, func(*TailBatch) error) error { return Available() }

// Backup returns the error of Available.
func Backup(context.Context, string, io.Writer) error { return Available() }

// Restore returns the error of Available.
func Restore(string, io.Reader) error { return Available() }

// OpenParquet returns the error of Available.
func OpenParquet(context.Context, string) (fileimport.File, error) { return nil, Available() }

// An Importer is never used without cgo.
type Importer struct{}

// Import returns the error of Available.
func Import(context.Context, string, ImportFile, func(*Importer) error) error { return Available() }

// Next returns 0.
func (*Importer) Next() uint64 { return 0 }

// Inferred returns nil.
func (*Importer) Inferred() *Inferred { return nil }

// Append returns the error of Available.
func (*Importer) Append(context.Context, *fileimport.Batch) ([]fileimport.RejectedRow, error) {
	return nil, Available()
}

// OpenElsewhere returns the error of Available.
func OpenElsewhere(context.Context, string, map[string]string) (*Store, error) {
	return nil, Available()
}
