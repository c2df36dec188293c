// Package wire gives the Go driver of MySQL what its API has no words for:
// prepared statements whose parameters are encoded by the caller, among them
// MariaDB's statements with arrays of parameters (COM_STMT_BULK_EXECUTE), over
// plain, encrypted and compressed connections alike.
//
// The driver connects, authenticates and runs all other statements. It sees a
// plain connection: TLS and compression lie below it, in a transport that
// negotiates both while the driver authenticates, together with the capability to
// send arrays. Between two statements of the driver this package exchanges packets
// of its own with the server, through the same transport.
//
// A Conn is for one goroutine at a time, as the driver's connections are.
package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"database/sql/driver"
	"net"

	mysql "github.com/go-sql-driver/mysql"
)

// A Connector makes connections as the driver does, each of them a *Conn.
type Connector struct {
	driver.Connector
	options options
}

// options are what a transport negotiates with the server.
type options struct {
	tls         *tls.Config // nil: the connection is not encrypted
	tlsOptional bool        // connect without encryption to a server that has none
	compress    bool        // where the server offers it
}

// NewConnector is mysql.NewConnector, but for TLS and compression, which the
// connections have without the driver's knowledge. compress replaces the
// driver's setting of that name, which config must not have.
func NewConnector(config *mysql.Config, compress bool) (Connector, error) {
	config = config.Clone()
	c := Connector{options: options{tls: config.TLS, tlsOptional: config.AllowFallbackToPlaintext, compress: compress}}
	config.TLS, config.TLSConfig = nil, ""
	config.DialFunc = dial
	if err := config.Apply(mysql.BeforeConnect(lendConfig)); err != nil {
		return c, err
	}
	var err error
	c.Connector, err = mysql.NewConnector(config)
	return c, err
}

// transportKey is the key of a context's transport, which dial connects.
type transportKey struct{}

// Connect implements driver.Connector. The driver hides why a connection failed
// while it authenticates, so that the transport keeps that error.
func (c Connector) Connect(ctx context.Context) (driver.Conn, error) {
	t := &transport{options: c.options}
	inner, err := c.Connector.Connect(context.WithValue(ctx, transportKey{}, t))
	switch {
	case err == nil:
		return &Conn{drivers: inner.(drivers), transport: t, replies: bufio.NewReaderSize(t, replyBuffer)}, nil
	case ctx.Err() == nil && t.failure != nil:
		return nil, t.failure
	}
	return nil, err
}

// lendConfig gives the transport the configuration of the driver's connection,
// which is a copy for that connection alone.
func lendConfig(ctx context.Context, config *mysql.Config) error {
	ctx.Value(transportKey{}).(*transport).driver = config
	return nil
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := ctx.Value(transportKey{}).(*transport)
	t.Conn, t.stream = conn, conn
	return t, nil
}

// A Conn is a connection of the driver.
type Conn struct {
	drivers
	transport *transport
	replies   *bufio.Reader // of transport, while it runs a statement of this package
}

// replyBuffer holds the reply to any statement but a prepared one.
const replyBuffer = 512

// SupportsBulk reports whether the server takes arrays of parameters.
func (c *Conn) SupportsBulk() bool { return c.transport.bulk }

// Encrypted reports whether the connection uses TLS.
func (c *Conn) Encrypted() bool { return c.transport.encrypted }

// Compressed reports whether the connection is compressed.
func (c *Conn) Compressed() bool { return c.transport.compressed }

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
