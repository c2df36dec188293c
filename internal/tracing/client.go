package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A client posts spans as OTLP over HTTP has them. It implements otlptrace.Client.
type client struct {
	url     string
	headers map[string]string
	http    *http.Client
	closing context.Context // ends requests
	close   context.CancelFunc
}

func newClient(u *url.URL, headers map[string]string) *client {
	closing, cancel := context.WithCancel(context.Background())
	return &client{
		closing: closing, close: cancel,
		url: u.String(), headers: headers,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: headerTimeout}).DialContext,
				TLSHandshakeTimeout: headerTimeout, ResponseHeaderTimeout: sendTimeout, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
			},
			// The headers may have a secret, which is for this host alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Start implements otlptrace.Client.
func (*client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (*client) Stop(context.Context) error { return nil }

// retryable are the answers after which the protocol lets a client try again.
var retryable = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// UploadTraces implements otlptrace.Client. It tries again, until ctx ends, what the receiver is
// too busy for.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.closing, cancel)()
	if err := c.closing.Err(); err != nil { // the library still passes all spans that wait
		return err
	}
	// The request of the protocol has the same encoding, in a package that links gRPC.
	message, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode traces: %w", err)
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	z.Write(message) // a Buffer takes everything
	z.Close()
	for wait := time.Second; ; wait *= 2 {
		retryAfter, err := c.post(ctx, body.Bytes())
		if err == nil || retryAfter < 0 {
			return err
		}
		select {
		case <-time.After(max(wait, retryAfter)):
		case <-ctx.Done():
			return err
		}
	}
}

// post sends a message once. retryAfter is how long to wait before another attempt, after an error;
// -1 if there should be none.
func (c *client) post(ctx context.Context, body []byte) (retryAfter time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	for name, value := range c.headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	answer, err := c.http.Do(request)
	if err != nil {
		return -1, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10)) // also so that the connection is used again
	if answer.StatusCode/100 == 2 {
		return 0, nil
	}
	err = fmt.Errorf("the receiver answered %s: %s", answer.Status, printable(text))
	if !slices.Contains(retryable, answer.StatusCode) {
		return -1, err
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return time.Duration(max(seconds, 0)) * time.Second, err
}

// printable returns the beginning of an answer that is text. Receivers also answer in protobuf.
func printable(answer []byte) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffd {
			return ' '
		}
		return r
	}, string(answer))
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 200)]
}
