//go:build linux && cgo

package eventservice

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/testserver"
)

// startListening starts a store that answers where a configuration says.
func startListening(t *testing.T, q config.Query) (*Store, error) {
	t.Helper()
	data := t.TempDir()
	s := &Store{}
	t.Cleanup(func() { s.Close() })
	err := s.Start(engine.Host{Data: data, Log: slog.New(slog.DiscardHandler), Query: q, Handle: func(string, http.Handler) {}})
	if err == nil { // a query makes no store
		_, err = s.open()
	}
	return s, err
}

// TestQueryPortWithTLS asks the port for queries over TLS: with the token, without it, by a
// client that does not know the certificate, by one with an old version, and without TLS.
func TestQueryPortWithTLS(t *testing.T) {
	cert, key := testserver.WriteCertificate(t, t.TempDir())
	s, err := startListening(t, config.Query{Listen: "127.0.0.1:0", Token: "secret", Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(pem)
	ask := func(scheme, token string, c *tls.Config) (int, string, error) {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: c}, Timeout: 30 * time.Second}
		defer client.CloseIdleConnections()
		request, err := http.NewRequest("POST", scheme+"://"+s.Address().String()+"/query?format=csv", strings.NewReader("SELECT 6 * 7 AS answer"))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), err
	}
	if status, body, err := ask("https", "secret", &tls.Config{RootCAs: known}); err != nil || status != 200 || body != "answer\n42\n" {
		t.Errorf("with the token: %d %q, %v", status, body, err)
	}
	for _, token := range []string{"", "secre", "secret2"} {
		if status, body, err := ask("https", token, &tls.Config{RootCAs: known}); err != nil || status != http.StatusUnauthorized || strings.Contains(body, "42") {
			t.Errorf("with the token %q: %d %q, %v", token, status, body, err)
		}
	}
	status, _, err := ask("https", "secret", &tls.Config{})
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("a client that does not know the certificate: %d, %v", status, err)
	}
	if status, _, err := ask("https", "secret", &tls.Config{RootCAs: known, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("a client with TLS 1.1: %d, %v", status, err)
	}
	if status, body, err := ask("http", "secret", nil); err == nil && (status == 200 || strings.Contains(body, "42")) {
		t.Errorf("without TLS: %d %q", status, body)
	}
}

// TestQueryPortFaults checks the errors of wrong settings of the port.
func TestQueryPortFaults(t *testing.T) {
	folder := t.TempDir()
	cert, key := testserver.WriteCertificate(t, folder)
	other, otherKey := testserver.WriteCertificate(t, t.TempDir())
	taken, err := startListening(t, config.Query{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string]config.Query{
		"a key of another certificate": {Listen: "127.0.0.1:0", Cert: cert, Key: otherKey},
		"no such certificate":          {Listen: "127.0.0.1:0", Cert: filepath.Join(folder, "none.pem"), Key: key},
		"a port that is taken":         {Listen: taken.Address().String(), Cert: other, Key: otherKey},
	} {
		if s, err := startListening(t, q); !event.IsPermanent(err) || event.HintOf(err) == "" || s.Address() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s, err := startListening(t, config.Query{}); err != nil || s.Address() != nil {
		t.Errorf("without a port: %v, %v", s.Address(), err)
	}
}

// TestAddress holds that a request to a running engine asks for the limits that it has, and
// leaves the others to the engine.
func TestAddress(t *testing.T) {
	for want, q := range map[string]Request{
		"format=csv":                                    {Format: "csv"},
		"format=json&rows=1":                            {Format: "json", Rows: 1},
		"format=json&time=1ns":                          {Format: "json", Time: 1},
		"format=json&memory=1":                          {Format: "json", Memory: 1},
		"format=arrow&memory=5&rows=7&time=2m0s":        {Format: "arrow", Rows: 7, Time: 2 * time.Minute, Memory: 5},
		"format=csv&param.a%3Aint64=1&param.b=x%3Dy%26": {Format: "csv", Params: []string{"a:int64=1", "b=x=y&"}},
	} {
		if got := q.address().Encode(); got != want {
			t.Errorf("%+v asks for %s, want %s", q, got, want)
		}
	}
}

// TestLakeCatalogOnPort asks the port for the catalog of lake tables, with and without the token.
func TestLakeCatalogOnPort(t *testing.T) {
	s, err := startListening(t, config.Query{Listen: "127.0.0.1:0", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	store, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Table("mails", eventstore.TableConfig{Lake: &catalog.Lake{Warehouse: t.TempDir()}}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		token, path string
		status      int
		want        string
	}{
		{"secret", "v1/config", 200, `"GET /v1/{prefix}/namespaces"`},
		{"secret", "v1/namespaces", 200, `{"namespaces":[]}`}, // the table has no commit yet
		{"secret", "v1/namespaces/perigee/tables/mails", 404, `"NoSuchNamespaceException"`},
		{"secret", "v1/../../query", 404, `"NotFoundException"`},
		{"", "v1/namespaces", 401, `"NotAuthorizedException"`},
		{"wrong", "v1/config", 401, `"NotAuthorizedException"`},
	} {
		request, err := http.NewRequest("GET", "http://"+s.Address().String()+"/iceberg/"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.want) {
			t.Errorf("%s with the token %q: %d %s (%v)", test.path, test.token, response.StatusCode, body, err)
		}
	}
}
