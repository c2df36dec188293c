package httpserver

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testserver"
)

func TestAccessIsChecked(t *testing.T) {
	for _, test := range []struct {
		access Access
		want   string
	}{
		{Access{Listen: "127.0.0.1:1"}, ""}, {Access{Listen: "localhost:1"}, ""}, {Access{Listen: "[::1]:1"}, ""}, {Access{Listen: "127.9.9.9:1"}, ""},
		{Access{Listen: "0.0.0.0:1", Token: "t"}, ""}, {Access{Listen: "127.0.0.1:1", Cert: "c", Key: "k"}, ""},
		{Access{Listen: "0.0.0.0:1"}, "anybody there could post events"}, {Access{Listen: ":1"}, "needs a token"}, {Access{Listen: "host:1"}, "needs a token"},
		{Access{Listen: "127.0.0.1:1", Cert: "c"}, "both cert and key"}, {Access{Listen: "127.0.0.1:1", Key: "k"}, "both cert and key"},
		{Access{Listen: "nowhere"}, "listen: "},
	} {
		err := test.access.Validate("post events")
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.access, err, test.want)
		}
	}
}

func TestAuthorized(t *testing.T) {
	for _, test := range []struct {
		token, header string
		want          bool
	}{{"", "", true}, {"", "Bearer x", true}, {"t", "Bearer t", true}, {"t", "", false}, {"t", "t", false}, {"t", "Bearer T", false}, {"t", "Bearer t ", false}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", test.header)
		w := httptest.NewRecorder()
		a := Access{Token: test.token}
		if got := a.Authorized(w, r); got != test.want || (w.Header().Get("WWW-Authenticate") == "Bearer") == test.want {
			t.Errorf("token %q, header %q: %v, and the answer has %v", test.token, test.header, got, w.Header())
		}
	}
}

// TestListensWithTLS: with certificates, a client that does not speak TLS is not answered.
func TestListensWithTLS(t *testing.T) {
	folder := t.TempDir()
	cert, key := testserver.WriteCertificate(t, folder)
	for _, a := range []Access{{Cert: cert, Key: filepath.Join(folder, "none")}, {Cert: key, Key: key}} {
		if _, err := a.LoadCertificates(); err == nil || !strings.Contains(err.Error(), "read the certificate") {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, a := range []Access{{Listen: "127.0.0.1:0"}, {Listen: "127.0.0.1:0", Cert: cert, Key: key}} {
		certificates, err := a.LoadCertificates()
		if err != nil || (len(certificates) > 0) != (a.Cert != "") {
			t.Fatalf("%d certificates, %v", len(certificates), err)
		}
		l, err := a.Open(certificates)
		if err != nil {
			t.Fatal(err)
		}
		s := http.Server{Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0)}
		go s.Serve(l)
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		_, overTLS := client.Get("https://" + l.Addr().String())
		answer, plain := client.Get("http://" + l.Addr().String())
		if (overTLS == nil) != (a.Cert != "") || plain != nil || (answer.StatusCode == http.StatusNotFound) != (a.Cert == "") {
			t.Errorf("%+v: over TLS %v, without %v", a, overTLS, plain)
		}
		if _, err := (&Access{Listen: l.Addr().String()}).Open(certificates); err == nil {
			t.Error("an address in use")
		}
		s.Close()
	}
}
