package resp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const connectTime = 5 * time.Second

// A Server says where a Redis is and who logs in.
type Server struct {
	Address  string // host and port, or the path of a socket
	Username string
	Password string
	DB       int
	TLS      bool   // the server's certificate is checked
	CA       string // file with the certificates to trust; empty for those of the system
}

// Prepare fills in what is left out, and finds what is wrong without connecting.
// Relative paths start in folder.
func (s *Server) Prepare(folder string) error {
	if s.Address == "" {
		s.Address = "127.0.0.1:6379"
	}
	if s.Username != "" && s.Password == "" {
		return errors.New("username is given without a password")
	}
	if s.CA == "" {
		return nil
	}
	if !s.TLS {
		return errors.New("ca is given without tls: true")
	}
	if !filepath.IsAbs(s.CA) {
		s.CA = filepath.Join(folder, s.CA)
	}
	_, err := s.trusted()
	return err
}

// trusted returns the certificates to trust: nil for those of the system.
func (s *Server) trusted() (*x509.CertPool, error) {
	if s.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca %s holds no certificate in PEM", s.CA)
	}
	return pool, nil
}

// Dial connects, logs in and chooses the database.
func (s *Server) Dial(ctx context.Context) (*Conn, error) {
	network := "tcp"
	if strings.HasPrefix(s.Address, "/") {
		network = "unix"
	}
	d := net.Dialer{Timeout: connectTime}
	nc, err := d.DialContext(ctx, network, s.Address)
	if err != nil {
		return nil, err
	}
	if s.TLS {
		encrypted, err := s.encrypt(ctx, nc)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		nc = encrypted
	}
	c := &Conn{net: nc, in: buffer{from: nc, data: make([]byte, readBuffer)}}
	if err := c.During(ctx, func() error { return c.greet(s) }); err != nil {
		c.Close()
		return nil, fmt.Errorf("log in: %w", err)
	}
	return c, nil
}

func (s *Server) encrypt(ctx context.Context, nc net.Conn) (net.Conn, error) {
	pool, err := s.trusted()
	if err != nil {
		return nil, err
	}
	name, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		name = s.Address
	}
	encrypted := tls.Client(nc, &tls.Config{ServerName: name, RootCAs: pool, MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("encrypt the connection: %w", err)
	}
	return encrypted, nil
}

// greet logs in and chooses the database.
func (c *Conn) greet(s *Server) error {
	replies := 0
	queue := func(args ...string) {
		c.Command(args...)
		replies++
	}
	switch {
	case s.Username != "":
		queue("AUTH", s.Username, s.Password)
	case s.Password != "":
		queue("AUTH", s.Password)
	}
	if s.DB != 0 {
		queue("SELECT", strconv.Itoa(s.DB))
	}
	if replies == 0 {
		return nil
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for range replies {
		if _, err := c.Line('+'); err != nil {
			return err
		}
	}
	return nil
}
