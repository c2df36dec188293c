package goplugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/perigeedb/perigee/event"
)

// runRows passes the events to the plugin one by one, as maps.
func (r *run) runRows() {
	encoder := json.NewEncoder((*writer)(r.result.Rows()))
	encoder.SetEscapeHTML(false)
	for i := range r.in.Len() {
		if r.result.Failed(i) {
			continue
		}
		if r.ctx.Err() != nil || r.limit != nil {
			return
		}
		if current := r.script.opts.Current; current != nil {
			current.Store(uint32(i))
		}
		if err := r.runRow(i, encoder); err != nil {
			r.result.Fail(i, "script", err)
		}
	}
}

// runRow calls the plugin on event i. A panic while encoding is recovered, too, because
// a value may have an encoding method of the plugin.
func (r *run) runRow(i int, encoder *json.Encoder) (err error) {
	defer r.script.plugin.recoverPanic(&err)
	value, err := r.script.plugin.Row(r.decoder.decode(r.in.Doc(i)))
	if err != nil {
		return err
	}
	if r.script.opts.ReturnsValue {
		return r.encode(i, encoder, bytesAsText(value), 0)
	}
	if routed, ok := value.(map[string][]map[string]any); ok {
		return r.sendRouted(i, encoder, routed)
	}
	rows, err := r.script.plugin.rowsOf(value)
	if err != nil {
		return err
	}
	return r.sendRows(i, encoder, rows, 0)
}

// sendRouted adds rows to their sinks, in the order of the sinks' names.
func (r *run) sendRouted(i int, encoder *json.Encoder, rows map[string][]map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		to := uint64(0)
		if name != "" {
			var err error
			if to, err = r.script.opts.Route(name); err != nil {
				return err
			}
		}
		if err := r.sendRows(i, encoder, rows[name], to); err != nil {
			return err
		}
	}
	return nil
}

// sendRows adds the rows of event i, for a set of sinks.
func (r *run) sendRows(i int, encoder *json.Encoder, rows []map[string]any, to uint64) error {
	for _, row := range rows {
		if r.limit != nil || r.result.Failed(i) {
			return nil
		}
		if row == nil {
			continue
		}
		if err := r.encode(i, encoder, row, to); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf returns the rows in a result. Nil rows are skipped.
func (p *Plugin) rowsOf(value any) ([]map[string]any, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return []map[string]any{v}, nil
	case []map[string]any:
		return v, nil
	}
	return nil, fmt.Errorf("%s returned %T; want a map[string]any, a []map[string]any, a map[string][]map[string]any by sink, or nil to drop the event", p.symbol, value)
}

// bytesAsText returns a []byte, such as json.Marshal returns it, as a string.
func bytesAsText(value any) any {
	if text, ok := value.([]byte); ok {
		return string(text)
	}
	return value
}

// encode adds a document to the rows.
func (r *run) encode(i int, encoder *json.Encoder, value any, to uint64) error {
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("encode result of %s: %w", r.script.plugin.symbol, err)
	}
	rows := r.result.Rows()
	rows.Data = rows.Data[:len(rows.Data)-len("\n")]
	r.endDocument(i, to)
	return nil
}

// A writer appends to the documents of an output.
type writer event.Output

func (w *writer) Write(p []byte) (int, error) {
	w.Data = append(w.Data, p...)
	return len(p), nil
}
