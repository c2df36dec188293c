package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/testseed"
)

// A lossyCatalog passes requests on to a REST catalog, and loses answers of commits.
type lossyCatalog struct {
	http.Handler
	mu     sync.Mutex
	random *rand.Rand
	calm   int // commits until the next one is disturbed
	lost   map[string]int
	before int // commits that failed without reaching the catalog
}

// shapes are the answers that commits got although they were successful.
var shapes = map[string]func(http.ResponseWriter){
	"409": refuse(http.StatusConflict, "CommitFailedException", "Requirement failed: branch main has changed"),
	"400": refuse(http.StatusBadRequest, "BadRequestException", "Invalid snapshot: snapshot already exists"),
	"503": refuse(http.StatusServiceUnavailable, "ServiceUnavailableException", "Slow down"),
	"EOF": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
}

func refuse(code int, kind, message string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":%q,"code":%d}}`, message, kind, code)
	}
}

func (c *lossyCatalog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.Contains(r.URL.Path, "/tables") {
		c.Handler.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.mu.Lock()
	c.calm--
	disturb := c.calm < 0
	if disturb {
		c.calm = c.random.IntN(3) // of 6 attempts, several fail
	}
	shape, before := []string{"409", "400", "503", "EOF"}[c.random.IntN(4)], c.random.IntN(4) == 0
	c.mu.Unlock()
	if !disturb {
		c.Handler.ServeHTTP(w, r)
		return
	}
	if before {
		c.mu.Lock()
		c.before++
		c.mu.Unlock()
		shapes[[]string{"503", "EOF"}[len(body)%2]](w)
		return
	}
	answer := httptest.NewRecorder()
	c.Handler.ServeHTTP(answer, r)
	if answer.Code/100 != 2 { // nothing to lose
		for key, values := range answer.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
	c.mu.Lock()
	c.lost[shape]++
	c.mu.Unlock()
	shapes[shape](w)
}

// TestLostAnswers publishes through a catalog that loses the answers of commits, until 60 were
// lost. Each step must be covered, and the table must have each row once.
func TestLostAnswers(t *testing.T) {
	if os.Getenv("PERIGEE_SEAWEEDFS") == "" {
		t.Skip("needs PERIGEE_SEAWEEDFS, which make test-lake sets")
	}
	settings := catalogs(t)["S3, REST"]
	behind, err := url.Parse(settings.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	c := &lossyCatalog{Handler: httputil.NewSingleHostReverseProxy(behind), random: testseed.New(t), lost: map[string]int{}}
	server := httptest.NewServer(c)
	defer server.Close()
	direct := settings
	settings.Catalog = server.URL
	total := func() (n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, count := range c.lost {
			n += count
		}
		return n
	}
	folder := t.TempDir()
	var files []lake.File
	first, next := 0, 0
	for step := 1; total() < 60 || len(c.lost) < len(shapes); step++ {
		switch {
		case len(files) > 3 && step%3 == 0: // merge
			merged := writeFile(t, folder, step, first, next)
			merged.Replaces, files = files, []lake.File{merged}
		case len(files) > 1 && step%5 == 0: // the oldest file ends
			first, files = first+int(files[0].Rows), files[1:]
		default:
			files = append(files, writeFile(t, folder, step, next, next+5))
			next += 5
		}
		o := orderOf(settings, step, files...)
		files = o.Files
		r := publish(t.Context(), o)
		for tries := 0; r.Error != "" && tries < 3; tries++ { // the store orders again
			r = publish(t.Context(), o)
		}
		if r.Error != "" || r.Covered != o.Step || len(r.Gone)+len(r.Lost) > 0 {
			t.Fatalf("step %d: %+v", step, r)
		}
		if got, want := sums(t, orderOf(direct, step)), sumsOf(first, next); got != want {
			t.Fatalf("step %d: the table has %s, want %s", step, got, want)
		}
	}
	fmt.Printf("figure lake_answers_lost %d\n", total())
	t.Logf("lost %v, failed before the commit %d", c.lost, c.before)
}
