package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	mysql "github.com/go-sql-driver/mysql"
)

// timeout is how long a server may neither send nor receive.
const timeout = time.Minute

// A Kind is a type of parameters, in the numbers of the protocol.
type Kind uint8

// The bytes of a value of each kind.
const (
	Int32    Kind = 3   // 4 bytes
	Float64  Kind = 5   // 8 bytes
	Int64    Kind = 8   // 8 bytes
	Datetime Kind = 12  // as Calendar.AppendDatetime writes it
	Text     Kind = 253 // its length as AppendLength writes it, then its bytes in utf8mb4
)

// The indicator precedes each value in an array of parameters.
const (
	ValueFollows = 0
	ValueIsNull  = 1 // nothing follows
)

// MaxPacket is how many bytes one packet of a statement can have.
const MaxPacket = 1<<24 - 2

const (
	comPrepare = 0x16
	comExecute = 0x17
	comBulk    = 0xfa

	bulkWithTypes = 128

	replyOK    = 0
	replyError = 0xff
)

// A Statement is prepared on one connection, for as long as that lasts.
type Statement struct {
	id    uint32
	kinds []Kind
	rows  int
}

// PrepareRaw prepares a statement with a parameter for each of kinds, rows times. An
// error of the server is a *mysql.MySQLError and leaves the connection usable;
// after any other error the connection must be closed.
func (c *Conn) PrepareRaw(ctx context.Context, query string, kinds []Kind, rows int) (s Statement, err error) {
	s.kinds, s.rows = kinds, rows
	packet := append(make([]byte, header, header+1+len(query)), comPrepare)
	err = c.exchange(ctx, append(packet, query...), func() (err error) {
		s.id, err = c.readPrepared(len(kinds) * rows)
		return err
	})
	return s, err
}

// BeginBulk appends to packet, which is empty, what precedes the rows of arrays of
// parameters. A row is a value of each kind, each after its indicator.
func (s Statement) BeginBulk(packet []byte) []byte {
	packet = append(packet, 0, 0, 0, 0, comBulk)
	packet = binary.LittleEndian.AppendUint32(packet, s.id)
	packet = binary.LittleEndian.AppendUint16(packet, bulkWithTypes)
	return s.appendKinds(packet)
}

// BeginRows appends to packet, which is empty, what precedes the values of as many
// rows as the statement was prepared for, without those that are null.
func (s Statement) BeginRows(packet []byte, isNull func(row, column int) bool) []byte {
	packet = append(packet, 0, 0, 0, 0, comExecute)
	packet = binary.LittleEndian.AppendUint32(packet, s.id)
	packet = append(packet, 0, 1, 0, 0, 0) // no cursor, once
	bits := len(packet)
	packet = append(packet, make([]byte, (s.rows*len(s.kinds)+7)/8)...)
	parameter := 0
	for row := range s.rows {
		for column := range s.kinds {
			if isNull(row, column) {
				packet[bits+parameter/8] |= 1 << (parameter % 8)
			}
			parameter++
		}
	}
	packet = append(packet, 1) // kinds follow
	for range s.rows {
		packet = s.appendKinds(packet)
	}
	return packet
}

func (s Statement) appendKinds(packet []byte) []byte {
	for _, kind := range s.kinds {
		packet = append(packet, byte(kind), 0)
	}
	return packet
}

// ExecuteRaw sends a packet that BeginBulk or BeginRows began, with at least one row.
// The server runs all of the statement or, with a *mysql.MySQLError, nothing.
// After any other error the outcome is unknown, and the connection must be closed.
// The header of the packet changes; nothing of it is kept.
func (c *Conn) ExecuteRaw(ctx context.Context, packet []byte) error {
	return c.exchange(ctx, packet, func() error {
		_, err := c.readOK(1)
		return err
	})
}

// exchange sends a packet and reads the reply, while the driver is idle.
func (c *Conn) exchange(ctx context.Context, packet []byte, read func() error) (err error) {
	if len(packet)-header > MaxPacket {
		return fmt.Errorf("a packet of %d bytes is longer than the protocol allows", len(packet))
	}
	if err := c.transport.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.transport.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			err = ctx.Err()
		}
	}()
	putSize(packet, len(packet)-header)
	packet[3] = 0
	if _, err := c.transport.Write(packet); err != nil {
		return err
	}
	c.replies.Reset(c.transport)
	err = read()
	if _, server := errors.AsType[*mysql.MySQLError](err); (err == nil || server) && c.replies.Buffered() > 0 {
		return fmt.Errorf("%w: %d bytes after its end", errReply, c.replies.Buffered())
	}
	return err
}

var errReply = errors.New("malformed reply of the server")

// readPacket reads the next packet of a reply.
func (c *Conn) readPacket() ([]byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(c.replies, head[:]); err != nil {
		return nil, err
	}
	if n := packetSize(head[:]); n < math.MaxUint16 {
		body := make([]byte, n)
		_, err := io.ReadFull(c.replies, body)
		return body, err
	}
	return nil, fmt.Errorf("%w: a packet of %d bytes", errReply, packetSize(head[:]))
}

// readOK reads a packet of at least size bytes that reports success, or an error.
func (c *Conn) readOK(size int) ([]byte, error) {
	body, err := c.readPacket()
	switch {
	case err != nil:
		return nil, err
	case len(body) >= size && body[0] == replyOK:
		return body, nil
	case len(body) >= 3 && body[0] == replyError:
		return nil, parseError(body)
	}
	return nil, fmt.Errorf("%w: it begins with %x", errReply, body[:min(len(body), 8)])
}

// parseError parses an error packet: number, optionally # and a state, and text.
func parseError(body []byte) error {
	e := &mysql.MySQLError{Number: binary.LittleEndian.Uint16(body[1:])}
	body = body[3:]
	if len(body) > len(e.SQLState) && body[0] == '#' {
		body = body[1+copy(e.SQLState[:], body[1:]):]
	}
	e.Message = string(body)
	return e
}

// readPrepared reads the reply to a prepare of a statement with that many
// parameters and no result columns.
func (c *Conn) readPrepared(parameters int) (id uint32, err error) {
	body, err := c.readOK(12) // status, id (4), columns (2), parameters (2), a zero, warnings (2)
	if err != nil {
		return 0, err
	}
	id = binary.LittleEndian.Uint32(body[1:])
	columns, got := binary.LittleEndian.Uint16(body[5:]), int(binary.LittleEndian.Uint16(body[7:]))
	if columns != 0 || got != parameters {
		return 0, fmt.Errorf("%w: %d columns and %d parameters, want %d", errReply, columns, got, parameters)
	}
	if c.transport.separateEOF && got > 0 {
		got++
	}
	for range got {
		if _, err := c.readPacket(); err != nil {
			return 0, err
		}
	}
	return id, nil
}
