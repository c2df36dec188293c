package loader_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/script/loader"
)

// bucket answers as S3 does to a signed GET of the one object in it.
func bucket(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signature := r.Header.Get("Authorization")
		switch {
		case !strings.Contains(signature, "Credential=key/") || !strings.Contains(signature, "/eu-west-9/s3/aws4_request"):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>`)
		case r.URL.Path != "/scripts/mail/a.lua":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>`)
		case r.Header.Get("If-None-Match") == `"one"`:
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 01:00:00 GMT")
			fmt.Fprint(w, "return 1")
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestS3(t *testing.T) {
	l := newLoader(t, loader.Config{S3: loader.S3{Endpoint: bucket(t), Region: "eu-west-9", AccessKey: "key", SecretKey: "secret"}})
	origin := locate(t, "s3://scripts/mail/a.lua")
	text, err := l.Load(t.Context(), origin, "")
	if err != nil || string(text.Bytes) != "return 1" || text.Tag != `"one"` {
		t.Fatalf("object is %q with tag %s, %v", text.Bytes, text.Tag, err)
	}
	if _, err := l.Load(t.Context(), origin, text.Tag); !errors.Is(err, loader.ErrUnchanged) {
		t.Errorf("with its tag: %v", err)
	}
	_, err = l.Load(t.Context(), locate(t, "s3://scripts/none.lua"), "")
	if err == nil || !strings.Contains(err.Error(), "read s3://scripts/none.lua: the host returned 404 NoSuchKey") {
		t.Errorf("what is not there: %v", err)
	}
}

func TestS3Refused(t *testing.T) {
	l := newLoader(t, loader.Config{S3: loader.S3{Endpoint: bucket(t), Region: "eu-west-9", AccessKey: "other", SecretKey: "secret"}})
	if _, err := l.Load(t.Context(), locate(t, "s3://scripts/mail/a.lua"), ""); err == nil || !strings.Contains(err.Error(), "403 AccessDenied") {
		t.Errorf("error is %v", err)
	}
	nothing := func(string) (string, bool) { return "", false }
	if _, err := loader.New(loader.Config{S3: loader.S3{Endpoint: "minio:9000"}, Lookup: nothing}); err == nil || !strings.Contains(err.Error(), "want http://") {
		t.Errorf("endpoint without a scheme: %v", err)
	}
}

// TestS3FromEnvironment: keys and endpoint may come from the environment; the
// endpoint must then be in the allow list, as no configuration names it.
func TestS3FromEnvironment(t *testing.T) {
	endpoint := bucket(t)
	environment := map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "eu-west-9", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
	}
	lookup := func(name string) (string, bool) { value, ok := environment[name]; return value, ok }
	origin := locate(t, "s3://scripts/mail/a.lua")
	allowed := newLoader(t, loader.Config{Lookup: lookup, Allow: []string{"127.0.0.1"}})
	if text, err := allowed.Load(t.Context(), origin, ""); err != nil || string(text.Bytes) != "return 1" {
		t.Errorf("object is %q, %v", text.Bytes, err)
	}
	refused := newLoader(t, loader.Config{Lookup: lookup})
	if _, err := refused.Load(t.Context(), origin, ""); err == nil || !strings.Contains(err.Error(), "host 127.0.0.1 is not in the allow list") {
		t.Errorf("error is %v", err)
	}
	var hinted *loader.Refused
	if _, err := refused.Load(t.Context(), origin, ""); !errors.As(err, &hinted) || hinted.ErrorHint() == "" {
		t.Errorf("error %v has no hint", err)
	}
}

// TestS3UsesNoProxy sets a proxy that would see every request. The endpoint is not on
// loopback by name, for which no client uses a proxy.
func TestS3UsesNoProxy(t *testing.T) {
	asked := false
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	if os.Getenv("HTTP_PROXY") == "" { // net/http reads it once in a process
		command := exec.Command(os.Args[0], "-test.run=^TestS3UsesNoProxy$")
		command.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "HTTPS_PROXY="+proxy.URL)
		out, err := command.CombinedOutput()
		if err != nil || asked {
			t.Errorf("the proxy was asked: %v; %v\n%s", asked, err, out)
		}
		return
	}
	l := newLoader(t, loader.Config{S3: loader.S3{Endpoint: "http://bucket.invalid:9", Region: "eu-west-9", AccessKey: "key", SecretKey: "secret"}})
	if _, err := l.Load(t.Context(), locate(t, "s3://scripts/mail/a.lua"), ""); err == nil || strings.Contains(err.Error(), "502") {
		t.Errorf("got %v", err)
	}
}
