package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"

	"github.com/perigeedb/perigee/event"
)

// tokenVariable is the environment variable with the token of a REST catalog, or with its
// credential in the form CLIENT:SECRET.
const tokenVariable = "PERIGEE_LAKE_TOKEN"

func openREST(ctx context.Context, address, warehouse string, properties iceberg.Properties) (catalog.Catalog, error) {
	delete(properties, "warehouse")
	last := &lastAnswer{}
	options := []rest.Option{rest.WithAdditionalProps(properties), rest.WithTransportFactory(last.transport)}
	if !strings.HasPrefix(warehouse, "file:") {
		options = append(options, rest.WithWarehouseLocation(warehouse))
	}
	if token := os.Getenv(tokenVariable); strings.Contains(token, ":") {
		options = append(options, rest.WithCredential(token))
	} else if token != "" {
		options = append(options, rest.WithOAuthToken(token))
	}
	c, err := rest.NewCatalog(ctx, catalogName, address, options...)
	if err != nil {
		return nil, last.explain(address, err)
	}
	return c, nil
}

// A lastAnswer remembers the answer to the last request, or why there was none. The library's
// errors do not tell: that of a request for a token is empty if the answer is no JSON.
type lastAnswer struct {
	mu      sync.Mutex
	request string // method and address
	status  int
	err     error
}

// transport implements rest.TransportFactory.
func (a *lastAnswer) transport(config *tls.Config) (http.RoundTripper, func()) {
	base := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config}
	return answeredTransport{base, a}, base.CloseIdleConnections
}

type answeredTransport struct {
	http.RoundTripper
	last *lastAnswer
}

// RoundTrip follows no redirect: a commit that is redirected would be repeated as a request that only
// loads the table, whose answer looks like that of a commit, and the token would go to another host.
func (t answeredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode/100 == 3 {
		response.Body.Close()
		err = permanent("write the address of the catalog itself in lake.catalog", "the catalog redirects %s %s to %s", r.Method, withoutSecrets(r.URL), redirectedTo(response))
		response = nil
	} else if err == nil {
		response.Body = &boundedBody{response.Body, answerMax}
	}
	t.last.mu.Lock()
	defer t.last.mu.Unlock()
	t.last.request, t.last.status, t.last.err = r.Method+" "+withoutSecrets(r.URL), 0, err
	if err == nil {
		t.last.status = response.StatusCode
	}
	return response, err
}

func redirectedTo(answer *http.Response) string {
	to, err := answer.Location()
	if err != nil {
		return "another address"
	}
	return withoutSecrets(to)
}

// answerMax bounds the size of an answer, which is read into memory. Metadata of a table with many
// snapshots have some megabytes.
const answerMax = 256 << 20

// A boundedBody is the body of an answer, and fails after left bytes.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer of the catalog is larger than %d MiB", answerMax>>20)
	}
	return n, err
}

// withoutSecrets returns an address without the parts that may have a secret.
func withoutSecrets(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// explain returns the error of opening the catalog at an address, with the last answer. Answers
// that do not change are permanent.
func (a *lastAnswer) explain(address string, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	base, invalid := url.Parse(address)
	if invalid != nil || a.request == "" {
		return err
	}
	config := withoutSecrets(base.JoinPath("v1", "config"))
	switch {
	case event.IsPermanent(a.err):
		return a.err
	case a.err != nil:
		return fmt.Errorf("the catalog does not answer to %s: %w", a.request, a.err)
	case a.status < http.StatusBadRequest:
		return event.WithHint(fmt.Errorf("the answer of the catalog to %s: %w", a.request, err), fmt.Sprintf("check the address: %s must answer", config))
	}
	answer := fmt.Errorf("the catalog answered %d %s to %s", a.status, http.StatusText(a.status), a.request)
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		err = inURL.Err // without the address
	}
	if text := err.Error(); text != "" && !strings.Contains(text, "failed to decode") {
		answer = fmt.Errorf("%w: %w", answer, err)
	}
	switch isToken := strings.HasSuffix(a.request, "/oauth/tokens"); {
	case a.status >= 500 || a.status == http.StatusRequestTimeout || a.status == http.StatusTooEarly || a.status == http.StatusTooManyRequests:
		return answer
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || isToken && a.status == http.StatusBadRequest:
		return permanent(fmt.Sprintf("set %s in the environment of the engine to a token, or to CLIENT:SECRET, that the catalog takes, and check the address: %s must answer", tokenVariable, config), "%w", answer)
	}
	return permanent(fmt.Sprintf("check the address: %s must answer", config), "%w", answer)
}
