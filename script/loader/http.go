package loader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// redirectsMax is the maximum number of redirects.
const redirectsMax = 5

// newClient returns a client that enforces the allow list for each redirect and each
// resolved address. It uses no proxy, because a proxy would resolve names itself.
func newClient(allow *Allow) *http.Client {
	dialer := &net.Dialer{
		Control: func(_, address string, _ syscall.RawConn) error {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return err
			}
			return allow.checkAddress(host, port)
		},
	}
	return &http.Client{
		Transport: newTransport(dialer),
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case len(via) > redirectsMax:
				return fmt.Errorf("more than %d redirects", redirectsMax)
			case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
				return fmt.Errorf("redirected from https to %s", r.URL.Scheme)
			}
			if err := allow.checkURL(r.URL); err != nil {
				return fmt.Errorf("redirected: %w", err)
			}
			if !leavesMachine(via[0].URL) && leavesMachine(r.URL) {
				return fmt.Errorf("redirected from this machine to plain http")
			}
			return nil
		},
	}
}

// newTransport returns a transport that uses no proxy and waits for limited times.
func newTransport(dialer *net.Dialer) *http.Transport {
	dialer.Timeout = 5 * time.Second
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConns: 10,
	}
}

// fetchHTTP fetches a text, unless its tag is unchanged.
func (l *Loader) fetchHTTP(ctx context.Context, u *url.URL, tag string, maxBytes int) (Text, error) {
	if err := l.allow.checkURL(u); err != nil {
		return Text{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Text{}, err
	}
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return Text{}, withoutURL(err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		return Text{}, ErrUnchanged
	default:
		return Text{}, &statusError{status: response.StatusCode, text: response.Status}
	}
	text, err := readAll(response.Body, maxBytes)
	return Text{Bytes: text, Tag: response.Header.Get("ETag")}, err
}

// A statusError is an HTTP response with an error status.
type statusError struct {
	status int
	text   string
}

func (a *statusError) Error() string { return "the host returned " + a.text }

// Is makes a missing text match fs.ErrNotExist.
func (a *statusError) Is(target error) bool {
	return target == fs.ErrNotExist && (a.status == http.StatusNotFound || a.status == http.StatusGone)
}

// withoutURL strips the URL, which may contain a secret, from err. The caller adds the
// origin.
func withoutURL(err error) error {
	var inURL *url.Error
	if errors.As(err, &inURL) {
		return inURL.Err
	}
	return err
}
