package mysql

import (
	"bytes"
	"context"
	"strconv"

	"github.com/perigeedb/perigee/event"
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
