package fileimport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

const (
	batchRowsMax  = 10_000 // rows of one append
	batchBytesMax = 8 << 20
)

// A Batch is the next rows of a file.
type Batch struct {
	First, Count uint64
	Documents    []byte // one JSON document per line, without the rows in LeaveOut
	LeaveOut     []uint32
}

// Split returns the documents.
func (b *Batch) Split() [][]byte {
	if len(b.Documents) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(b.Documents, []byte{'\n'}), []byte{'\n'})
}

// A Target takes the rows of a file.
type Target interface {
	// Next returns the number of the first row that is not known to be imported.
	Next() uint64
	// Append appends rows, which are durable when it returns. If the table rejects some of
	// them, it returns these and appends none.
	Append(ctx context.Context, b *Batch) ([]catalog.RejectedRow, error)
}

// A Result is the number of rows that a Copy has appended and rejected.
type Result struct{ Imported, Rejected uint64 }

// Copy appends the rows of a file that the target lacks. name is the name of the file, for
// errors. Copy writes invalid rows to the file rejected, one JSON object per line; if rejected
// is "", it stops at the first one, after it has appended the rows before.
func Copy(ctx context.Context, name string, rows Rows, to Target, rejected string) (Result, error) {
	c := &copier{name: name, rows: rows, to: to, rejected: rejected}
	err := c.run(ctx)
	return c.result, err
}

// A copier appends the rows of one file.
type copier struct {
	name     string
	rows     Rows
	to       Target
	rejected string // file of rejected rows
	result   Result

	batch Batch
	docs  [][]byte                    // of the batch
	lines []int                       // of docs
	bad   map[int]catalog.RejectedRow // by index in docs: rows that are not documents
}

func (c *copier) run(ctx context.Context) error {
	position := c.to.Next()
	err := c.rows.Skip(ctx, position)
	for err == nil {
		err = c.fill(ctx, &position)
		if c.batch.Count > 0 && (err == nil || err == io.EOF) {
			if err := c.append(ctx); err != nil {
				return err
			}
		}
	}
	if err != io.EOF {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// fill reads the next rows. position is the number of the next row in the file.
func (c *copier) fill(ctx context.Context, position *uint64) error {
	c.batch, c.docs, c.lines, c.bad = Batch{First: *position}, c.docs[:0], c.lines[:0], map[int]catalog.RejectedRow{}
	for size := 0; len(c.docs) < batchRowsMax && size < batchBytesMax; *position++ {
		row, err := c.rows.Read(ctx)
		if err != nil {
			return err
		}
		if r := row.Rejected; r != nil {
			c.bad[len(c.docs)] = catalog.RejectedRow{Row: len(c.docs), Column: r.Column, Reason: r.Reason}
		}
		c.batch.Count++
		c.docs = append(c.docs, bytes.Clone(row.Doc))
		c.lines = append(c.lines, row.Line)
		size += len(row.Doc)
	}
	return nil
}

// append appends the batch. With --rejected it leaves out invalid rows; otherwise it stops
// at the first of them.
func (c *copier) append(ctx context.Context) error {
	var rejected []catalog.RejectedRow
	for row, doc := range c.docs {
		if bad, ok := c.bad[row]; ok {
			rejected = append(rejected, bad)
		} else if !json.Valid(doc) {
			rejected = append(rejected, catalog.RejectedRow{Row: row, Reason: "the row is not valid JSON"})
		}
	}
	for {
		if len(rejected) > 0 && c.rejected == "" {
			return c.stopAt(ctx, rejected[0])
		}
		if err := c.reject(rejected); err != nil {
			return err
		}
		c.batch.Documents = c.batch.Documents[:0]
		left := map[uint32]bool{}
		for _, row := range c.batch.LeaveOut {
			left[row] = true
		}
		for row, doc := range c.docs {
			if !left[uint32(row)] {
				c.batch.Documents = append(append(c.batch.Documents, doc...), '\n')
			}
		}
		var err error
		if rejected, err = c.to.Append(ctx, &c.batch); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if len(rejected) == 0 {
			c.result.Imported += c.batch.Count - uint64(len(left))
			return nil
		}
	}
}

// stopAt appends the rows before an invalid one, and returns the error of that row.
func (c *copier) stopAt(ctx context.Context, r catalog.RejectedRow) error {
	line := c.lines[r.Row]
	if c.docs, c.lines, c.batch.Count = c.docs[:r.Row], c.lines[:r.Row], uint64(r.Row); r.Row > 0 {
		if err := c.append(ctx); err != nil {
			return err
		}
	}
	what := r.Reason
	if r.Column != "" {
		what = fmt.Sprintf("column %s: %s", r.Column, r.Reason)
	}
	return event.WithHint(fmt.Errorf("%s:%d: %s", c.name, line, what),
		"correct the line, or write invalid rows to a file with --rejected FILE; the rows before it are stored")
}

// reject writes rows to the file of rejected rows, and leaves them out of the batch.
func (c *copier) reject(rows []catalog.RejectedRow) error {
	if len(rows) == 0 {
		return nil
	}
	out, err := os.OpenFile(c.rejected, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the file of rejected rows: %w", err)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	for _, r := range rows {
		c.batch.LeaveOut = append(c.batch.LeaveOut, uint32(r.Row))
		if err := encoder.Encode(rejectedLine{c.name, c.lines[r.Row], r.Column, r.Reason, string(c.docs[r.Row])}); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	c.result.Rejected += uint64(len(rows))
	_, err = out.Write(text.Bytes())
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("write the file of rejected rows: %w", err)
	}
	return nil
}

// A rejectedLine is a row in the file of rejected rows.
type rejectedLine struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column string `json:"column,omitempty"`
	Reason string `json:"reason"`
	Row    string `json:"row"`
}
