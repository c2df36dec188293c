// Package kafka holds what the source and the sink of that name share: the settings
// that connect to a cluster, and which errors a person must fix.
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

	"github.com/perigeedb/perigee/internal/address"
)

// Config are the settings that connect to a cluster.
type Config struct {
	Brokers   []string `yaml:"brokers" default:"[127.0.0.1:9092]" example:"[kafka-1:9092, kafka-2:9092]" help:"some brokers of the cluster, as host:port"`
	TLS       bool     `yaml:"tls" help:"use TLS"`
	CA        string   `yaml:"ca" example:"tls/ca.pem" help:"file with the CA certificates that signed the brokers'; turns TLS on"`
	User      string   `yaml:"user" example:"perigee" help:"name to log in with"`
	Password  string   `yaml:"password,secret" example:"${KAFKA_PASSWORD}" help:"password of the user; give it as ${NAME}"`
	Mechanism string   `yaml:"mechanism" default:"scram-sha-512" example:"plain" help:"how to log in: plain, scram-sha-256 or scram-sha-512"`
}

// Options returns the options for a client. Relative paths start at folder.
func (c Config) Options(folder string) ([]kgo.Opt, error) {
	brokers := c.Brokers
	if len(brokers) == 0 {
		brokers = []string{"127.0.0.1:9092"}
	}
	for _, broker := range brokers {
		if !strings.Contains(broker, ":") {
			continue // the client adds the default port
		}
		if err := address.Validate(broker); err != nil {
			return nil, fmt.Errorf("brokers: %w", err)
		}
	}
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ClientID("perigee"), kgo.DisableClientMetrics()}
	if c.TLS || c.CA != "" {
		config, err := c.tlsConfig(folder)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(config))
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
		return nil, fmt.Errorf("unknown mechanism %q: use plain, scram-sha-256 or scram-sha-512", c.Mechanism)
	}
	return opts, nil
}

func (c Config) tlsConfig(folder string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA == "" {
		return config, nil
	}
	path := c.CA
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate", path)
	}
	return config, nil
}

// IsAuthError reports whether a person must fix err: a wrong password, a missing
// permission.
func IsAuthError(err error) bool {
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

// AuthHint is the hint of an IsAuthError.
const AuthHint = "check user, password and mechanism, and the permissions of this user"
