// Package wire gives MariaDB statements with many rows of parameters, which the
// Go driver has no words for (COM_STMT_BULK_EXECUTE). The driver makes the
// connection, signs in and carries out all else; between two of its statements
// this package speaks on the same connection.
//
// That takes a server that offers it, and a connection without TLS and without
// compression, for those lie between the driver and what is here.
// Conn.TakesArrays tells.
//
// A Conn is for one goroutine at a time, as the driver's connections are.
package wire

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"syscall"

	mysql "github.com/go-sql-driver/mysql"
)

// A Connector makes connections as the driver does, each of them a *Conn.
type Connector struct{ driver.Connector }

// NewConnector is mysql.NewConnector, but for what it connects to.
func NewConnector(config *mysql.Config) (Connector, error) {
	config = config.Clone()
	config.DialFunc = dial
	inner, err := mysql.NewConnector(config)
	return Connector{inner}, err
}

// inDial is where dial finds the wire that its connection is to have.
type inDial struct{}

// Connect implements driver.Connector.
func (c Connector) Connect(ctx context.Context) (driver.Conn, error) {
	w := new(wire)
	inner, err := c.Connector.Connect(context.WithValue(ctx, inDial{}, w))
	if err != nil {
		return nil, err
	}
	return &Conn{drivers: inner.(drivers), wire: w}, nil
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	inner, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := ctx.Value(inDial{}).(*wire)
	w.Conn = inner
	return w, nil
}

// drivers is all that the driver's connections can do.
type drivers interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// A wire is a connection to a server that looks on while the driver signs in,
// and adds to the driver's abilities one of its own.
type wire struct {
	net.Conn
	greeting []byte // what the server said before the driver did
	signed   bool   // the driver has begun to sign in
	arrays   bool   // the server knows that we may send arrays of parameters
	ends     bool   // lists of columns are followed by an EOF packet
}

// longestGreeting is far above any server's.
const longestGreeting = 4 << 10

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if !w.signed && len(w.greeting) < longestGreeting {
		w.greeting = append(w.greeting, p[:n]...)
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.signed {
		w.signed = true
		if offersArrays(w.greeting) {
			p, w.arrays = acceptArrays(p)
		}
		w.ends = !hidesEnds(p)
		w.greeting = nil
	}
	return w.Conn.Write(p)
}

// SyscallConn implements syscall.Conn, by which the driver finds out whether the
// server has hung up.
func (w *wire) SyscallConn() (syscall.RawConn, error) {
	if c, ok := w.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
