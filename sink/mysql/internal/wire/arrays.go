package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	mysql "github.com/go-sql-driver/mysql"
)

// A Conn is a connection of the driver.
type Conn struct {
	drivers
	wire    *wire
	replies *bufio.Reader // of wire, while a command of ours is carried out
}

// TakesArrays tells whether PrepareArrays and ExecuteArrays can be used.
func (c *Conn) TakesArrays() bool { return c.wire.arrays }

// timeout is how long a server may say nothing, and take nothing.
const timeout = time.Minute

// A Kind is a type of parameters, in the numbers of the protocol.
type Kind uint8

// What each takes of a row, after the byte that says whether it is null.
const (
	Int32    Kind = 3   // 4 bytes
	Float64  Kind = 5   // 8 bytes
	Int64    Kind = 8   // 8 bytes
	Datetime Kind = 12  // as Calendar.AppendDatetime has it
	Text     Kind = 253 // its length as AppendLength has it, then its bytes in utf8mb4
)

// Null and Given are the byte before each parameter of a row.
const (
	Given = 0
	Null  = 1
)

// LongestPacket is how many bytes ExecuteArrays can send.
const LongestPacket = 1<<24 - 2

const (
	comPrepare = 0x16
	comBulk    = 0xfa
	withKinds  = 128 // a flag: the kinds of the parameters are sent along
)

// A Statement is prepared on one connection, for as long as that lasts.
type Statement struct {
	id    uint32
	kinds []Kind
}

// PrepareArrays has the server look at a statement with a question mark for each of
// kinds. An error of the server is a *mysql.MySQLError and leaves the connection
// as it was; with any other the connection is of no use any more.
func (c *Conn) PrepareArrays(ctx context.Context, query string, kinds []Kind) (s Statement, err error) {
	s.kinds = kinds
	packet := append(make([]byte, header, header+1+len(query)), comPrepare)
	err = c.exchange(ctx, append(packet, query...), func() (err error) {
		s.id, err = c.prepared(len(kinds))
		return err
	})
	return s, err
}

// Begin appends to packet, which is empty, what comes before the rows.
func (s Statement) Begin(packet []byte) []byte {
	packet = append(packet, 0, 0, 0, 0, comBulk)
	packet = binary.LittleEndian.AppendUint32(packet, s.id)
	packet = binary.LittleEndian.AppendUint16(packet, withKinds)
	for _, kind := range s.kinds {
		packet = append(packet, byte(kind), 0)
	}
	return packet
}

// ExecuteArrays sends a packet that Begin began and that has at least one row. The
// server carries out all of the statement or, with a *mysql.MySQLError, nothing.
// After any other error nobody knows, and the connection is of no use any more.
// Of the packet it changes the header, and keeps nothing.
func (c *Conn) ExecuteArrays(ctx context.Context, packet []byte) error {
	return c.exchange(ctx, packet, c.done)
}

// exchange sends a packet and reads what the server says, while the driver is idle.
func (c *Conn) exchange(ctx context.Context, packet []byte, read func() error) (err error) {
	if !c.wire.arrays || len(packet)-header > LongestPacket {
		return fmt.Errorf("a packet of %d bytes cannot be sent here", len(packet))
	}
	if err := c.wire.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.wire.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			err = ctx.Err()
		}
	}()
	length := len(packet) - header
	packet[0], packet[1], packet[2], packet[3] = byte(length), byte(length>>8), byte(length>>16), 0
	if _, err := c.wire.Write(packet); err != nil {
		return err
	}
	if c.replies == nil {
		c.replies = bufio.NewReaderSize(c.wire, 512)
	}
	c.replies.Reset(c.wire)
	err = read()
	if refusal := new(mysql.MySQLError); (err == nil || errors.As(err, &refusal)) && c.replies.Buffered() > 0 {
		return fmt.Errorf("%w: %d bytes after its end", errReply, c.replies.Buffered())
	}
	return err
}

var errReply = errors.New("the server's answer is not understood")

// packet reads the next packet of an answer.
func (c *Conn) packet() ([]byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(c.replies, head[:]); err != nil {
		return nil, err
	}
	if n := size(head[:]); n < math.MaxUint16 {
		body := make([]byte, n)
		_, err := io.ReadFull(c.replies, body)
		return body, err
	}
	return nil, fmt.Errorf("%w: a packet of %d bytes", errReply, size(head[:]))
}

// done reads the answer to a statement that returns nothing.
func (c *Conn) done() error {
	_, err := c.taken(1)
	return err
}

// taken reads a packet that says that all is well, in at least so many bytes, or
// what is wrong.
func (c *Conn) taken(least int) ([]byte, error) {
	body, err := c.packet()
	switch {
	case err != nil:
		return nil, err
	case len(body) >= least && body[0] == 0:
		return body, nil
	case len(body) >= 3 && body[0] == 0xff:
		return nil, refusal(body)
	}
	return nil, fmt.Errorf("%w: it begins with %x", errReply, body[:min(len(body), 8)])
}

// refusal reads a packet of an error: number, perhaps # and a state, and text.
func refusal(body []byte) error {
	e := &mysql.MySQLError{Number: binary.LittleEndian.Uint16(body[1:])}
	body = body[3:]
	if len(body) > len(e.SQLState) && body[0] == '#' {
		body = body[1+copy(e.SQLState[:], body[1:]):]
	}
	e.Message = string(body)
	return e
}

// prepared reads the answer to a statement that is to be prepared, which has so
// many parameters and no columns.
func (c *Conn) prepared(parameters int) (id uint32, err error) {
	body, err := c.taken(12) // number of the statement, columns, parameters, a zero, warnings
	if err != nil {
		return 0, err
	}
	id = binary.LittleEndian.Uint32(body[1:])
	columns, got := binary.LittleEndian.Uint16(body[5:]), int(binary.LittleEndian.Uint16(body[7:]))
	if columns != 0 || got != parameters {
		return 0, fmt.Errorf("%w: %d columns and %d parameters where there are %d", errReply, columns, got, parameters)
	}
	if c.wire.ends && got > 0 {
		got++
	}
	for range got {
		if _, err := c.packet(); err != nil {
			return 0, err
		}
	}
	return id, nil
}

// AppendLength appends the length of a text.
func AppendLength(b []byte, n int) []byte {
	switch {
	case n < 251:
		return append(b, byte(n))
	case n < 1<<16:
		return append(b, 252, byte(n), byte(n>>8))
	case n < 1<<24:
		return append(b, 253, byte(n), byte(n>>8), byte(n>>16))
	}
	return binary.LittleEndian.AppendUint64(append(b, 254), uint64(n))
}

// A Calendar spells times. It remembers a day, for most are of the same as the one
// before. Its zero value is ready.
type Calendar struct {
	day  int64   // since 1970
	date [4]byte // as the protocol has it; no year: none is known
}

const (
	perSecond = 1_000_000
	perDay    = 24 * 60 * 60 * perSecond
)

// AppendDatetime appends microseconds since 1970, of a year from 1 to 9999.
func (c *Calendar) AppendDatetime(b []byte, micros int64) []byte {
	day, rest := micros/perDay, micros%perDay
	if rest < 0 {
		day, rest = day-1, rest+perDay
	}
	if day != c.day || c.date == [4]byte{} {
		year, month, date := time.UnixMicro(micros).UTC().Date()
		c.day, c.date = day, [4]byte{byte(year), byte(year >> 8), byte(month), byte(date)}
	}
	second, fraction := uint32(rest/perSecond), uint32(rest%perSecond)
	b = append(b, 11, c.date[0], c.date[1], c.date[2], c.date[3], byte(second/3600), byte(second/60%60), byte(second%60))
	return binary.LittleEndian.AppendUint32(b, fraction)
}
