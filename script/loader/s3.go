package loader

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 configures the service for s3:// URLs. Empty fields come from the environment
// variables of S3 clients: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY.
type S3 struct {
	Endpoint  string // http(s)://host[:port]
	Region    string
	AccessKey string // no keys at all: objects that everyone may read
	SecretKey string
}

// defaultEndpoint is that of the service that S3 was made for.
const defaultEndpoint = "https://s3.amazonaws.com"

// withEnvironment fills the empty fields. An endpoint that the configuration
// names itself is trusted; any other must be in the allow list.
func (s S3) withEnvironment(lookup func(string) (string, bool)) (all S3, trusted bool) {
	trusted = s.Endpoint != ""
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
	return s, trusted
}

// A bucketClient reads objects.
type bucketClient struct {
	core    *minio.Core
	trusted bool
	url     *url.URL // of the endpoint
}

// newBucketClient makes a client, which uses guarded for an endpoint that is not
// trusted. It connects to nothing.
func newBucketClient(s S3, lookup func(string) (string, bool), guarded http.RoundTripper) (*bucketClient, error) {
	s, trusted := s.withEnvironment(lookup)
	u, err := url.Parse(s.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("s3 endpoint %q: want http://host:port or https://host", s.Endpoint)
	}
	options := &minio.Options{Secure: u.Scheme == "https", Region: s.Region, MaxRetries: 1, Transport: guarded}
	if trusted {
		options.Transport = newTransport(new(net.Dialer))
	}
	if s.AccessKey != "" {
		options.Creds = credentials.NewStaticV4(s.AccessKey, s.SecretKey, "")
	}
	core, err := minio.NewCore(u.Host, options)
	if err != nil {
		return nil, fmt.Errorf("s3 endpoint %q: %w", s.Endpoint, err)
	}
	return &bucketClient{core: core, trusted: trusted, url: u}, nil
}

// fetchS3 fetches an object, unless its tag is unchanged.
func (l *Loader) fetchS3(ctx context.Context, u *url.URL, tag string, most int) (Text, error) {
	if !l.s3.trusted {
		if err := l.allow.checkURL(l.s3.url); err != nil {
			return Text{}, err
		}
	}
	var options minio.GetObjectOptions
	if tag != "" {
		options.Set("If-None-Match", tag)
	}
	object, _, header, err := l.s3.core.GetObject(ctx, u.Host, strings.TrimPrefix(u.Path, "/"), options)
	if err != nil {
		return Text{}, objectError(err)
	}
	defer object.Close()
	text, err := readAll(object, most)
	return Text{Bytes: text, Tag: header.Get("ETag")}, err
}

// objectError converts the error of an S3 response.
func objectError(err error) error {
	said := minio.ToErrorResponse(err)
	switch {
	case said.StatusCode == http.StatusNotModified:
		return ErrUnchanged
	case said.StatusCode != 0:
		return &statusError{status: said.StatusCode, text: fmt.Sprintf("%d %s: %s", said.StatusCode, said.Code, said.Message)}
	}
	return withoutURL(err)
}
