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

// redirectsMax is how often a host may send us on.
const redirectsMax = 5

// newClient makes a client that leaves the allow list on no way: each redirect
// and each address that a name stands for is checked. It uses no proxy, because
// that would resolve names for it.
func newClient(allow *Allow) *http.Client {
	dialer := &net.Dialer{
		Timeout: 5 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return err
			}
			return allow.checkAddress(host, port)
		},
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 10 * time.Second,
			IdleConnTimeout: time.Minute, MaxIdleConns: 10,
		},
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
			return nil
		},
	}
}

// fetchHTTP fetches a text, unless the tag is still that of the one at hand.
func (l *Loader) fetchHTTP(ctx context.Context, u *url.URL, tag string, most int) (Text, error) {
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
	text, err := readAll(response.Body, most)
	return Text{Bytes: text, Tag: response.Header.Get("ETag")}, err
}

// An statusError is one that is no text.
type statusError struct {
	status int
	text   string
}

func (a *statusError) Error() string { return "the host answers " + a.text }

// Is tells what is not there from what cannot be had.
func (a *statusError) Is(target error) bool {
	return target == fs.ErrNotExist && (a.status == http.StatusNotFound || a.status == http.StatusGone)
}

// withoutURL is err without the address, which the caller says, and which may
// hold a secret here.
func withoutURL(err error) error {
	var inURL *url.Error
	if errors.As(err, &inURL) {
		return inURL.Err
	}
	return err
}
