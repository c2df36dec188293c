package loader_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/script/loader"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocate(t *testing.T) {
	for _, c := range []struct{ text, base, want string }{
		{"email.lua", "/etc/p", "/etc/p/email.lua"},
		{"../email.lua", "/etc/p", "/etc/email.lua"},
		{"/opt/email.lua", "/etc/p", "/opt/email.lua"},
		{"my function.lua", "/etc/p", "/etc/p/my function.lua"},
		{"domain/main.lua", "/etc/p", "/etc/p/domain/main.lua"},
		{"return.lua", "/etc/p", "/etc/p/return.lua"},
		{"file:///opt/a/../email.lua", "/etc/p", "/opt/email.lua"},
		{"file://localhost/email.lua", "/etc/p", "/email.lua"},
		{"https://Host/a/b.lua", "/etc/p", "https://Host/a/b.lua"},
		{"HTTPS://host/a.lua", "/etc/p", "https://host/a.lua"},
		{"https://me:secret@host/a.lua?token=secret", "/etc/p", "https://host/a.lua"},
		{"s3://bucket/a/b.lua", "/etc/p", "s3://bucket/a/b.lua"},
		{"b.lua", "https://host/a/", "https://host/a/b.lua"},
		{"../b.lua", "s3://bucket/a/", "s3://bucket/b.lua"},
		{"/opt/b.lua", "https://host/a/", "/opt/b.lua"},
		{"function main(row) return row.a end", "/etc/p", "column a"},
		{"main = function(row) return row.a end", "/etc/p", "column a"},
		{"main=string.upper", "/etc/p", "column a"},
		{`function main(row) return "https://x/" .. row.a end`, "/etc/p", "column a"},
		{"local n = 1\nreturn n", "/etc/p", "column a"},
	} {
		got, err := loader.Locate(c.text, c.base, "column a")
		if err != nil || got.String() != c.want {
			t.Errorf("Locate(%q, %q) is %q, %v; want %q", c.text, c.base, got, err, c.want)
		}
	}
}

func TestLocateRefuses(t *testing.T) {
	for text, part := range map[string]string{
		"":                  "no code",
		"  \n ":             "no code",
		"ftp://host/a.lua":  "use file, http, https, s3",
		"https:///a.lua":    "has no host",
		"s3://bucket":       "s3://bucket/key",
		"s3://bucket/":      "s3://bucket/key",
		"file://etc/a.lua":  "file:///",
		"https://ho st/%zz": "invalid URL",

		"https://me:100%hunter22@host/a.lua": "invalid URL",
		"https://me:hunter22/x@host/a.lua":   "invalid URL",
		"file://me:hunter22@host/a.lua":      "names the host host",
		"https://me:hunter22@/a.lua":         "has no host",
		"s3://KEY:hunter22@bucket/":          "s3://bucket/ has no object",
		"https:///a.lua?token=hunter22":      "has no host",
	} {
		if got, err := loader.Locate(text, "/etc", "x"); err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("Locate(%q) is %q, %v; want an error with %q", text, got, err, part)
		}
	}
}

func TestBase(t *testing.T) {
	for text, want := range map[string]string{
		"/etc/p/perigee.yaml":                 "/etc/p",
		"https://host/a/perigee.yaml?x=1":     "https://host/a/",
		"https://me:pass@host/a/perigee.yaml": "https://me:pass@host/a/",
		"s3://bucket/perigee.yaml":            "s3://bucket/",
		"https://host/perigee.yaml":           "https://host/",
	} {
		if base := locate(t, text).Base(); base != want {
			t.Errorf("base of %s is %s, want %s", text, base, want)
		}
	}
}

func locate(t *testing.T, text string) loader.Origin {
	t.Helper()
	o, err := loader.Locate(text, t.TempDir(), "inline")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newLoader(t *testing.T, c loader.Config) *loader.Loader {
	t.Helper()
	if c.Lookup == nil {
		c.Lookup = func(string) (string, bool) { return "", false }
	}
	l, err := loader.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestLocal(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "a.lua"), "return 1")
	write(t, filepath.Join(folder, "lib", "b.lua"), "return 2")
	write(t, filepath.Join(folder, "large.lua"), strings.Repeat("-", 4<<20+1))
	l := newLoader(t, loader.Config{})
	code, _, err := l.Code(t.Context(), locate(t, filepath.Join(folder, "a.lua")), "")
	if err != nil || string(code.Text) != "return 1" || code.Name != filepath.Join(folder, "a.lua") {
		t.Errorf("code is %s: %q, %v", code.Name, code.Text, err)
	}
	if beside, err := code.Files("lib/b.lua"); err != nil || string(beside) != "return 2" {
		t.Errorf("beside lies %q, %v", beside, err)
	}
	if _, err := l.Load(t.Context(), locate(t, "/no/such.lua"), ""); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "read /no/such.lua: no such file") {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := l.Load(t.Context(), locate(t, filepath.Join(folder, "large.lua")), ""); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("what is large: %v", err)
	}
	inline, _, err := l.Code(t.Context(), locate(t, "function main(row) return row.a end"), "")
	if err != nil || inline.Name != "inline" || string(inline.Text) != "function main(row) return row.a end\n" {
		t.Errorf("code is %s: %q, %v", inline.Name, inline.Text, err)
	}
}

// TestLocalFilesAreClosed: what was read, compared or is too large does not stay open.
func TestLocalFilesAreClosed(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "a.lua"), "return 1")
	write(t, filepath.Join(folder, "plugin.so"), "no plugin")
	write(t, filepath.Join(folder, "large.lua"), strings.Repeat("-", 4<<20+1))
	l := newLoader(t, loader.Config{})
	leaktest.Closed(t, folder, func() {
		for _, name := range []string{"a.lua", "large.lua", "plugin.so"} {
			text, err := l.Load(t.Context(), locate(t, filepath.Join(folder, name)), "")
			if err == nil {
				_, _ = l.Load(t.Context(), locate(t, filepath.Join(folder, name)), text.Tag)
			}
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// site is a host with scripts.
func site(t *testing.T) *url.URL {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a.lua", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte("return 1")))
	})
	mux.HandleFunc("GET /lib/b.lua", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "return 2") })
	mux.HandleFunc("GET /large.lua", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 5<<20)) })
	mux.HandleFunc("GET /private.lua", func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			http.Error(w, "no", http.StatusUnauthorized)
		}
	})
	mux.Handle("GET /away.lua", http.RedirectHandler("http://elsewhere.invalid/a.lua", http.StatusFound))
	mux.Handle("GET /moved.lua", http.RedirectHandler("/a.lua", http.StatusFound))
	mux.Handle("GET /round.lua", http.RedirectHandler("/round.lua", http.StatusFound))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestHTTP(t *testing.T) {
	host := site(t)
	l := newLoader(t, loader.Config{Allow: []string{host.Host}})
	for _, c := range []struct{ path, want, refused string }{
		{"/a.lua", "return 1", ""},
		{"/moved.lua", "return 1", ""},
		{"/away.lua", "", "redirected: host elsewhere.invalid is not in the allow list"},
		{"/round.lua", "", "more than 5 redirects"},
		{"/large.lua", "", "larger than 4 MiB"},
		{"/none.lua", "", "404 Not Found"},
		{"/private.lua?token=hidden", "", "401"},
	} {
		text, err := l.Load(t.Context(), locate(t, host.String()+c.path), "")
		if c.refused == "" {
			if err != nil || string(text.Bytes) != c.want {
				t.Errorf("%s is %q, %v; want %q", c.path, text.Bytes, err, c.want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: error is %v, want %q", c.path, err, c.refused)
		}
	}
	signedIn := "http://me:secret@" + host.Host + "/private.lua"
	if _, err := l.Load(t.Context(), locate(t, signedIn), ""); err != nil {
		t.Error(err)
	}
}

func TestHTTPUnchanged(t *testing.T) {
	host := site(t)
	l := newLoader(t, loader.Config{Allow: []string{host.Host}})
	origin := locate(t, host.String()+"/a.lua")
	text, err := l.Load(t.Context(), origin, "")
	if err != nil || text.Tag != `"one"` {
		t.Fatalf("tag is %s, %v", text.Tag, err)
	}
	if _, err := l.Load(t.Context(), origin, text.Tag); !errors.Is(err, loader.ErrUnchanged) {
		t.Errorf("with its tag: %v", err)
	}
	if again, err := l.Load(t.Context(), origin, `"other"`); err != nil || string(again.Bytes) != "return 1" {
		t.Errorf("with another tag: %q, %v", again.Bytes, err)
	}
}

func TestHTTPBeside(t *testing.T) {
	host := site(t)
	l := newLoader(t, loader.Config{Allow: []string{host.Host}})
	code, _, err := l.Code(t.Context(), locate(t, host.String()+"/a.lua"), "")
	if err != nil {
		t.Fatal(err)
	}
	if beside, err := code.Files("lib/b.lua"); err != nil || string(beside) != "return 2" {
		t.Errorf("beside lies %q, %v", beside, err)
	}
	if _, err := code.Files("lib/none.lua"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	for _, out := range []string{"../a.lua", "/a.lua", ""} {
		if _, err := code.Files(out); err == nil || !strings.Contains(err.Error(), "leaves the folder") {
			t.Errorf("%q is read: %v", out, err)
		}
	}
}

// TestAllow: what may be asked follows from the list alone, the address behind a
// name included.
func TestAllow(t *testing.T) {
	host := site(t)
	port := host.Port()
	for _, c := range []struct{ allow, ask, refused string }{
		{"", "127.0.0.1", "host 127.0.0.1 is not in the allow list"},
		{"127.0.0.1", "127.0.0.1", ""},
		{"127.0.0.1:" + port, "127.0.0.1", ""},
		{"127.0.0.1:1", "127.0.0.1", "not in the allow list"},
		{"127.0.0.0/8", "127.0.0.1", ""},
		{"localhost", "localhost", ""},
		{"LOCALHOST.", "localhost", ""},
		{"localhost:" + port, "localhost", ""},
		{"localhost:1", "localhost", "not in the allow list"},
		{"other.example", "localhost", "host localhost is not in the allow list"},
		{"10.0.0.0/8", "127.0.0.1", "not in the allow list"},
	} {
		l := newLoader(t, loader.Config{Allow: strings.Fields(c.allow)})
		_, err := l.Load(t.Context(), locate(t, "http://"+c.ask+":"+port+"/a.lua"), "")
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("allow %q, ask %s: error is %v, want %q", c.allow, c.ask, err, c.refused)
		}
	}
	for _, wrong := range []string{"http://host", "*.example.com", "a b", ""} {
		if _, err := loader.New(loader.Config{Allow: []string{wrong}}); err == nil {
			t.Errorf("%q is taken for a host", wrong)
		}
	}
}

// TestPlugin: a plugin on this machine is opened where it lies, so only its
// version is told.
func TestPlugin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.so")
	write(t, path, "one")
	l := newLoader(t, loader.Config{})
	first, err := l.Load(t.Context(), locate(t, path), "")
	if err != nil || first.Bytes != nil || first.Tag == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := l.Load(t.Context(), locate(t, path), first.Tag); !errors.Is(err, loader.ErrUnchanged) {
		t.Errorf("with its tag: %v", err)
	}
	write(t, path, "two")
	if second, err := l.Load(t.Context(), locate(t, path), first.Tag); err != nil || second.Tag == first.Tag {
		t.Errorf("%+v, %v", second, err)
	}
}
