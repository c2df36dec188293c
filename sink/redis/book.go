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

//go:embed own.lua
var ownScript string

//go:embed write.lua
var writeScript string

//go:embed has.lua
var hasScript string

//go:embed replace.lua
var replaceScript string

// A book is one partition, for the writer that has taken it over. It implements
// positions.Store.
type book struct {
	sink      *Sink
	partition string
	token     string // names the writer
	epoch     string
}

func (b *book) keys() []string {
	return []string{b.sink.key("owner", b.partition), b.sink.key("ranges", b.partition)}
}

// own makes the writer the owner and returns what is committed; again does so
// only if it is the owner already.
func (b *book) own(ctx context.Context, again bool) ([]positions.Entry, error) {
	renew := "0"
	if again {
		renew = "1"
	}
	v, err := b.sink.eval(ctx, ownScript, append(b.keys(), b.sink.common("partitions")), b.token, b.partition, renew)
	if err != nil {
		return nil, err
	}
	reply, _ := v.([]any)
	if len(reply) != 3 {
		return nil, sink.ErrFenced
	}
	now, _ := reply[1].(int64)
	ranges, _ := reply[2].([]any)
	b.epoch = fmt.Sprint(reply[0])
	return readEntries(ranges, now)
}

// Renew implements positions.Store.
func (b *book) Renew(ctx context.Context) ([]positions.Entry, error) {
	entries, err := b.own(ctx, true)
	return entries, b.sink.explain("find out what is committed", err)
}

// IsCommitted implements positions.Store.
func (b *book) IsCommitted(ctx context.Context, r event.Range) (bool, error) {
	v, err := b.sink.eval(ctx, hasScript, b.keys(), b.epoch, strconv.FormatUint(r.First, 10))
	if err == nil && v == "FENCED" {
		err = sink.ErrFenced
	}
	last, _ := v.([]any)
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
func (b *book) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	var hashes []hashRow
	if b.sink.kind == "hash" {
		var refused []sink.RowError
		if hashes, refused = b.sink.hashes(rows); len(refused) > 0 {
			return &sink.RowErrors{Rows: refused}
		}
	}
	var v any
	err := b.sink.with(ctx, func(c *resp.Conn) error {
		return c.During(ctx, func() (err error) {
			b.askWrite(c, rows, hashes, ranges)
			if err := c.Flush(); err != nil {
				return err
			}
			v, err = c.Value()
			return err
		})
	})
	if err == nil {
		err = b.verdict(v, rows, hashes)
	}
	return b.sink.explain("write to "+b.sink.target, err)
}

// hashes makes the rows' hashes, or says which cannot be.
func (s *Sink) hashes(rows *positions.Rows) (all []hashRow, refused []sink.RowError) {
	for _, row := range rows.Index {
		h, err := s.template.row(rows.Output.Doc(row))
		if err != nil {
			refused = append(refused, sink.RowError{Row: row, Err: err})
		}
		all = append(all, h)
	}
	return all, refused
}

// askWrite queues the script that writes.
func (b *book) askWrite(c *resp.Conn, rows *positions.Rows, hashes []hashRow, ranges []event.Range) {
	keys := b.keys()
	arguments := 3 + 2*len(ranges)
	switch {
	case len(rows.Index) == 0:
	case b.sink.kind == "hash":
		for _, h := range hashes {
			keys = append(keys, h.key)
			arguments += 1 + len(h.fields)
		}
	default:
		keys = append(keys, b.sink.target)
		arguments += len(rows.Index)
	}
	field := b.sink.kind == "stream" && len(rows.Index) > 0
	if field {
		arguments++
	}
	c.Begin(3 + len(keys) + arguments)
	c.Arg("EVAL")
	c.Arg(writeScript)
	c.Arg(strconv.Itoa(len(keys)))
	for _, k := range keys {
		c.Arg(k)
	}
	c.Arg(b.epoch)
	c.Arg(b.sink.kind)
	c.Arg(strconv.Itoa(len(ranges)))
	for _, r := range ranges {
		c.Arg(strconv.FormatUint(r.First, 10))
		c.ArgBytes(appendRange(nil, r))
	}
	if field {
		c.Arg(b.sink.field())
	}
	if b.sink.kind != "hash" {
		for _, row := range rows.Index {
			c.ArgBytes(rows.Output.Doc(row))
		}
	}
	for _, h := range hashes {
		c.Arg(strconv.Itoa(len(h.fields)))
		for _, text := range h.fields {
			c.Arg(text)
		}
	}
}

func (s *Sink) field() string {
	if s.config.Field == "" {
		return "data"
	}
	return s.config.Field
}

// verdict is what the script that writes has returned.
func (b *book) verdict(v any, rows *positions.Rows, hashes []hashRow) error {
	switch v := v.(type) {
	case string:
		if v == "FENCED" {
			return sink.ErrFenced
		}
		return nil
	case []any: // pairs of a row and the type of what is there
		if b.sink.kind != "hash" {
			return b.sink.wrongType(b.sink.target, fmt.Sprint(v[1]))
		}
		refused := &sink.RowErrors{}
		for i := 0; i+1 < len(v); i += 2 {
			n, _ := v[i].(int64)
			refused.Rows = append(refused.Rows, sink.RowError{Row: rows.Index[n],
				Err: fmt.Errorf("key %q holds a %v, not a hash", hashes[n].key, v[i+1])})
		}
		return refused
	}
	return fmt.Errorf("redis answered the script with %v", v)
}

// Compact implements positions.Store.
func (b *book) Compact(ctx context.Context, r event.Range) error {
	return b.sink.explain("fold ranges", b.replace(ctx, strconv.FormatUint(r.First, 10), strconv.FormatUint(r.End(), 10), r))
}

// replace replaces the ranges that begin between two positions, or all.
func (b *book) replace(ctx context.Context, from, to string, by ...event.Range) error {
	args := []string{b.epoch, from, to}
	for _, r := range by {
		args = append(args, strconv.FormatUint(r.First, 10), string(appendRange(nil, r)))
	}
	v, err := b.sink.eval(ctx, replaceScript, b.keys(), args...)
	if err == nil && v != "OK" {
		err = sink.ErrFenced
	}
	return err
}

// OutcomeUnknown implements positions.Store. What Redis refuses it has not begun.
func (b *book) OutcomeUnknown(err error) bool {
	return !isRefused(err) && !errors.As(err, new(*notSent)) && !event.IsPermanent(err)
}

// appendRange appends a range as it is kept below its first position, behind the
// time: the number of events, and 4 bytes for the fingerprint of each.
func appendRange(b []byte, r event.Range) []byte {
	b = append(strconv.AppendUint(b, r.Count, 10), ' ')
	for _, print := range r.Prints {
		b = binary.LittleEndian.AppendUint32(b, print)
	}
	return b
}

// readEntries reads what the scripts keep: positions and values in turn.
func readEntries(pairs []any, now int64) (entries []positions.Entry, err error) {
	for i := 0; i+1 < len(pairs); i += 2 {
		first, value := fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])
		e, err := readEntry(first, value, now)
		if err != nil {
			return nil, &event.PermanentError{
				Err:  fmt.Errorf("the range at %q is kept as %.40q, which is none: %w", first, value, err),
				Hint: "somebody has written to the hash under perigee:ranges:; restore it",
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func readEntry(first, value string, now int64) (e positions.Entry, err error) {
	seconds, rest, _ := strings.Cut(value, " ")
	count, prints, _ := strings.Cut(rest, " ")
	committed, err := strconv.ParseInt(seconds, 10, 64)
	if err == nil {
		e.Range.First, err = strconv.ParseUint(first, 10, 64)
	}
	if err == nil {
		e.Range.Count, err = strconv.ParseUint(count, 10, 64)
	}
	if err == nil {
		e.Range.Prints, err = positions.DecodePrints(e.Range, []byte(prints))
	}
	e.Age = time.Duration(max(0, now-committed)) * time.Second
	return e, err
}
