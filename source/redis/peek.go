package redis

import (
	"context"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source/format"
)

// peekKeys passes on the events of every key. It reads neither with a generation nor creates a
// state, so any pipeline may own the key, and may drain it meanwhile.
func (s *Source) peekKeys(ctx context.Context, visit func(*event.Batch) error) error {
	c, err := s.server.Dial(ctx)
	if err != nil {
		return s.wrapError("list keys", err)
	}
	defer c.Close()
	var keys []string
	if err := c.WithContext(ctx, func() (err error) { keys, err = s.findKeys(c); return err }); err != nil {
		return s.wrapError("list keys", err)
	}
	s.noteEmpty(len(keys))
	for _, key := range keys {
		p := peeker{source: s, key: key, conn: c, decoder: s.format.NewDecoder()}
		walk := p.walkQueue
		if s.kind == streamKey {
			walk = p.walkStream
		}
		if err := walk(ctx, visit); err != nil {
			return s.wrapError("read", &keyError{key, err})
		}
	}
	return nil
}

// A peeker reads the events of a key from front to end.
type peeker struct {
	source  *Source
	key     string
	conn    *resp.Conn
	decoder *format.Decoder
	batch   event.Batch
	broken  []int
}

// read sends what queue queues, and calls parse for the reply.
func (p *peeker) read(ctx context.Context, queue func(), parse func() error) error {
	return p.conn.WithContext(ctx, func() error {
		queue()
		if err := p.conn.Flush(); err != nil {
			return err
		}
		return parse()
	})
}

// pass decodes the batch and passes it on.
func (p *peeker) pass(visit func(*event.Batch) error) error {
	if p.batch.Len() == 0 {
		return nil
	}
	p.batch.Range.Count = uint64(p.batch.Len())
	p.decoder.Decode(&p.batch, p.broken...)
	return visit(&p.batch)
}

func (p *peeker) reset() {
	p.batch.Reset()
	p.batch.Partition, p.broken = p.key, p.broken[:0]
}

// walkQueue reads a list, or a key of a user's scripts. If its front is trimmed meanwhile, it
// continues at the event after those that it has seen.
func (p *peeker) walkQueue(ctx context.Context, visit func(*event.Batch) error) error {
	q := p.source.newQueue(p.key)
	if err := p.conn.WithContext(ctx, func() error { return q.prepare(p.conn) }); err != nil {
		return err
	}
	var head, next, end uint64
	for first := true; first || next < end; first = false {
		p.reset()
		wanted := int(min(end-next, uint64(p.source.env.Limits.Events)))
		var now snapshot
		err := p.read(ctx, func() { q.queueRead(p.conn, head, next, wanted, false) }, func() (err error) {
			if now, err = q.readSnapshot(p.conn); err != nil {
				return err
			}
			return p.appendItems(q, now.items, next)
		})
		if err != nil {
			return err
		}
		if first {
			head, next, end = now.state.head, now.state.head, now.state.head+uint64(now.length)
			continue
		}
		if now.state.head != head { // the positions of the reply moved
			head, next = now.state.head, max(next, now.state.head)
			continue
		}
		if now.items == 0 {
			return nil // others have removed the rest
		}
		next += uint64(now.items)
		if err := p.pass(visit); err != nil {
			return err
		}
	}
	return nil
}

func (p *peeker) appendItems(q queue, items int, at uint64) (err error) {
	for i := range items {
		if _, err = q.nextSize(p.conn); err != nil {
			return err
		}
		if p.batch.Data, _, err = q.appendEvent(p.conn, p.batch.Data, at+uint64(i)); err != nil {
			return err
		}
		p.batch.Ends = append(p.batch.Ends, uint32(len(p.batch.Data)))
	}
	return nil
}

// walkStream reads a stream from its first entry to the one that is last now.
func (p *peeker) walkStream(ctx context.Context, visit func(*event.Batch) error) error {
	var entry streamEntry
	begin, count := "-", strconv.Itoa(p.source.env.Limits.Events)
	last, err := p.lastEntry(ctx)
	if err != nil || last == (entryID{}) {
		return err
	}
	for {
		p.reset()
		err := p.read(ctx, func() { p.conn.Queue("XRANGE", p.key, begin, last.String(), "COUNT", count) }, func() error {
			items, err := p.conn.ReadLength('*')
			for i := 0; i < items && err == nil; i++ {
				err = p.appendEntry(&entry)
			}
			return err
		})
		if err != nil || p.batch.Len() == 0 {
			return err
		}
		begin = "(" + string(entry.id)
		if err := p.pass(visit); err != nil {
			return err
		}
	}
}

func (p *peeker) appendEntry(entry *streamEntry) (err error) {
	if _, err = entry.readSize(p.conn, p.source.config.Field); err != nil {
		return err
	}
	if entry.left < 0 && entry.missing {
		p.broken = append(p.broken, p.batch.Len())
	}
	if p.batch.Data, err = entry.appendDocument(p.conn, p.batch.Data); err == nil {
		p.batch.Ends = append(p.batch.Ends, uint32(len(p.batch.Data)))
	}
	return err
}

// lastEntry returns the ID of the last entry, or the zero ID if the stream has none.
func (p *peeker) lastEntry(ctx context.Context) (last entryID, err error) {
	var entry streamEntry
	err = p.read(ctx, func() { p.conn.Queue("XREVRANGE", p.key, "+", "-", "COUNT", "1") }, func() error {
		items, err := p.conn.ReadLength('*')
		if err != nil || items == 0 {
			return err
		}
		if err = p.appendEntry(&entry); err == nil {
			last, err = parseID(entry.id)
		}
		return err
	})
	return last, err
}
