// Package kafka is how the source and the sink of that name reach a cluster: the
// settings that they share and what its errors mean.
package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Config says where a cluster is and how to log in.
type Config struct {
	Brokers   []string `yaml:"brokers" help:"some brokers of the cluster, as host:port (default 127.0.0.1:9092)"`
	TLS       bool     `yaml:"tls" help:"talk TLS"`
	CA        string   `yaml:"ca" help:"file with the certificates of who signed the brokers'; turns TLS on"`
	User      string   `yaml:"user" help:"name to log in with"`
	Password  string   `yaml:"password" help:"give it as ${NAME}"`
	Mechanism string   `yaml:"mechanism" help:"plain, scram-sha-256 or scram-sha-512 (default scram-sha-512)"`
}

// Options are what a client is made with. Relative paths start at folder.
func (c Config) Options(folder string) ([]kgo.Opt, error) {
	brokers := c.Brokers
	if len(brokers) == 0 {
		brokers = []string{"127.0.0.1:9092"}
	}
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ClientID("perigee"), kgo.DisableClientMetrics()}
	if c.TLS || c.CA != "" {
		secure, err := c.secure(folder)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(secure))
	}
	if c.User == "" {
		return opts, nil
	}
	switch strings.ToLower(c.Mechanism) {
	case "plain":
		opts = append(opts, kgo.SASL(plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()))
	case "scram-sha-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()))
	case "", "scram-sha-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("unknown mechanism %q; known: plain, scram-sha-256, scram-sha-512", c.Mechanism)
	}
	return opts, nil
}

func (c Config) secure(folder string) (*tls.Config, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA == "" {
		return secure, nil
	}
	path := c.CA
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	secure.RootCAs = x509.NewCertPool()
	if !secure.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return secure, nil
}

// Refused tells whether an error is one that only a person can mend: a wrong
// password, a right that is missing.
func Refused(err error) bool {
	for _, e := range []*kerr.Error{
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.TopicAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Hint is for errors that are Refused.
const Hint = "check user, password and mechanism, and what the cluster allows this user"
