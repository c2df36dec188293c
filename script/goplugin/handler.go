package goplugin

import (
	"errors"
	"maps"
	"strings"

	"github.com/perigeedb/perigee/script"
)

// Handler returns a script.Handler that has nothing loaded yet and will look
// symbol up in what it loads; "" means DefaultFunc. It loads from a path or a
// file:// URI, and wants a RowFunc.
func Handler(symbol string) script.Handler { return &handler{symbol: symbol} }

type handler struct {
	symbol string
	plugin *Plugin
}

func (h *handler) Load(path string) (script.Handler, error) {
	p, err := Open(strings.TrimPrefix(path, "file://"), h.symbol)
	if err != nil {
		return nil, err
	}
	if p.Row == nil {
		return nil, p.errNotRowFunc()
	}
	return &handler{symbol: h.symbol, plugin: p}, nil
}

func (h *handler) String() string { return "plugin" }

// Value hands the function a copy of the row.
func (h *handler) Value(row map[string]any) (value any, err error) {
	if h.plugin == nil {
		return nil, errors.New("no plugin loaded; call Load first")
	}
	defer h.plugin.recoverPanic(&err)
	return h.plugin.Row(cloneRow(row))
}

// cloneRow copies a row as deep as a function may change it.
func cloneRow(row map[string]any) map[string]any {
	copied := maps.Clone(row)
	for key, value := range copied {
		switch value.(type) {
		case map[string]any, []any:
			copied[key] = clone(value)
		}
	}
	return copied
}

func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return cloneRow(v)
	case []any:
		copied := make([]any, len(v))
		for i := range v {
			copied[i] = clone(v[i])
		}
		return copied
	}
	return value
}
