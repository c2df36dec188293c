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
	"github.com/perigeedb/perigee/eventstore/catalog"
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

// StoreFormats returns "".
func StoreFormats() string { return "" }

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

// withStore returns the error of Available.
func withStore(string, func(folderStore) error) error { return Available() }

// Macros returns none.
func Macros() []catalog.Macro { return nil }

// Functions returns none.
func Functions() []catalog.FunctionGroup { return nil }

// SystemTables returns none.
func SystemTables() []systemtable.Table { return nil }

// Uses returns nothing.
func Uses(*config.Config, string) []string { return nil }

// CheckTables returns nothing, because Configure refuses tables.
func CheckTables(*config.Config) ([]string, error) { return nil, nil }

// CheckLakes checks nothing.
func CheckLakes(context.Context, *config.Config) []engine.Connection { return nil }

// Restore returns the error of Available.
func Restore(string, io.Reader) error { return Available() }

// OpenParquet returns the error of Available.
func OpenParquet(context.Context, string) (fileimport.File, error) { return nil, Available() }

// OpenElsewhere returns the error of Available.
func OpenElsewhere(context.Context, string, map[string]string) (*Store, error) {
	return nil, Available()
}

// A Filter is never used without cgo.
type Filter struct{}

// NewFilter returns the error of Available.
func NewFilter(context.Context, string) (*Filter, error) { return nil, Available() }

// Pass returns the error of Available.
func (*Filter) Pass(context.Context, []byte) ([]int, error) { return nil, Available() }

// Close does nothing.
func (*Filter) Close() error { return nil }
