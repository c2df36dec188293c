package lakecache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/testseed"
)

// A world is a store's folder beside a lake in a folder.
type world struct {
	store, lake string
	cache       *Cache
}

func newWorld(t *testing.T, limit int64) *world {
	t.Helper()
	w := &world{t.TempDir(), t.TempDir(), nil}
	w.cache = New(filepath.Join(w.store, "temp"), limit)
	t.Cleanup(w.cache.Close)
	return w
}

// parquet returns a file with a footer of some bytes.
func parquet(data []byte, footer string) []byte {
	whole := append(append([]byte("PAR1"), data...), footer...)
	return append(binary.LittleEndian.AppendUint32(whole, uint32(len(footer))), "PAR1"...)
}

// file makes a file that is in the lake too, and still on disk.
func (w *world) file(t *testing.T, name string, size int) (f File, content []byte) {
	t.Helper()
	data := bytes.Repeat([]byte(name+" "), size)[:size]
	content = parquet(data, "own footer of "+name)
	path, object := filepath.Join(w.store, name+".parquet"), filepath.Join(w.lake, name)
	if err := errors.Join(os.WriteFile(path, content, 0o600), os.WriteFile(object, parquet(data, "footer of the lake, which is longer, of "+name), 0o600)); err != nil {
		t.Fatal(err)
	}
	remote, footer, err := w.cache.Verify(t.Context(), path, object)
	if err != nil {
		t.Fatal(err)
	}
	f = File{Path: path, Footer: filepath.Join(w.store, name+".footer"), Bytes: int64(len(content)), Remote: &remote}
	if err := os.WriteFile(f.Footer, footer, 0o600); err != nil {
		t.Fatal(err)
	}
	return f, content
}

// gone makes a file whose data have left the disk.
func (w *world) gone(t *testing.T, name string, size int) (f File, content []byte) {
	t.Helper()
	f, content = w.file(t, name, size)
	w.cache.Leave(f)
	w.cache.Left(f.Path)
	if Has(f) {
		t.Errorf("%s is still there", f.Path)
	}
	return f, content
}

func TestVerify(t *testing.T) {
	w := newWorld(t, 1<<20)
	f, content := w.file(t, "a", 1000)
	if sum := sha256.Sum256(content[:1004]); f.Remote.Data != 1004 || f.Remote.Sum != fmt.Sprintf("%x", sum) {
		t.Errorf("got %+v", f.Remote)
	}
	object := f.Remote.Address
	whole, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"a byte of data":  func(b []byte) []byte { b[500] ^= 1; return b },
		"the first byte":  func(b []byte) []byte { b[0] ^= 1; return b },
		"the magic":       func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"the length":      func(b []byte) []byte { b[len(b)-8]++; return b },
		"a longer footer": func(b []byte) []byte { return parquet(b[4:1004], "") },
		"fewer data":      func(b []byte) []byte { return parquet(b[4:900], string(b[1004:len(b)-8])) },
		"more data":       func(b []byte) []byte { return parquet(append(b[4:1004:1004], 1), string(b[1004:len(b)-8])) },
		"the own file":    func([]byte) []byte { return content[:len(content)-1] },
		"nothing":         func([]byte) []byte { return nil },
	} {
		if err := os.WriteFile(object, spoil(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := w.cache.Verify(t.Context(), f.Path, object)
		if name == "a longer footer" { // another footer is none of our business
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), object) || event.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.cache.Verify(t.Context(), f.Path, object); !errors.Is(err, ErrMissing) {
		t.Errorf("without the object: %v", err)
	}
}

// TestCache pins random files from several goroutines: what is pinned is whole, the others take
// no more room than allowed, and each file is fetched again after it has left.
func TestCache(t *testing.T) {
	r := testseed.New(t)
	const limit, count = 10_000, 12
	w := newWorld(t, limit)
	var files []File
	contents := map[string][]byte{}
	for i := range count {
		f, content := w.gone(t, fmt.Sprint("file", i), 200+r.IntN(3000))
		files, contents[f.Path] = append(files, f), content
	}
	var group sync.WaitGroup
	for range 8 {
		random := rand.New(rand.NewPCG(r.Uint64(), 1))
		group.Go(func() {
			for range 150 {
				some := make([]File, 1+random.IntN(4))
				need := map[string]int64{}
				for i := range some {
					some[i] = files[random.IntN(count)]
					need[some[i].Path] = some[i].Bytes
				}
				total := int64(0)
				for _, bytes := range need {
					total += bytes
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(5) == 0 {
					time.AfterFunc(time.Duration(random.IntN(300))*time.Microsecond, cancel)
				}
				p, err := w.cache.Pin(ctx, some, false)
				if err == nil {
					for _, f := range some {
						if got, err := os.ReadFile(f.Path); !bytes.Equal(got, contents[f.Path]) {
							t.Errorf("a pinned file has %d bytes instead of %d (%v)", len(got), f.Bytes, err)
						}
					}
					if held, _ := w.cache.Size(); held > limit {
						t.Errorf("the cache holds too much: got %d bytes, want at most %d", held, limit)
					}
					p.Release()
					p.Release() // has no effect
				} else if total <= limit && !errors.Is(err, context.Canceled) {
					t.Errorf("%d bytes: %v", total, err)
				}
				cancel()
			}
		})
	}
	group.Wait()
	w.cache.Close()
	held, n := w.cache.Size()
	onDisk := int64(0)
	for _, f := range files {
		if _, err := os.Stat(f.Path); err == nil {
			onDisk += f.Bytes
		}
	}
	if held != onDisk || held > limit || n == 0 {
		t.Errorf("it holds %d bytes in %d files, and the disk has %d", held, n, onDisk)
	}
	if left, err := os.ReadDir(filepath.Join(w.store, "temp")); err != nil || len(left) > 0 {
		t.Errorf("%d files are left half fetched: %v", len(left), err)
	}
}

func pin(t *testing.T, c *Cache, files ...File) *Pinned {
	t.Helper()
	p, err := c.Pin(t.Context(), files, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPinBeyond pins a file for maintenance: nobody waits for its room.
func TestPinBeyond(t *testing.T) {
	w := newWorld(t, 1500)
	a, _ := w.gone(t, "a", 1000)
	b, _ := w.gone(t, "b", 1000)
	kept, err := w.cache.Pin(t.Context(), []File{a}, true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	other, err := w.cache.Pin(ctx, []File{b}, false)
	if err != nil || !Has(a) || !Has(b) {
		t.Fatalf("beside a file that is pinned beyond the limit: %v, files there: %v, %v", err, Has(a), Has(b))
	}
	other.Release()
	if kept.Release(); Has(a) && Has(b) {
		t.Error("both stay, beyond the limit")
	}
	both := pin(t, w.cache, a)
	if kept, err = w.cache.Pin(t.Context(), []File{a}, true); err != nil {
		t.Fatal(err)
	}
	kept.Release()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.cache.Pin(ctx, []File{b}, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside a file that a query has pinned: %v", err)
	}
	both.Release()
}

// TestFailures fetches a file whose object is missing, then with the object back, and gives up a fetch.
func TestFailures(t *testing.T) {
	w := newWorld(t, 1500)
	f, _ := w.gone(t, "a", 1000)
	away := f.Remote.Address + ".away"
	if err := os.Rename(f.Remote.Address, away); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cache.Pin(t.Context(), []File{f}, false); err == nil {
		t.Fatal("a missing object was fetched")
	}
	if got := w.cache.Failures(); len(got) != 1 || !errors.Is(got[f.Path].Err, ErrMissing) || time.Since(got[f.Path].At) > time.Minute {
		t.Errorf("with a missing object: got %v", got)
	}
	large := f
	large.Path, large.Bytes = f.Path+"2", 2000
	if _, err := w.cache.Pin(t.Context(), []File{large}, false); err == nil || len(w.cache.Failures()) != 1 {
		t.Errorf("a file that has no room: got %v, and %v", err, w.cache.Failures())
	}
	if err := os.Rename(away, f.Remote.Address); err != nil {
		t.Fatal(err)
	}
	pin(t, w.cache, f).Release()
	if got := w.cache.Failures(); len(got) != 0 {
		t.Errorf("with the object back: got %v", got)
	}
}

// TestRemovePinned removes files that are pinned. One with a reader must stay, and one that only maintenance
// has pinned must go at once: it may have deleted rows.
func TestRemovePinned(t *testing.T) {
	w := newWorld(t, 5000)
	f, _ := w.gone(t, "a", 1000)
	for name, test := range map[string]struct {
		pins []bool // whether beyond
		has  bool
	}{"a reader": {[]bool{false}, true}, "maintenance": {[]bool{true}, false}, "both": {[]bool{true, false}, true}} {
		var pinned []*Pinned
		for _, beyond := range test.pins {
			p, err := w.cache.Pin(t.Context(), []File{f}, beyond)
			if err != nil {
				t.Fatal(err)
			}
			pinned = append(pinned, p)
		}
		if w.cache.Remove(f.Path); Has(f) != test.has {
			t.Errorf("pinned by %s: it is there: %t, want %t", name, Has(f), test.has)
		}
		for _, p := range pinned {
			p.Release()
		}
		if Has(f) {
			t.Errorf("pinned by %s: it is there after they ended", name)
		}
	}
}

// TestEndlessObject has a bucket that answers with more bytes than were asked for. They must fill neither
// the memory nor the disk.
func TestEndlessObject(t *testing.T) {
	const much = 64 << 20
	var sent atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"0123"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "1008")
			return
		}
		w.WriteHeader(http.StatusPartialContent)
		for text := make([]byte, 1<<20); sent.Load() < 4*much; sent.Add(int64(len(text))) {
			if _, err := w.Write(text); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"} {
		t.Setenv(name, value)
	}
	w := newWorld(t, 1<<20)
	here, _ := w.file(t, "here", 1000-len(magic))
	if _, _, err := w.cache.Verify(t.Context(), here.Path, "s3://bucket/here"); err == nil {
		t.Error("an endless object has the data of a file")
	}
	gone, _ := w.gone(t, "gone", 1000)
	gone.Remote.Address = "s3://bucket/gone"
	if _, err := w.cache.Pin(t.Context(), []File{gone}, false); err == nil {
		t.Error("an endless object was fetched")
	}
	if got := sent.Load(); got > much {
		t.Errorf("%d MiB were read", got>>20)
	}
}

// TestOrder checks which files leave: the one pinned least recently first, and never a pinned one.
func TestOrder(t *testing.T) {
	w := newWorld(t, 2500)
	a, _ := w.gone(t, "a", 1000)
	b, _ := w.gone(t, "b", 1000)
	c, _ := w.gone(t, "c", 1000)
	expect := func(what string, here ...bool) {
		t.Helper()
		for i, f := range []File{a, b, c} {
			if Has(f) != here[i] {
				t.Errorf("%s: file %d is there: %v", what, i, Has(f))
			}
		}
	}
	pin(t, w.cache, a).Release()
	pin(t, w.cache, b).Release()
	pin(t, w.cache, a).Release()
	expect("after both", true, true, false)
	kept := pin(t, w.cache, c)
	expect("after a third", true, false, true)
	pin(t, w.cache, a).Release()
	pin(t, w.cache, b).Release()
	expect("with one pinned", false, true, true)
	// Two that need the rest wait for each other, but not for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.cache.Pin(ctx, []File{a, b}, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without room: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, kept.Release)
	pin(t, w.cache, a, b).Release()
	expect("after the pinned one", true, true, false)
	if _, err := w.cache.Pin(t.Context(), []File{a, b, c}, false); err == nil || event.HintOf(event.FaultOf(err)) == "" && event.FaultOf(err).Hint == "" {
		t.Errorf("more than fits: %v", err)
	}
	p, err := w.cache.Pin(t.Context(), []File{a, b, c}, true)
	if err != nil {
		t.Fatal(err)
	}
	expect("beyond the limit", true, true, true)
	p.Release()
	if held, _ := w.cache.Size(); held > 2500 {
		t.Errorf("the cache holds too much: got %d bytes, want at most 2500", held)
	}
}

// TestLeave checks files that leave while readers use them, and that come back to stay.
func TestLeave(t *testing.T) {
	w := newWorld(t, 5000)
	f, _ := w.file(t, "a", 1000)
	w.cache.Leave(f)
	p := pin(t, w.cache, f)
	w.cache.Left(f.Path) // readers of before have ended
	if !Has(f) {
		t.Fatal("a pinned file has left")
	}
	p.Release()
	if Has(f) {
		t.Error("the file has not left")
	}
	pin(t, w.cache, f).Release()
	p = pin(t, w.cache, f)
	w.cache.Stay(f.Path)
	p.Release()
	for i := range 6 {
		other, _ := w.gone(t, fmt.Sprint("other", i), 1000)
		pin(t, w.cache, other).Release()
	}
	pin(t, w.cache, f).Release()
	if !Has(f) {
		t.Error("a file that stays was removed")
	}
	w.cache.Leave(f) // it leaves once more
	w.cache.Left(f.Path)
	if Has(f) {
		t.Error("the file has not left again")
	}
	p = pin(t, w.cache, f)
	w.cache.Remove(f.Path)
	if p.Release(); Has(f) {
		t.Error("a removed file is there")
	}
	// A file that an earlier process fetched.
	second := New(filepath.Join(w.store, "temp"), 1500)
	t.Cleanup(second.Close)
	pin(t, w.cache, f).Release()
	second.Adopt(f)
	other, _ := w.gone(t, "more", 1000)
	pin(t, second, other).Release()
	if Has(f) || !Has(other) {
		t.Error("the adopted file has not made room")
	}
}

// TestFaults checks that the error of a fetch names the object, reaches all that wait, and does
// not last.
func TestFaults(t *testing.T) {
	w := newWorld(t, 1<<20)
	f, content := w.gone(t, "a", 100_000)
	object := f.Remote.Address
	whole, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := bytes.Clone(whole)
	spoiled[77] ^= 1
	if err := os.WriteFile(object, spoiled, 0o600); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if _, err := w.cache.Pin(t.Context(), []File{f}, false); err == nil || !strings.Contains(err.Error(), object) || !strings.Contains(err.Error(), "checksum") {
				t.Errorf("a spoiled object: %v", err)
			}
		})
	}
	group.Wait()
	if held, n := w.cache.Size(); held != 0 || n != 0 || Has(f) {
		t.Errorf("%d bytes in %d files stay", held, n)
	}
	if err := os.WriteFile(object, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	p := pin(t, w.cache, f)
	defer p.Release()
	if got, err := os.ReadFile(f.Path); !bytes.Equal(got, content) {
		t.Errorf("the fetched file has %d bytes: %v", len(got), err)
	}
	if err := os.Remove(f.Footer); err != nil {
		t.Fatal(err)
	}
	other, _ := w.gone(t, "b", 10)
	if err := os.WriteFile(other.Footer, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cache.Pin(t.Context(), []File{other}, false); err == nil || !strings.Contains(err.Error(), other.Footer) {
		t.Errorf("a damaged footer: %v", err)
	}
}

// TestSlowBucket has a bucket that does not answer: files of other lakes are fetched all the same.
func TestSlowBucket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": "http://" + l.Addr().String(), "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"} {
		t.Setenv(name, value)
	}
	w := newWorld(t, 1<<20)
	f, content := w.gone(t, "folder", 1000)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range 2 * fetchesMax {
		slow := f
		slow.Path = filepath.Join(w.store, fmt.Sprint("slow", i))
		slow.Remote = &manifest.Remote{Address: fmt.Sprint("s3://slow/", i), Data: f.Remote.Data, Size: f.Remote.Size, Sum: f.Remote.Sum}
		waiting.Go(func() {
			if _, err := w.cache.Pin(ctx, []File{slow}, false); err == nil {
				t.Error("a bucket that does not answer has a file")
			}
		})
	}
	for range fetchesMax { // each has sent a request
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	pinned, err := w.cache.Pin(t.Context(), []File{f}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Release()
	if got, err := os.ReadFile(f.Path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(content))
	}
	cancel()
	waiting.Wait()
}
