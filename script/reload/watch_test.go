package reload_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/script/reload"
)

// watch runs a watcher for the test.
func (b *bench) watch(every time.Duration) *reload.Watcher {
	w := reload.NewWatcher([]*reload.Script{b.Script}, every)
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		w.Run(ctx)
		close(done)
	}()
	b.t.Cleanup(func() {
		stop()
		<-done
	})
	return w
}

// await waits until the script was replaced n times.
func (b *bench) await(n uint64) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); b.Counts().Replaced < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%+v, want %d replaced", b.Counts(), n)
		}
	}
}

const (
	often = 20 * time.Millisecond
	never = time.Hour // for the regular look, which then is not what notices
)

func TestWatchRename(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	b.watch(often)
	for i := range 3 {
		b.write(fmt.Sprintf(versionScript, i+2))
		b.await(uint64(i + 1))
	}
	b.want(`{"version":4}`, `{}`)
}

// TestWatchGlance: a change is noticed long before the regular look.
func TestWatchGlance(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	b.watch(never)
	if err := os.WriteFile(b.path, fmt.Appendf(nil, versionScript, 20), 0o644); err != nil {
		t.Fatal(err)
	}
	b.await(1)
}

// TestWatchMountedVolume does what Kubernetes does to a mounted ConfigMap: the
// file is a link through the link ..data, which is replaced.
func TestWatchMountedVolume(t *testing.T) {
	folder := t.TempDir()
	publish := func(version int) {
		named := filepath.Join(folder, fmt.Sprintf("..2026_%d", version))
		must(t, os.Mkdir(named, 0o755))
		must(t, os.WriteFile(filepath.Join(named, "email.lua"), fmt.Appendf(nil, versionScript, version), 0o644))
		must(t, os.Symlink(filepath.Base(named), filepath.Join(folder, "..data_tmp")))
		must(t, os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")))
	}
	publish(1)
	path := filepath.Join(folder, "email.lua")
	must(t, os.Symlink("..data/email.lua", path))
	b := &bench{t: t, log: &bytes.Buffer{}}
	b.Script = b.start(loader.Config{}, path)
	b.watch(often)
	for version := 2; version < 4; version++ {
		publish(version)
		b.await(uint64(version - 1))
	}
	b.want(`{"version":3}`, `{}`)
}

// TestWatchReads: the regular look finds what no stamp tells.
func TestWatchReads(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	old := time.Unix(1, 0)
	must(t, os.Chtimes(b.path, old, old))
	b.watch(often)
	must(t, os.WriteFile(b.path+"~", fmt.Appendf(nil, versionScript, 2), 0o644))
	must(t, os.Chtimes(b.path+"~", old, old))
	must(t, os.Rename(b.path+"~", b.path))
	b.await(1)
}

func TestAsk(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	w := b.watch(0)
	b.write(fmt.Sprintf(versionScript, 2))
	w.Ask()
	b.await(1)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestManyMissingNames has events require names that no file has: a look at the script reads few of
// them again, also one that is there by then.
func TestManyMissingNames(t *testing.T) {
	const names, maxRequests = 1000, 50
	var requests atomic.Int32
	var found atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch {
		case r.URL.Path == "/a.lua":
			fmt.Fprintf(w, "pcall(require, 'optional') function main(event) for i = 1, %d do pcall(require, 'kind' .. i) end return {n = 1} end", names)
		case r.URL.Path == "/optional.lua" && found.Load():
			fmt.Fprint(w, "return true")
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	b := &bench{t: t, limits: patient, log: &bytes.Buffer{}}
	b.Script = b.start(loader.Config{Allow: []string{strings.TrimPrefix(server.URL, "http://")}}, server.URL+"/a.lua")
	b.want(`{"n":1}`, `{}`)
	if got := requests.Load(); got < names {
		t.Fatalf("%d requests, want one for each of %d names", got, names)
	}
	requests.Store(0)
	if b.Check(t.Context(), true) || requests.Load() > maxRequests {
		t.Errorf("a look at an unchanged script read %d files, want at most %d", requests.Load(), maxRequests)
	}
	found.Store(true)
	if !b.Check(t.Context(), true) {
		t.Errorf("a file that was missing at the top of the script is there, and it was not loaded again:\n%s", b.log)
	}
}
