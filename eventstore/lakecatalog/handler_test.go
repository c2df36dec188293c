package lakecatalog

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testserver"
)

// newFolder returns a folder with metadata of a table, and a secret beside it.
func newFolder(t *testing.T) string {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"v1.metadata.json": `{"version":1,"location":"/lake/mails","big":9007199254740993}`, "v2.metadata.json": `{"version":2,"location":"s3://lake/mails"}`,
		"00001-a.metadata.json": `{"version":7}`, "broken.metadata.json": `{"version":`, "secret": "secret",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// get sends a request for a path, as it is, and returns the status and the answer.
func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	u, err := url.Parse("http://127.0.0.1" + path)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, "http://127.0.0.1/", nil)
	r.URL = u
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if kind := w.Header().Get("Content-Type"); w.Code != http.StatusNoContent && kind != "application/json" {
		t.Errorf("%s %s: type %q", method, path, kind)
	}
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestHandler(t *testing.T) {
	folder := newFolder(t)
	tables := []Table{
		{"sales.mails", filepath.Join(folder, "v2.metadata.json")}, {"sales.old", "file://" + filepath.Join(folder, "00001-a.metadata.json")},
		{"sales.eu.orders", filepath.Join(folder, "v2.metadata.json")}, {"other.broken", filepath.Join(folder, "broken.metadata.json")},
		{"other.missing", filepath.Join(folder, "missing.metadata.json")}, {"other.far", "gs://bucket/v1.metadata.json"},
	}
	h := Handler(func() ([]Table, error) { return tables, nil }, slog.New(slog.DiscardHandler))
	const v1 = "/iceberg/v1/"
	for path, want := range map[string]string{
		"namespaces":                                            `200 {"namespaces":[["sales"],["other"]]}`,
		"namespaces?parent=sales":                               `200 {"namespaces":[["sales","eu"]]}`,
		"namespaces?parent=sales%1Feu":                          `200 {"namespaces":[]}`,
		"namespaces?parent=x":                                   `404 NoSuchNamespaceException`,
		"namespaces/sales":                                      `200 {"namespace":["sales"],"properties":{}}`,
		"namespaces/sales%1Feu":                                 `200 {"namespace":["sales","eu"],"properties":{}}`,
		"namespaces/sale":                                       `404 NoSuchNamespaceException`,
		"namespaces/SALES":                                      `404 NoSuchNamespaceException`,
		"namespaces/":                                           `200 {"namespaces":[["sales"],["other"]]}`,
		"namespaces/sales/tables":                               `200 {"identifiers":[{"namespace":["sales"],"name":"mails"},{"namespace":["sales"],"name":"old"}]}`,
		"namespaces/sales%1Feu/tables":                          `200 {"identifiers":[{"namespace":["sales","eu"],"name":"orders"}]}`,
		"namespaces/x/tables":                                   `404 NoSuchNamespaceException`,
		"namespaces/sales/tables/mails":                         `200 {"config":{},"metadata":{"version":2,"location":"s3://lake/mails"},"metadata-location":"` + folder + `/v2.metadata.json"}`,
		"namespaces/sales/tables/old":                           `200 {"config":{},"metadata":{"version":7},"metadata-location":"file://` + folder + `/00001-a.metadata.json"}`,
		"namespaces/sales/tables/eu.orders":                     `404 NoSuchTableException`,
		"namespaces/sales/tables/orders":                        `404 NoSuchTableException`,
		"namespaces/other/tables/broken":                        `503 ServiceUnavailableException`,
		"namespaces/other/tables/missing":                       `404 NoSuchTableException`,
		"namespaces/other/tables/far":                           `503 ServiceUnavailableException`,
		"namespaces/sales/views":                                `404 NotFoundException`,
		"namespaces/sales/tables/mails/x":                       `404 NotFoundException`,
		"oauth/tokens":                                          `404 NotFoundException`,
		"":                                                      `404 NotFoundException`,
		"../../secret":                                          `404 NotFoundException`,
		"namespaces/sales/tables/..%2Fsecret":                   `404 NoSuchTableException`,
		"namespaces/sales/tables/../secret":                     `404 NotFoundException`,
		"namespaces/..%2F..%2Fetc/tables/passwd":                `404 NoSuchNamespaceException`,
		"namespaces/sales%2Ftables%2Fmails":                     `404 NoSuchNamespaceException`,
		"namespaces/sales%00/tables":                            `404 NoSuchNamespaceException`,
		"namespaces/%1F/tables":                                 `404 NoSuchNamespaceException`,
		"namespaces/sales/tables/mails%00":                      `404 NoSuchTableException`,
		"namespaces//tables/mails":                              `404 NoSuchNamespaceException`,
		"namespaces/sales/tables/" + strings.Repeat("x", 10000): `404 NoSuchTableException`,
	} {
		code, body := get(t, h, http.MethodGet, v1+path)
		status, text, _ := strings.Cut(want, " ")
		if http.StatusText(code) == "" || status != itoa(code) {
			t.Errorf("%s: status %d, want %s: %s", path, code, want, body)
		}
		if code == http.StatusOK && body != text {
			t.Errorf("%s: %s, want %s", path, body, text)
		}
		if code != http.StatusOK {
			checkError(t, body, code, text)
		}
		wantHead := code
		if code == http.StatusOK {
			wantHead = http.StatusNoContent
		}
		if strings.HasPrefix(path, "namespaces/other/tables/") {
			wantHead = http.StatusNoContent // the table is known; its metadata are not read
		}
		if head, body := get(t, h, http.MethodHead, v1+path); head != wantHead || body != "" {
			t.Errorf("HEAD %s: got status %d and body %q, want %d and none", path, head, body, wantHead)
		}
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodPut} {
			code, body := get(t, h, method, v1+path)
			checkError(t, body, code, "UnsupportedOperationException")
			if code != http.StatusNotAcceptable {
				t.Errorf("%s %s: got status %d, want %d", method, path, code, http.StatusNotAcceptable)
			}
		}
	}
	var config struct{ Endpoints []string }
	if code, body := get(t, h, http.MethodGet, v1+"config?warehouse=x"); code != http.StatusOK || json.Unmarshal([]byte(body), &config) != nil || len(config.Endpoints) != len(endpoints) {
		t.Errorf("config: got status %d and %s, want %d endpoints", code, body, len(endpoints))
	}
	failing := Handler(func() ([]Table, error) { return nil, errors.New("closed") }, slog.New(slog.DiscardHandler))
	code, body := get(t, failing, http.MethodGet, v1+"namespaces")
	checkError(t, body, code, "ServiceUnavailableException")
	// Other sites must not read tables by a browser.
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+v1+"namespaces", nil)
	r.Header.Set("Origin", "https://example.org")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("for another site: got status %d, want %d", w.Code, http.StatusForbidden)
	}
}

func itoa(code int) string {
	text, _ := json.Marshal(code)
	return string(text)
}

func checkError(t *testing.T, body string, code int, kind string) {
	t.Helper()
	var answer struct {
		Error struct {
			Message, Type string
			Code          int
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Error.Code != code || answer.Error.Type != kind || answer.Error.Message == "" {
		t.Errorf("status %d: %s, want the type %s (%v)", code, body, kind, err)
	}
}

// TestReadMetadata reads metadata in several places and states.
func TestReadMetadata(t *testing.T) {
	folder := newFolder(t)
	// A commit of another engine is found. The location of a folder gets a scheme, and numbers
	// stay as they are.
	for address, want := range map[string]string{
		"/v1.metadata.json": `v2 {"version":2,"location":"s3://lake/mails"}`,
	} {
		location, metadata, err := readMetadata(t.Context(), folder+address)
		if err != nil || location != folder+"/v2.metadata.json" || string(metadata) != strings.TrimPrefix(want, "v2 ") {
			t.Errorf("%s: got %s with %s and error %v, want version 2 with %s", address, location, metadata, err, want)
		}
	}
	if err := os.Remove(filepath.Join(folder, "v2.metadata.json")); err != nil {
		t.Fatal(err)
	}
	location, metadata, err := readMetadata(t.Context(), "file://"+folder+"/v1.metadata.json")
	if want := `{"big":9007199254740993,"location":"file:///lake/mails","version":1}`; err != nil || location != "file://"+folder+"/v1.metadata.json" || string(metadata) != want {
		t.Errorf("got %s with %s and error %v, want v1.metadata.json with %s", location, metadata, err, want)
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	io.WriteString(w, `{"version":3}`)
	w.Close()
	if err := os.WriteFile(filepath.Join(folder, "00002-b.gz.metadata.json"), compressed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, metadata, err := readMetadata(t.Context(), folder+"/00002-b.gz.metadata.json"); err != nil || string(metadata) != `{"version":3}` {
		t.Errorf("compressed metadata: got %s and error %v, want version 3", metadata, err)
	}
	large, err := os.Create(filepath.Join(folder, "large.metadata.json"))
	if err == nil {
		err = errors.Join(large.Truncate(metadataMax+1), large.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := readMetadata(t.Context(), folder+"/large.metadata.json"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("large metadata: %v", err)
	}
}

// TestReadObject reads metadata in an S3 service. make test-lake runs it.
func TestReadObject(t *testing.T) {
	if os.Getenv("PERIGEE_SEAWEEDFS") == "" {
		t.Skip("needs PERIGEE_SEAWEEDFS: make test-lake")
	}
	server, err := testserver.StartS3(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	for key, value := range map[string]string{"AWS_ENDPOINT_URL": server.Endpoint(), "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": testserver.S3AccessKey, "AWS_SECRET_ACCESS_KEY": testserver.S3SecretKey} {
		t.Setenv(key, value)
	}
	c, err := s3client.New(s3client.Settings{}, os.LookupEnv, func(*s3client.Client) http.RoundTripper { return http.DefaultTransport })
	if err != nil {
		t.Fatal(err)
	}
	const key, text = "lake/mails/metadata/1.metadata.json", `{"version":4}`
	if err := c.Client.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.PutObject(t.Context(), "bucket", key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if location, metadata, err := readMetadata(t.Context(), "s3://bucket/"+key); err != nil || string(metadata) != text || location != "s3://bucket/"+key {
		t.Errorf("got %s with %s and error %v, want s3://bucket/%s with %s", location, metadata, err, key, text)
	}
	for _, missing := range []string{"s3://bucket/other", "s3://none/" + key} {
		if _, _, err := readMetadata(t.Context(), missing); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is not there: %v", missing, err)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if _, _, err := readMetadata(t.Context(), "s3://bucket/"+key); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("with a wrong key: %v", err)
	}
}

// TestAddressIsNotRepeated: clients, and the log, get no part of an address that may be a key.
func TestAddressIsNotRepeated(t *testing.T) {
	for _, address := range []string{"s3://KEY:100%hunter22@bucket/m.json", "s3://KEY:hunter22/x@bucket/m.json", "gs://KEY:hunter22@bucket/m.json"} {
		if _, _, err := readMetadata(t.Context(), address); err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
