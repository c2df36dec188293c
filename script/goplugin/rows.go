package goplugin

import (
	"encoding/json"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// rows passes the events one by one, as maps.
func (r *run) rows() {
	encoder := json.NewEncoder((*writer)(r.out))
	encoder.SetEscapeHTML(false)
	for i := range r.in.Len() {
		if r.state[i] == refused {
			continue
		}
		if r.ctx.Err() != nil || r.limit != nil {
			return
		}
		if err := r.row(i, encoder); err != nil {
			r.refuse(i, "script", err)
		}
	}
}

// row calls the plugin on event i. Encoding is under the same protection, because
// a value may have a method of the plugin's that encodes it.
func (r *run) row(i int, encoder *json.Encoder) (err error) {
	defer r.script.plugin.rescue(&err)
	value, err := r.script.plugin.Row(decode(r.in.Doc(i)))
	if err != nil {
		return err
	}
	switch v := value.(type) {
	case nil:
		return nil
	case map[string]any:
		return r.several(i, encoder, v)
	case []map[string]any:
		return r.several(i, encoder, v...)
	}
	return fmt.Errorf("%s returned %T: want a map[string]any, a []map[string]any, or nil to drop the event", r.script.plugin.symbol, value)
}

// several puts rows into the output. A row that is nil is none.
func (r *run) several(i int, encoder *json.Encoder, rows ...map[string]any) error {
	for _, row := range rows {
		if row == nil {
			continue
		}
		if err := encoder.Encode(row); err != nil {
			return fmt.Errorf("encode what %s returned: %w", r.script.plugin.symbol, err)
		}
		r.out.Data = r.out.Data[:len(r.out.Data)-len("\n")]
		if !r.endDocument(i) || r.state[i] == refused {
			return nil
		}
	}
	return nil
}

// A writer appends to the documents of an output.
type writer event.Output

func (w *writer) Write(p []byte) (int, error) {
	w.Data = append(w.Data, p...)
	return len(p), nil
}
