package sqlsink

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
)

// TLS says how a connection is encrypted. Empty leaves it to the driver's settings.
type TLS string

const (
	RequireTLS TLS = "require" // encrypted; the certificate is not checked
	VerifyTLS  TLS = "verify"  // encrypted, and the certificate must be valid for the host
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *TLS) UnmarshalText(text []byte) error {
	if *t = TLS(text); !slices.Contains([]TLS{RequireTLS, VerifyTLS}, *t) {
		return fmt.Errorf("unknown tls %q; known: require, verify", text)
	}
	return nil
}

// Apply sets the driver's own setting of encryption, name, to the value for t. It
// returns an error if both are given.
func (t TLS) Apply(set map[string]string, name string, values map[TLS]string) error {
	if t == "" {
		return nil
	}
	if set[name] != "" {
		return errors.New("tls and params: " + name + " are both given: keep the one to use")
	}
	set[name] = values[t]
	return nil
}

// WarnUnencrypted logs that rows and the password may be read on their way to a host
// that is not this machine. A host that begins with a slash is a socket.
func WarnUnencrypted(log *slog.Logger, pipeline, host string) {
	if address := net.ParseIP(host); host == "localhost" || host == "" || host[0] == '/' || address != nil && address.IsLoopback() {
		return
	}
	log.Warn("the connection to the database may not be encrypted: rows, and with some methods the password, can be read on the way",
		"pipeline", pipeline, "server", host, "hint", "set tls: verify, or tls: require for a server whose certificate cannot be checked")
}
