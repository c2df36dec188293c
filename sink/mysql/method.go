package mysql

import (
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// A Method is how rows are inserted.
type Method string

const (
	Auto Method = "auto"   // Bulk if the server supports it, otherwise Rows
	Rows Method = "insert" // prepared INSERTs of up to 512 rows
	Bulk Method = "bulk"   // one prepared INSERT with arrays of parameters
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Method) UnmarshalText(text []byte) error {
	if *m = Method(text); !slices.Contains([]Method{Auto, Rows, Bulk}, *m) {
		return fmt.Errorf("unknown method %q; known: auto, insert, bulk", text)
	}
	return nil
}

func (m Method) describe() string {
	if m == Bulk {
		return "INSERT with arrays of parameters"
	}
	return "multi-row INSERT"
}

// A choice is a method, and why it was chosen.
type choice struct {
	method Method
	reason string
}

func (c *Config) chooseMethod(server serverSettings) (choice, error) {
	switch {
	case c.Method == Rows:
		return choice{Rows, "method is insert"}, nil
	case c.Method == Bulk && server.noBulk != "":
		return choice{}, &event.PermanentError{
			Err:  fmt.Errorf("method is bulk, which is not possible here: %s", server.noBulk),
			Hint: "remove method, so that the sink chooses what this server supports",
		}
	case c.Method == Bulk:
		return choice{Bulk, "method is bulk"}, nil
	case server.noBulk != "":
		return choice{Rows, server.noBulk}, nil
	}
	return choice{Bulk, "the server supports it"}, nil
}

// maxWrongRejections is how many batches in a row may be rejected by Bulk although
// the server accepts their rows by Rows.
const maxWrongRejections = 3

// method is how a batch is inserted.
func (p *partition) method(b *batch) Method {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bulkDisabled || len(b.rows) == 0 {
		return Rows
	}
	return p.plan.method
}

// bulkAccepted records that a batch was inserted by Bulk.
func (p *partition) bulkAccepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrongRejections = 0
}

// bulkRejected records that Bulk was rejected with cause, for a batch whose rows the
// server accepts otherwise, or because it does not support arrays.
func (p *partition) bulkRejected(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrongRejections++; !isNumber(cause, noBulk...) && p.wrongRejections < maxWrongRejections {
		return
	}
	p.bulkDisabled = true
	p.sink.log.Warn("the server rejects arrays of parameters: inserting several rows by a statement from here on",
		"sink", p.sink.config.server(), "table", p.sink.config.Table, "error", cause)
}

var _ sqlsink.Database = (*Sink)(nil)
