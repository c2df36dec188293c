package goplugin

import (
	"errors"
	"maps"

	"github.com/perigeedb/perigee/script"
)

// Handler returns a script.Handler that has nothing loaded yet and will look
// symbol up in what it loads; "" means DefaultFunc.
func Handler(symbol string) script.Handler { return &handler{symbol: symbol} }

type handler struct {
	symbol string
	plugin *Plugin
}

var _ script.Handler = (*handler)(nil)

func (h *handler) Load(path string) (script.Handler, error) {
	p, err := Open(path, h.symbol)
	if err != nil {
		return nil, err
	}
	if p.Row == nil {
		return nil, errors.New(p.String() + " takes whole batches: a handler wants func(map[string]any) (any, error)")
	}
	return &handler{symbol: h.symbol, plugin: p}, nil
}

func (h *handler) String() string { return "plugin" }

// Value hands the function a copy of the row, so that it may change what it gets.
func (h *handler) Value(row map[string]any) (any, error) {
	if h.plugin == nil {
		return nil, errors.New("no plugin is loaded: call Load first")
	}
	value, fault := protect(func() (any, error) { return h.plugin.Row(maps.Clone(row)) })
	if fault != nil {
		return nil, fault
	}
	return value, nil
}
