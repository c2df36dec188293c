package mysql

import (
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A way is how rows get into the table.
type way uint8

const (
	byRows   way = iota // INSERT of some rows
	byArrays            // INSERT of as many as there are
	byLoad              // LOAD DATA
)

var wayNames = [...]string{byRows: "multi-row INSERT", byArrays: "INSERT of arrays", byLoad: "LOAD DATA from memory"}

func (w way) String() string { return wayNames[w] }

// A choice is a way into the table, and why.
type choice struct {
	way way
	why string
}

// choose picks the way that this server is fastest at.
func (c *Config) choose(server settled, columns []found) (choice, error) {
	switch c.Method {
	case Rows:
		return choice{byRows, "method is insert"}, nil
	case Bulk:
		if server.noArrays != "" {
			return choice{}, &event.PermanentError{
				Err:  fmt.Errorf("method is bulk, and that cannot be: %s", server.noArrays),
				Hint: "remove method, so that the sink takes what this server does fastest",
			}
		}
		return choice{byArrays, "method is bulk"}, nil
	}
	hindrance := c.hindrance(server, columns)
	switch {
	case c.Method == Load && hindrance != "":
		return choice{}, &event.PermanentError{
			Err:  fmt.Errorf("method is load, and that cannot be: %s", hindrance),
			Hint: "remove method; or, where local_infile is off, run as an administrator: SET GLOBAL local_infile = 1",
		}
	case c.Method == Load:
		return choice{byLoad, "method is load"}, nil
	case server.noArrays == "":
		return choice{byArrays, "the server takes arrays of parameters"}, nil
	case c.Mode != table.Insert:
		return choice{byRows, fmt.Sprintf("%s, and mode is %s", server.noArrays, c.Mode)}, nil
	case hindrance != "":
		return choice{byRows, server.noArrays + ", and " + hindrance}, nil
	case !slices.ContainsFunc(columns, func(f found) bool { return f.autoIncrement }):
		return choice{byLoad, server.noArrays + ", and the table has no AUTO_INCREMENT column"}, nil
	case server.lockMode == interleaved:
		return choice{byLoad, server.noArrays + ", and innodb_autoinc_lock_mode is 2"}, nil
	}
	return choice{byRows, fmt.Sprintf("%s, and innodb_autoinc_lock_mode is %d: only with 2 do loads run side by side", server.noArrays, server.lockMode)}, nil
}

// interleaved is the innodb_autoinc_lock_mode in which the counter of the table
// is not locked for as long as a LOAD DATA takes.
const interleaved = 2

// hindrance is why nothing can be loaded; empty when it can. What is loaded is
// text: a number in a column of text would stay as it is spelled here, which is
// not how the server spells it.
func (c *Config) hindrance(server settled, columns []found) string {
	if !server.localInfile {
		return "local_infile is off"
	}
	for _, column := range c.Columns {
		f := find(columns, column.Name)
		if event.Type(column.Type) == event.Float64 && f != nil && slices.Contains(texts, f.kind) {
			return fmt.Sprintf("column %q is %s, where a load would spell numbers otherwise", f.name, f.full)
		}
	}
	return ""
}

// way is how a batch goes in: the way of the plan, unless that has turned out to
// be of no use, or this session cannot go it.
func (b *book) way(s *session, t *batch) way {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.inserts, len(t.rows) == 0,
		b.plan.way == byLoad && s.loading == "",
		b.plan.way == byArrays && !s.wire.TakesArrays():
		return byRows
	}
	return b.plan.way
}

// mistrust is how many batches in a row may be refused whose rows the server
// takes one way, and not the other.
const mistrust = 3

// went notes how a batch has ended that did not go in by rows, and what the
// server said of the same rows, had they to be tried one by one.
func (b *book) went(refusal, inserted error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case refusal == nil:
		b.mistaken = 0
	case isNumber(refusal, notAllowed...):
		b.inserts = true
		b.sink.log.Warn("the server does not allow "+b.plan.way.String()+": inserting rows from here on",
			"sink", b.sink.config.server(), "table", b.sink.config.Table, "error", refusal)
	case inserted == nil:
		if b.mistaken++; b.mistaken == mistrust {
			b.inserts = true
			b.sink.log.Warn(b.plan.way.String()+" refuses rows that the server takes otherwise: inserting rows from here on",
				"sink", b.sink.config.server(), "table", b.sink.config.Table, "error", refusal)
		}
	}
}

// notAllowed are the numbers with which servers, and what stands before them,
// say that LOAD DATA LOCAL is off, or that they know no arrays.
var notAllowed = []uint16{1148, 3948, 4166, unknownCommand, unknownStatement, notPrepared, notLogged}

const (
	unknownCommand   = 1047
	unknownStatement = 1243
	notPrepared      = 1295
	notLogged        = 4033 // as statements
)
