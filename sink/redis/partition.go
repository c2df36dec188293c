package redis

import (
	"context"
	_ "embed" // the scripts
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

//go:embed takeover.lua
var takeOverScript string

//go:embed write.lua
var writeScript string

//go:embed lastrange.lua
var lastRange string

//go:embed replace.lua
var replace string

//go:embed less.lua
var lessFunction string

var lastRangeScript, replaceScript = lessFunction + lastRange, lessFunction + replace

// A partitionStore holds the ranges of one partition for the writer that owns it.
// It implements positions.NoteStore.
type partitionStore struct {
	sink      *Sink
	partition string
	token     string // names the writer
	epoch     string
}

func (p *partitionStore) keys() []string {
	return []string{p.sink.partitionKey("owner", p.partition), p.sink.partitionKey("ranges", p.partition)}
}

// takeOver makes the writer the owner and returns the committed ranges. With renew
// it does so only if the writer is the owner already.
func (p *partitionStore) takeOver(ctx context.Context, renew bool) ([]positions.Entry, error) {
	onlyOwn := "0"
	if renew {
		onlyOwn = "1"
	}
	v, err := p.sink.eval(ctx, takeOverScript, append(p.keys(), p.sink.sharedKey("partitions")), p.token, p.partition, onlyOwn)
	if err != nil {
		return nil, err
	}
	reply, _ := v.([]any)
	if len(reply) != 3 {
		return nil, sink.ErrFenced
	}
	now, _ := reply[1].(int64)
	ranges, _ := reply[2].([]any)
	p.epoch = fmt.Sprint(reply[0])
	return readEntries(ranges, now)
}

// Renew implements positions.Store.
func (p *partitionStore) Renew(ctx context.Context) ([]positions.Entry, error) {
	entries, err := p.takeOver(ctx, true)
	return entries, p.sink.wrapError("read the committed ranges", err)
}

// IsCommitted implements positions.Store.
func (p *partitionStore) IsCommitted(ctx context.Context, r event.Range) (bool, error) {
	v, err := p.sink.eval(ctx, lastRangeScript, p.keys(), p.epoch, strconv.FormatUint(r.First, 10))
	if err == nil && v == "FENCED" {
		err = sink.ErrFenced
	}
	last, _ := v.([]any) // first position and number of events
	if err != nil || len(last) != 2 {
		return false, err
	}
	first, err := strconv.ParseUint(fmt.Sprint(last[0]), 10, 64)
	if err != nil {
		return false, err
	}
	count, err := strconv.ParseUint(fmt.Sprint(last[1]), 10, 64)
	return first+count >= r.End(), err
}

// Commit implements positions.Store.
func (p *partitionStore) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	return p.CommitNote(ctx, rows, ranges, nil)
}

// CommitNote implements positions.NoteStore.
func (p *partitionStore) CommitNote(ctx context.Context, rows *positions.Rows, ranges []event.Range, note *positions.Note) error {
	if note != nil {
		if _, err := p.sink.ownUnit(note); err != nil {
			return err
		}
	}
	var hashes []hashRow
	if p.sink.kind == "hash" {
		var rejected []sink.RowError
		if hashes, rejected = p.sink.makeHashes(rows); len(rejected) > 0 {
			return &sink.RowErrors{Rows: rejected}
		}
	}
	var v any
	err := p.sink.withConn(ctx, func(c *resp.Conn) error {
		return c.WithContext(ctx, func() (err error) {
			p.queueWrite(c, rows, hashes, ranges, note)
			if err := c.Flush(); err != nil {
				return err
			}
			v, err = c.ReadReply()
			return err
		})
	})
	if err == nil {
		err = p.checkReply(v, rows, hashes)
	}
	return p.sink.wrapError("write to "+p.sink.target, err)
}

// makeHashes makes the hashes of rows, and names the rows that have none.
func (s *Sink) makeHashes(rows *positions.Rows) (all []hashRow, rejected []sink.RowError) {
	for _, row := range rows.Index {
		h, err := s.template.makeHash(rows.Output.Doc(row))
		if err != nil {
			rejected = append(rejected, sink.RowError{Row: row, Stage: sink.StageColumn, Err: err})
		}
		all = append(all, h)
	}
	return all, rejected
}

func (p *partitionStore) queueWrite(c *resp.Conn, rows *positions.Rows, hashes []hashRow, ranges []event.Range, note *positions.Note) {
	keys, noteArguments := p.keys(), []string{""}
	if note != nil {
		u := note.Unit.(*unit)
		keys = append(keys, u.keys()...)
		noteArguments = append([]string{u.epoch}, u.noteArguments(note.Note)...)
	}
	arguments := 3 + len(noteArguments) + 2*len(ranges)
	var groups []group
	if p.sink.kind == "hash" {
		for _, h := range hashes {
			keys = append(keys, h.key)
			arguments += 1 + len(h.fields)
		}
	} else {
		groups = p.sink.groups(rows.Output, rows.Index)
		for _, g := range groups {
			keys = append(keys, g.key)
			arguments += 1 + len(g.rows)
		}
	}
	field := p.sink.kind == "stream" && len(rows.Index) > 0
	if field {
		arguments++
	}
	c.QueueHeader(3 + len(keys) + arguments)
	c.QueueArg("EVAL")
	c.QueueArg(writeScript)
	c.QueueArg(strconv.Itoa(len(keys)))
	for _, k := range keys {
		c.QueueArg(k)
	}
	c.QueueArg(p.epoch)
	c.QueueArg(p.sink.kind)
	c.QueueArg(strconv.Itoa(len(ranges)))
	for _, argument := range noteArguments {
		c.QueueArg(argument)
	}
	for _, r := range ranges {
		c.QueueArg(strconv.FormatUint(r.First, 10))
		c.QueueBytes(appendRange(nil, r))
	}
	if field {
		c.QueueArg(p.sink.field())
	}
	for _, g := range groups {
		c.QueueArg(strconv.Itoa(len(g.rows)))
		for _, row := range g.rows {
			c.QueueBytes(rows.Output.Doc(row))
		}
	}
	for _, h := range hashes {
		c.QueueArg(strconv.Itoa(len(h.fields)))
		for _, text := range h.fields {
			c.QueueArg(text)
		}
	}
}

func (s *Sink) field() string {
	if s.config.Field == "" {
		return "data"
	}
	return s.config.Field
}

// checkReply turns the reply of the script that writes into an error.
func (p *partitionStore) checkReply(v any, rows *positions.Rows, hashes []hashRow) error {
	switch v := v.(type) {
	case string:
		if v == "FENCED" {
			return sink.ErrFenced
		}
		if last, refused := strings.CutPrefix(v, "LAST "); refused {
			return numberError(last)
		}
		return nil
	case []any: // pairs of a row and the type of what is there
		if p.sink.kind != "hash" {
			n, _ := v[0].(int64)
			return p.sink.wrongType(p.sink.groups(rows.Output, rows.Index)[n].key, fmt.Sprint(v[1]))
		}
		rejected := &sink.RowErrors{}
		for i := 0; i+1 < len(v); i += 2 {
			n, _ := v[i].(int64)
			rejected.Rows = append(rejected.Rows, sink.RowError{Row: rows.Index[n],
				Err: fmt.Errorf("key %q holds a %v, not a hash", hashes[n].key, v[i+1])})
		}
		return rejected
	}
	return fmt.Errorf("redis answered the script with %v", v)
}

// Compact implements positions.Store.
func (p *partitionStore) Compact(ctx context.Context, r event.Range) error {
	return p.sink.wrapError("compact ranges", p.replace(ctx, strconv.FormatUint(r.First, 10), strconv.FormatUint(r.End(), 10), r))
}

// replace replaces the ranges that begin between two positions, or all.
func (p *partitionStore) replace(ctx context.Context, from, to string, by ...event.Range) error {
	args := []string{p.epoch, from, to}
	for _, r := range by {
		args = append(args, strconv.FormatUint(r.First, 10), string(appendRange(nil, r)))
	}
	v, err := p.sink.eval(ctx, replaceScript, p.keys(), args...)
	if err == nil && v != "OK" {
		err = sink.ErrFenced
	}
	return err
}

// OutcomeUnknown implements positions.Store. A script that Redis rejects has written
// nothing.
func (p *partitionStore) OutcomeUnknown(err error) bool {
	return !isRejected(err) && !errors.As(err, new(*notSent)) && !event.IsPermanent(err)
}

// appendRange appends the value that is stored under the first position of a range,
// without the time in front: the number of events, and 4 bytes for the fingerprint
// of each.
func appendRange(b []byte, r event.Range) []byte {
	b = append(strconv.AppendUint(b, r.Count, 10), ' ')
	for _, fingerprint := range r.Fingerprints {
		b = binary.LittleEndian.AppendUint32(b, fingerprint)
	}
	return b
}

// readEntries reads what the scripts store: positions and values in turn.
func readEntries(pairs []any, now int64) (entries []positions.Entry, err error) {
	for i := 0; i+1 < len(pairs); i += 2 {
		first, value := fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])
		e, err := readEntry(first, value, now)
		if err != nil {
			return nil, &event.PermanentError{
				Err:  fmt.Errorf("the range at %q is %.40q, which cannot be read: %w", first, value, err),
				Hint: "another program has written to the hash under perigee:ranges:; restore it",
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func readEntry(first, value string, now int64) (e positions.Entry, err error) {
	seconds, rest, _ := strings.Cut(value, " ")
	count, fingerprints, _ := strings.Cut(rest, " ")
	committed, err := strconv.ParseInt(seconds, 10, 64)
	if err == nil {
		e.Range.First, err = strconv.ParseUint(first, 10, 64)
	}
	if err == nil {
		e.Range.Count, err = strconv.ParseUint(count, 10, 64)
	}
	if err == nil {
		e.Range.Fingerprints, err = positions.DecodeFingerprints(e.Range, []byte(fingerprints))
	}
	e.Age = time.Duration(max(0, now-committed)) * time.Second
	return e, err
}
