// Package s3client makes clients of the S3 service that a configuration or the environment names.
package s3client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Settings locate a service. Empty fields come from the environment variables of S3 clients:
// AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
type Settings struct {
	Endpoint  string // http(s)://host[:port]
	Region    string
	AccessKey string // no keys at all: objects that everyone may use
	SecretKey string
}

// defaultEndpoint is that of the service that S3 was made for.
const defaultEndpoint = "https://s3.amazonaws.com"

// withEnvironment fills the empty fields.
func (s Settings) withEnvironment(lookup func(string) (string, bool)) Settings {
	for _, v := range []struct {
		field *string
		name  string
	}{
		{&s.Endpoint, "AWS_ENDPOINT_URL"}, {&s.Region, "AWS_REGION"},
		{&s.AccessKey, "AWS_ACCESS_KEY_ID"}, {&s.SecretKey, "AWS_SECRET_ACCESS_KEY"},
	} {
		if *v.field == "" {
			*v.field, _ = lookup(v.name)
		}
	}
	if s.Endpoint == "" {
		s.Endpoint = defaultEndpoint
	}
	return s
}

// A Client is a client of one service.
type Client struct {
	*minio.Core
	URL *url.URL // of the endpoint
	// Named says that the settings name the endpoint, and not the environment.
	Named bool
}

// New makes a client, whose requests go through what transport returns for the Client. It
// connects to nothing.
func New(s Settings, lookup func(string) (string, bool), transport func(*Client) http.RoundTripper) (*Client, error) {
	c := &Client{Named: s.Endpoint != ""}
	s = s.withEnvironment(lookup)
	var err error
	c.URL, err = url.Parse(s.Endpoint)
	if err != nil || c.URL.Host == "" || c.URL.Scheme != "http" && c.URL.Scheme != "https" || strings.Trim(c.URL.Path, "/") != "" {
		if strings.Contains(s.Endpoint, "@") { // it may have keys
			return nil, errors.New("invalid s3 endpoint: use http://host:port or https://host, without keys")
		}
		return nil, fmt.Errorf("s3 endpoint %q: want http://host:port or https://host", s.Endpoint)
	}
	options := &minio.Options{Secure: c.URL.Scheme == "https", Region: s.Region, MaxRetries: 1, Transport: transport(c)}
	if s.AccessKey != "" {
		options.Creds = credentials.NewStaticV4(s.AccessKey, s.SecretKey, "")
	}
	if c.Core, err = minio.NewCore(c.URL.Host, options); err != nil {
		return nil, fmt.Errorf("s3 endpoint %s: %w", c.URL.Host, err)
	}
	return c, nil
}

// FromEnvironment makes a client of the service that the environment names. Its requests fail if
// the service does not answer within wait.
func FromEnvironment(wait time.Duration) (*Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: wait}).DialContext
	transport.TLSHandshakeTimeout, transport.ResponseHeaderTimeout = wait, wait
	transport.MaxIdleConnsPerHost = 8
	return New(Settings{}, os.LookupEnv, func(*Client) http.RoundTripper { return transport })
}
