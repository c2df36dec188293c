package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/perigeedb/perigee/internal/address"
)

// Access says where a server listens and who may ask it.
type Access struct {
	Listen string // address, as 127.0.0.1:4291
	Token  string // that clients send; may be empty on loopback only
	Cert   string // files for TLS
	Key    string
}

// Validate returns an error unless the server can listen there. what says what anybody could
// do there without a token, as "post events".
func (a *Access) Validate(what string) error {
	if err := address.Validate(a.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	switch {
	case a.Token == "" && !IsLoopback(a.Listen):
		return fmt.Errorf("listening on %s needs a token: anybody there could %s", a.Listen, what)
	case (a.Cert == "") != (a.Key == ""):
		return errors.New("TLS needs both cert and key")
	}
	return nil
}

// IsLoopback reports whether only programs of this machine can connect to an address such as
// 127.0.0.1:4290.
func IsLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LoadCertificates returns the certificates that the server presents; none without TLS.
func (a *Access) LoadCertificates() ([]tls.Certificate, error) {
	if a.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	return []tls.Certificate{pair}, nil
}

// Open listens, with TLS if there are certificates.
func (a *Access) Open(certificates []tls.Certificate) (net.Listener, error) {
	l, err := net.Listen("tcp", a.Listen)
	if err != nil || len(certificates) == 0 {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12}), nil
}

// Authorized reports whether a request has the token. If not, it says what to send in the
// header of the answer, and the caller answers 401.
func (a *Access) Authorized(w http.ResponseWriter, r *http.Request) bool {
	if a.Token == "" {
		return true
	}
	want, got := sha256.Sum256([]byte("Bearer "+a.Token)), sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if subtle.ConstantTimeCompare(want[:], got[:]) == 1 {
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	return false
}

// ErrUnauthorized is what a client without the token is told.
var ErrUnauthorized = errors.New("send the token as Authorization: Bearer TOKEN")
