package loader

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/internal/s3client"
)

// S3 configures the service for s3:// URLs.
type S3 = s3client.Settings

// newBucketClient makes a client. An endpoint that the configuration names itself is trusted; any
// other must be in the allow list, and guarded enforces that.
func newBucketClient(s S3, lookup func(string) (string, bool), guarded http.RoundTripper) (*s3client.Client, error) {
	return s3client.New(s, lookup, func(c *s3client.Client) http.RoundTripper {
		if c.Named {
			return newTransport(new(net.Dialer))
		}
		return guarded
	})
}

// fetchS3 fetches an object, unless its tag is unchanged.
func (l *Loader) fetchS3(ctx context.Context, u *url.URL, tag string, maxBytes int) (Text, error) {
	if !l.s3.Named {
		if err := l.allow.checkURL(l.s3.URL); err != nil {
			return Text{}, err
		}
	}
	var options minio.GetObjectOptions
	if tag != "" {
		options.Set("If-None-Match", tag)
	}
	object, _, header, err := l.s3.GetObject(ctx, u.Host, strings.TrimPrefix(u.Path, "/"), options)
	if err != nil {
		return Text{}, objectError(err)
	}
	defer object.Close()
	text, err := readAll(object, maxBytes)
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
