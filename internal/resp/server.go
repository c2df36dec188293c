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

	"github.com/perigeedb/perigee/internal/address"
)

const connectTimeout = 5 * time.Second

// A Server is the address of a Redis server and how to log in.
type Server struct {
	Address  string // host:port, or the path of a Unix socket
	Username string
	Password string
	DB       int
	TLS      bool   // encrypt, and verify the server's certificate
	CA       string // file with CA certificates; empty for those of the system
}

// Prepare sets defaults and validates the settings without connecting. Relative paths
// start at folder.
func (s *Server) Prepare(folder string) error {
	if s.Address == "" {
		s.Address = "127.0.0.1:6379"
	}
	if !strings.HasPrefix(s.Address, "/") {
		if err := address.Validate(s.Address); err != nil {
			return err
		}
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
	_, err := s.loadCA()
	return err
}

// loadCA returns the CA certificates, or nil for those of the system.
func (s *Server) loadCA() (*x509.CertPool, error) {
	if s.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca %s contains no certificate in PEM", s.CA)
	}
	return pool, nil
}

// Dial connects, logs in and selects the database.
func (s *Server) Dial(ctx context.Context) (*Conn, error) {
	network := "tcp"
	if strings.HasPrefix(s.Address, "/") {
		network = "unix"
	}
	d := net.Dialer{Timeout: connectTimeout}
	nc, err := d.DialContext(ctx, network, s.Address)
	if err != nil {
		return nil, err
	}
	if s.TLS {
		encrypted, err := s.startTLS(ctx, nc)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		nc = encrypted
	}
	c := &Conn{net: nc, in: replyBuffer{from: nc, data: make([]byte, replyBufferBytes)}}
	if err := c.WithContext(ctx, func() error { return c.logIn(s) }); err != nil {
		c.Close()
		return nil, fmt.Errorf("log in: %w", err)
	}
	return c, nil
}

func (s *Server) startTLS(ctx context.Context, nc net.Conn) (net.Conn, error) {
	pool, err := s.loadCA()
	if err != nil {
		return nil, err
	}
	name, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		name = s.Address
	}
	encrypted := tls.Client(nc, &tls.Config{ServerName: name, RootCAs: pool, MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return encrypted, nil
}

// logIn authenticates and selects the database.
func (c *Conn) logIn(s *Server) error {
	replies := 0
	queue := func(args ...string) {
		c.Queue(args...)
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
		if _, err := c.ReadHeader('+'); err != nil {
			return err
		}
	}
	return nil
}
