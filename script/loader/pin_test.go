package loader_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/loader"
)

// TestPin: a text that must have a hash is read only with it.
func TestPin(t *testing.T) {
	host := site(t)
	l := newLoader(t, loader.Config{Allow: []string{host.Host}})
	right := fmt.Sprintf("%x", sha256.Sum256([]byte("return 1")))
	for pin, want := range map[string]string{
		right:                   "",
		strings.ToUpper(right):  "",
		strings.Repeat("0", 64): "the text has the SHA-256 " + right,
	} {
		_, err := l.Load(t.Context(), locate(t, host.String()+"/a.lua#sha256="+pin), "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", pin, err)
		}
	}
	for _, wrong := range []string{"#", "#sha256=", "#sha256=12", "#md5=" + right, "#" + right, "#sha256=" + right + "00"} {
		if _, err := loader.Locate("https://example.com/a.lua"+wrong, "", ""); wrong != "#" && err == nil {
			t.Errorf("%s is taken for a hash", wrong)
		}
	}
}

// TestPlainHTTPNeedsAPin: what anybody on the way could replace is not read, whichever
// way it comes over plain http.
func TestPlainHTTPNeedsAPin(t *testing.T) {
	pin := "#sha256=" + strings.Repeat("0", 64)
	s3 := loader.S3{Endpoint: "http://minio.example:9000", Region: "eu-west-9"}
	for _, c := range []struct {
		at      string
		refused bool
	}{
		{"http://code.example/a.lua", true},
		{"HTTP://code.example/a.lua", true},
		{"http://localhost.example/a.lua", true},
		{"http://10.0.0.1/a.lua", true},
		{"http://code.example/a.lua" + pin, false},
		{"https://code.example/a.lua", false},
		{"http://127.0.0.1:1/a.lua", false},
		{"http://localhost:1/a.lua", false},
		{"http://[::1]:1/a.lua", false},
		{"s3://bucket/a.lua", true},
		{"s3://bucket/a.lua" + pin, false},
	} {
		l := newLoader(t, loader.Config{S3: s3}) // the allow list refuses the others
		_, err := l.Load(t.Context(), locate(t, c.at), "")
		if err == nil || strings.Contains(err.Error(), "not pinned") != c.refused {
			t.Errorf("%s: %v", c.at, err)
		}
		if c.refused && !strings.Contains(event.HintOf(err), "#sha256=") {
			t.Errorf("%s: the hint is %q", c.at, event.HintOf(err))
		}
	}
	relative, err := loader.Locate("a.lua", "http://code.example/p/", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newLoader(t, loader.Config{}).Load(t.Context(), relative, ""); err == nil || !strings.Contains(err.Error(), "not pinned") {
		t.Errorf("code beside a configuration: %v", err)
	}
}
