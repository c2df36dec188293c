package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// TestWrongRESTAddresses opens what is no REST catalog, or one that takes another token. The errors
// must tell the answer, and the hints what to check; an answer that stays the same is permanent.
func TestWrongRESTAddresses(t *testing.T) {
	const page, xml = "<html>no</html>", `<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>`
	for name, test := range map[string]struct {
		token      string
		status     int
		body       string
		want, hint string
		again      bool   // the answer may change
		noText     string // of the body
	}{
		"another server":                   {"", 404, page, "the catalog answered 404 Not Found to GET ADDRESS/v1/config", "check the address: ADDRESS/v1/config must answer", false, "html"},
		"another server, with no text":     {"", 404, "", "the catalog answered 404 Not Found to GET ADDRESS/v1/config", "check the address: ADDRESS/v1/config must answer", false, ""},
		"another server, with a client":    {"c:secret", 404, page, "the catalog answered 404 Not Found to POST ADDRESS/v1/oauth/tokens", "check the address: ADDRESS/v1/config must answer", false, "html"},
		"S3":                               {"", 403, xml, "the catalog answered 403 Forbidden to GET ADDRESS/v1/config", "set PERIGEE_LAKE_TOKEN", false, "Access"},
		"S3, with a client":                {"c:secret", 403, xml, "the catalog answered 403 Forbidden to POST ADDRESS/v1/oauth/tokens", "set PERIGEE_LAKE_TOKEN", false, "Access"},
		"a wrong token":                    {"secret", 401, `{"error": {"message": "who is this", "type": "NotAuthorizedException", "code": 401}}`, "the catalog answered 401 Unauthorized to GET ADDRESS/v1/config: NotAuthorizedException: who is this", "set PERIGEE_LAKE_TOKEN", false, ""},
		"a wrong client":                   {"c:secret", 400, `{"error": "invalid_client"}`, "the catalog answered 400 Bad Request to POST ADDRESS/v1/oauth/tokens: invalid_client", "set PERIGEE_LAKE_TOKEN", false, ""},
		"a page":                           {"", 200, page, "the answer of the catalog to GET ADDRESS/v1/config", "check the address: ADDRESS/v1/config must answer", true, ""},
		"a catalog that cannot answer now": {"", 503, "", "the catalog answered 503 Service Unavailable to GET ADDRESS/v1/config", "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tokenVariable, test.token)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if strings.HasPrefix(test.body, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(test.status)
				_, _ = fmt.Fprint(w, test.body)
			}))
			defer server.Close()
			address := server.URL + "/below"
			c, err := openCatalog(t.Context(), &lake.Settings{Warehouse: "s3://bucket/lake", Catalog: address + "/", Table: "sales.mails"}, true)
			if err == nil {
				closeCatalog(c)
				t.Fatal("opened")
			}
			got, gotHint := err.Error(), event.HintOf(err)
			want, hint := strings.ReplaceAll(test.want, "ADDRESS", address), strings.ReplaceAll(test.hint, "ADDRESS", address)
			if !strings.HasPrefix(got, want) || !strings.HasPrefix(gotHint, hint) || (hint == "") != (gotHint == "") {
				t.Errorf("got the error %q and the hint %q, want %q… and %q…", got, gotHint, want, hint)
			}
			if test.noText != "" && got != want || strings.Contains(got+gotHint, "secret") {
				t.Errorf("the error is %q", got)
			}
			if event.IsPermanent(err) == test.again {
				t.Errorf("an attempt to open it again: %t", test.again)
			}
		})
	}
}

// TestDeadRESTCatalog: the hint is that of a server that does not run, also if the first request is
// for a token, whose error the library keeps only as a text.
func TestDeadRESTCatalog(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(tokenVariable, "c:secret")
	report := publish(t.Context(), orderOf(lake.Settings{Warehouse: t.TempDir(), Catalog: address, Table: "sales.mails"}, 1))
	if want := "the catalog does not answer to POST " + address + "/v1/oauth/tokens"; !strings.HasPrefix(report.Error, want) || !strings.Contains(report.Error, "refused") || !strings.HasPrefix(report.Hint, "start it, or check the address") {
		t.Errorf("got the error %q and the hint %q, want %q…", report.Error, report.Hint, want)
	}
}

// TestRedirect has a catalog that sends its clients elsewhere. The token must not go there.
func TestRedirect(t *testing.T) {
	for _, token := range []string{"secret-token", "client:secret-of-client"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			t.Setenv(tokenVariable, token)
			elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("%d: another host got %s %s", status, r.Method, r.URL)
			}))
			defer elsewhere.Close()
			first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
			}))
			defer first.Close()
			_, err := openCatalog(t.Context(), &lake.Settings{Warehouse: "s3://bucket/lake", Catalog: first.URL, Table: "sales.mails"}, true)
			if want := " to " + elsewhere.URL; !event.IsPermanent(err) || !strings.Contains(err.Error(), "the catalog redirects") || !strings.Contains(err.Error(), want) || event.HintOf(err) == "" {
				t.Errorf("%d: got the error %v, want …%s…", status, err, want)
			}
		}
	}
}

// TestCommitAnsweredByOthers has something before the catalog that answers a commit without passing it on.
// What it answers is metadata of the table, so that only their properties tell.
func TestCommitAnsweredByOthers(t *testing.T) {
	settings, found := catalogs(t)["S3, REST"]
	if !found {
		t.Skip("needs S3: make test-lake")
	}
	folder := t.TempDir()
	o := orderOf(settings, 1, writeFile(t, folder, 1, 0, 9))
	if r := publish(t.Context(), o); r.Error != "" {
		t.Fatal(r.Error)
	}
	catalog, err := url.Parse(settings.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	redirects := false
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: catalog.Scheme, Host: catalog.Host})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch isCommit := r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/tables/"); {
		case isCommit && redirects:
			http.Redirect(w, r, settings.Catalog, http.StatusFound)
			return
		case isCommit:
			_, _ = io.Copy(io.Discard, r.Body)
			r = r.Clone(r.Context())
			r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
		}
		pass.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	through := settings
	through.Catalog = proxy.URL + catalog.Path
	for _, redirects = range []bool{false, true} {
		next := orderOf(through, 2, o.Files[0], writeFile(t, folder, 2, 20, 29))
		next.Files[0].Step = 1
		if r := publish(t.Context(), next); r.Covered == 2 || r.Error == "" {
			t.Errorf("redirected %t: got %+v, want an error", redirects, r)
		}
	}
}

// TestBoundedBody has an answer that does not end.
func TestBoundedBody(t *testing.T) {
	for size, want := range map[int]bool{10: true, 11: false} {
		body := &boundedBody{io.NopCloser(strings.NewReader(strings.Repeat("x", size))), 10}
		if got, err := io.ReadAll(body); (err == nil) != want || err == nil && len(got) != size {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
}

// TestTidyAnsweredByOthers has a catalog that answers the removal of snapshots and does not carry it out.
func TestTidyAnsweredByOthers(t *testing.T) {
	settings, found := catalogs(t)["S3, REST"]
	if !found {
		t.Skip("needs S3: make test-lake")
	}
	folder := t.TempDir()
	a, b := writeFile(t, folder, 1, 0, 9), writeFile(t, folder, 2, 20, 29)
	catalog, err := url.Parse(settings.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	commits := 0
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: catalog.Scheme, Host: catalog.Host})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/tables/") {
			body, _ := io.ReadAll(r.Body)
			r = r.Clone(r.Context())
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte("remove-snapshots")) {
				commits++
				r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
			}
		}
		pass.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	settings.Catalog = proxy.URL + catalog.Path
	for step, f := range []lake.File{a, b} {
		if r := publish(t.Context(), orderOf(settings, step+1, f)); r.Error != "" {
			t.Fatal(r.Error)
		}
	}
	time.Sleep(10 * time.Millisecond)
	o := orderOf(settings, 3, b)
	o.Tidy = lake.DefaultTidy()
	o.Tidy.Grace, o.Tidy.Purges = time.Millisecond, []lake.Purge{{Number: 2, At: time.Now()}}
	r := publish(t.Context(), record(t, o))
	if r.Tidied == nil || !strings.Contains(r.Tidied.Error, "has snapshots that it removes") || r.Tidied.Expired != 0 || commits == 0 || commits > attempts {
		t.Errorf("after %d commits: %+v, tidied %+v, want an error after %d", commits, r, r.Tidied, attempts)
	}
}
