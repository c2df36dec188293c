package mysql

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// appendField appends row r as LOAD DATA reads it. Text that is plain has
// nothing to escape.
func appendField(b []byte, t event.Type, v *event.Vector, r int, plain bool) ([]byte, error) {
	if v.Null[r] != 0 {
		return append(b, '\\', 'N'), nil
	}
	switch t {
	case event.Bool, event.Int32, event.Int64:
		return strconv.AppendInt(b, v.Ints[r], 10), nil
	case event.Float64:
		return strconv.AppendFloat(b, v.Floats[r], 'e', -1, 64), nil
	case event.Timestamp:
		if err := table.CheckTime(v.Ints[r]); err != nil {
			return b, err
		}
		return table.AppendTime(b, v.Ints[r]), nil
	}
	if plain {
		return append(b, v.Text(r)...), nil
	}
	return appendLoaded(b, v.Text(r)), nil
}

// isPlain looks at the text of all rows at once, which is several times faster
// than at every byte of each.
func isPlain(text []byte) bool {
	for _, c := range []byte("\\\t\n\x00") {
		if bytes.IndexByte(text, c) >= 0 {
			return false
		}
	}
	return true
}

// escapes has, for each byte that LOAD DATA takes for something else, what
// stands for it after a backslash.
var escapes = [256]byte{'\\': '\\', '\t': 't', '\n': 'n', 0: '0'}

func appendLoaded(b, text []byte) []byte {
	plain := 0 // text[plain:i] needs no escape
	for i, c := range text {
		if c > '\\' || escapes[c] == 0 {
			continue
		}
		b = append(append(b, text[plain:i]...), '\\', escapes[c])
		plain = i + 1
	}
	return append(b, text[plain:]...)
}

// fillLoad makes the lines of all rows.
func (b *book) fillLoad(t *batch) error {
	t.plain = t.plain[:0]
	for c := range t.columns.Vectors {
		t.plain = append(t.plain, isPlain(t.columns.Vectors[c].Bytes))
	}
	for _, row := range t.rows {
		for c := range t.columns.Spec {
			if c > 0 {
				t.buf = append(t.buf, '\t')
			}
			if err := b.checkValue(t, c, row); err != nil {
				return err
			}
			var err error
			if t.buf, err = appendField(t.buf, t.columns.Spec[c].Type, &t.columns.Vectors[c], row, t.plain[c]); err != nil {
				return &refusal{c, err}
			}
		}
		t.buf = append(t.buf, '\n')
	}
	return nil
}

// load writes rows and ranges in one exchange. LOAD DATA cuts, clamps and skips
// what INSERT refuses, and only warns: with a warning, or a row too few, the
// range is not taken, and nothing is committed.
func (b *book) load(ctx context.Context, s *session, t *batch, ranges []event.Range) error {
	t.buf = t.buf[:0]
	if err := b.fillLoad(t); err != nil {
		return err
	}
	s.rows.Reset(t.buf)
	defer s.rows.Reset(nil)
	t.text = append(t.text[:0], startStatement+";LOAD DATA LOCAL INFILE 'Reader::"...)
	t.text = append(t.text, s.loading...)
	t.text = append(t.text, b.plan.load...)
	t.text = append(t.text, ";SET @perigee_loaded = ROW_COUNT() = "...)
	t.text = strconv.AppendInt(t.text, int64(len(t.rows)), 10)
	t.text = append(t.text, " AND @@warning_count = 0;"...)
	t.text = b.appendRanges(t.text, ranges, " AND @perigee_loaded")
	t.text = append(t.text, commitStatement...)
	return send(ctx, s.conn, t.text)
}

// loadStatement is LOAD DATA from the end of its file's name on.
func (c *Config) loadStatement() string {
	return "' INTO TABLE " + quote(c.Table) + ` CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ` +
		quoteAll(c.columnNames())
}

// mistrust is how many loads in a row may be refused for rows that INSERT takes.
const mistrust = 3

// loaded notes how a load has ended, and what INSERT said of the same rows when
// it was refused.
func (b *book) loaded(refusal, inserted error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case refusal == nil:
		b.misloads = 0
	case isNumber(refusal, notAllowed...):
		b.inserts = true
		b.sink.log.Warn("the server does not allow LOAD DATA LOCAL: inserting from here on",
			"sink", b.sink.config.server(), "table", b.sink.config.Table, "error", refusal)
	case inserted == nil:
		if b.misloads++; b.misloads == mistrust {
			b.inserts = true
			b.sink.log.Warn("LOAD DATA refuses rows that INSERT takes: inserting from here on",
				"sink", b.sink.config.server(), "table", b.sink.config.Table)
		}
	}
}

// notAllowed are the numbers with which servers say that LOAD DATA LOCAL is off.
var notAllowed = []uint16{1148, 3948, 4166}

// A choice is a way into the table, and why.
type choice struct {
	load bool
	why  string
}

// choose picks the way that this server is fastest at.
func (c *Config) choose(server settled, columns []found) (choice, error) {
	hindrance := c.hindrance(server, columns)
	switch {
	case c.Mode != table.Insert:
		return choice{false, fmt.Sprintf("mode is %s", c.Mode)}, nil
	case c.Method == Rows:
		return choice{false, "method is insert"}, nil
	case c.Method == Load && hindrance != "":
		return choice{}, &sink.PermanentError{
			Err:  fmt.Errorf("method is load, and that cannot be: %s", hindrance),
			Hint: "remove method; or, where local_infile is off, run as an administrator: SET GLOBAL local_infile = 1",
		}
	case c.Method == Load:
		return choice{true, "method is load"}, nil
	case hindrance != "":
		return choice{false, hindrance}, nil
	case !slices.ContainsFunc(columns, func(f found) bool { return f.autoIncrement }):
		return choice{true, "the table has no AUTO_INCREMENT column"}, nil
	case server.lockMode == interleaved:
		return choice{true, "innodb_autoinc_lock_mode is 2"}, nil
	}
	return choice{false, fmt.Sprintf("innodb_autoinc_lock_mode is %d: only with 2 do loads run side by side", server.lockMode)}, nil
}

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

func (c choice) String() string {
	if c.load {
		return "LOAD DATA from memory"
	}
	return "multi-row INSERT"
}

// interleaved is the innodb_autoinc_lock_mode in which the counter of the table
// is not locked for as long as a LOAD DATA takes.
const interleaved = 2
