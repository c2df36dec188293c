package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// appendField appends row r as LOAD DATA reads it.
func appendField(b []byte, t event.Type, v *event.Vector, r int) ([]byte, error) {
	if v.Null[r] != 0 {
		return append(b, '\\', 'N'), nil
	}
	switch t {
	case event.Bool, event.Int32, event.Int64:
		return strconv.AppendInt(b, v.Ints[r], 10), nil
	case event.Float64:
		return strconv.AppendFloat(b, v.Floats[r], 'e', -1, 64), nil
	case event.Timestamp:
		return appendTime(b, v.Ints[r])
	}
	return appendLoaded(b, v.Text(r)), nil
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
func (w *writer) fillLoad(b *batch) error {
	for _, row := range b.rows {
		for c := range b.columns.Spec {
			if c > 0 {
				b.buf = append(b.buf, '\t')
			}
			if err := w.checkValue(b, c, row); err != nil {
				return err
			}
			var err error
			if b.buf, err = appendField(b.buf, b.columns.Spec[c].Type, &b.columns.Vectors[c], row); err != nil {
				return &refusal{c, err}
			}
		}
		b.buf = append(b.buf, '\n')
	}
	return nil
}

// load writes rows and ranges in one exchange. LOAD DATA cuts, clamps and skips
// what INSERT refuses, and only warns: with a warning, or a row too few, the
// range is not taken, and nothing is committed.
func (w *writer) load(ctx context.Context, s *session, b *batch, missing event.Ranges) error {
	b.buf = b.buf[:0]
	if err := w.fillLoad(b); err != nil {
		return err
	}
	s.rows.Reset(b.buf)
	defer s.rows.Reset(nil)
	b.text = append(b.text[:0], startStatement+";LOAD DATA LOCAL INFILE 'Reader::"...)
	b.text = append(b.text, s.loading...)
	b.text = append(b.text, w.plan.load...)
	b.text = append(b.text, ";SET @perigee_loaded = ROW_COUNT() = "...)
	b.text = strconv.AppendInt(b.text, int64(len(b.rows)), 10)
	b.text = append(b.text, " AND @@warning_count = 0;"...)
	b.text = w.appendRanges(b.text, missing, " AND @perigee_loaded")
	b.text = append(b.text, commitStatement...)
	return send(ctx, s.conn, b.text)
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
func (w *writer) loaded(refusal, inserted error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case refusal == nil:
		w.misloads = 0
	case isNumber(refusal, notAllowed...):
		w.inserts = true
		w.sink.log.Warn("the server does not allow LOAD DATA LOCAL: inserting from here on",
			"sink", w.sink.config.server(), "table", w.sink.config.Table, "error", refusal)
	case inserted == nil:
		if w.misloads++; w.misloads == mistrust {
			w.inserts = true
			w.sink.log.Warn("LOAD DATA refuses rows that INSERT takes: inserting from here on",
				"sink", w.sink.config.server(), "table", w.sink.config.Table)
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
	switch generated := slices.ContainsFunc(columns, func(f found) bool { return f.autoIncrement }); {
	case c.Method == Load && !server.localInfile:
		return choice{}, &sink.PermanentError{
			Err:  errors.New("method is load, and the server does not allow it: local_infile is off"),
			Hint: "as an administrator run: SET GLOBAL local_infile = 1; or remove method",
		}
	case c.Mode != Insert:
		return choice{false, fmt.Sprintf("mode is %s", c.Mode)}, nil
	case c.Method != Auto:
		return choice{c.Method == Load, fmt.Sprintf("method is %s", c.Method)}, nil
	case !server.localInfile:
		return choice{false, "local_infile is off"}, nil
	case !generated:
		return choice{true, "the table has no AUTO_INCREMENT column"}, nil
	case server.lockMode == interleaved:
		return choice{true, "innodb_autoinc_lock_mode is 2"}, nil
	}
	return choice{false, fmt.Sprintf("innodb_autoinc_lock_mode is %d: only with 2 do loads run side by side", server.lockMode)}, nil
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
