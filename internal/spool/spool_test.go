package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
	"github.com/perigeedb/perigee/internal/leaktest"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("SPOOL_APPEND_FOREVER"); folder != "" {
		appendForever(folder)
	}
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := appendAndTrim(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var small = Options{BytesMax: 1 << 30, SegmentBytes: 200, KeyWindow: time.Hour, KeysMax: 1000}

func open(t testing.TB, folder string, o Options) *Spool {
	t.Helper()
	s, err := Open(folder, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func entry(key string, docs ...string) Entry {
	e := Entry{Key: key}
	for _, d := range docs {
		e.Data = append(e.Data, d...)
		e.Ends = append(e.Ends, uint32(len(e.Data)))
		e.Sum = e.Sum*31 + uint64(len(d)) + uint64(d[0])
	}
	return e
}

func put(t testing.TB, s *Spool, e Entry) Receipt {
	t.Helper()
	r, err := s.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rest reads what there is from a position on, without waiting.
func rest(t testing.TB, s *Spool, from uint64) (docs []string) {
	t.Helper()
	r, err := s.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, end := s.Bounds()
	for from < end {
		var b event.Batch
		if err := r.ReadBatch(t.Context(), &b, from, Limits{end, 3, 1 << 20}); err != nil {
			t.Fatal(err)
		}
		if b.Range.First != from {
			t.Fatalf("asked for position %d, got %v", from, b.Range)
		}
		for i := range b.Len() {
			docs = append(docs, string(b.Doc(i)))
		}
		from = b.Range.End()
	}
	return docs
}

func TestEntriesOutliveTheProcess(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	var want []string
	for i := range 50 {
		a, b := fmt.Sprintf(`{"a":%d}`, i), fmt.Sprintf(`{"b":%d}`, i)
		if got := put(t, s, entry("", a, b)); got != (Receipt{First: uint64(2 * i), Count: 2}) {
			t.Fatalf("entry %d: %+v", i, got)
		}
		want = append(want, a, b)
	}
	name := s.ID()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), entry("", "{}")); !errors.Is(err, ErrClosed) {
		t.Errorf("appending to a closed spool gives %v", err)
	}
	s = open(t, folder, small)
	if s.ID() != name {
		t.Errorf("the name changed from %s to %s", name, s.ID())
	}
	for _, from := range []uint64{0, 1, 37, 99, 100} {
		if diff := cmp.Diff(want[from:], rest(t, s, from), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
			t.Errorf("from %d (-want +got):\n%s", from, diff)
		}
	}
}

// TestDamage cuts the last segment at every byte: whole entries stay.
func TestDamage(t *testing.T) {
	folder := t.TempDir()
	o := small
	o.SegmentBytes = 1 << 20
	s := open(t, folder, o)
	ends := []int64{int64(len(magic))}
	for i := range 3 {
		put(t, s, entry(fmt.Sprint("key", i), fmt.Sprintf(`{"a":%d}`, i)))
		ends = append(ends, s.active.bytes)
	}
	name := s.path(0, segmentSuffix)
	_ = s.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		if err := os.WriteFile(name, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want+1 < len(ends) && ends[want+1] <= int64(cut) {
			want++
		}
		s, err := Open(folder, o)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if _, end := s.Bounds(); end != uint64(want) {
			t.Fatalf("cut at %d: %d entries, want %d", cut, end, want)
		}
		if got := put(t, s, entry("key2", `{"a":2}`)); got.Repeated != (want == 3) {
			t.Fatalf("cut at %d: %+v", cut, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamageInTheMiddleIsAnError(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	for range 20 {
		put(t, s, entry("", `{"a":"something"}`))
	}
	name := s.path(s.sealed[0].first, segmentSuffix)
	_ = s.Close()
	text, _ := os.ReadFile(name)
	text[len(text)-1] ^= 1
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, small); !errors.Is(err, frame.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

func TestKeys(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	first := put(t, s, entry("k", `{"a":1}`, `{"a":2}`))
	for range 30 { // into further segments
		put(t, s, entry("", `{"a":"something"}`))
	}
	if err := s.Trim(20); err != nil {
		t.Fatal(err)
	}
	if from, _ := s.Bounds(); from == 0 {
		t.Fatal("no segment was given up")
	}
	for range 2 {
		again := put(t, s, entry("k", `{"a":1}`, `{"a":2}`))
		if want := (Receipt{First: first.First, Count: 2, Repeated: true}); again != want {
			t.Errorf("the key again: %+v, want %+v", again, want)
		}
		if _, err := s.Append(t.Context(), entry("k", `{"b":1}`)); !errors.Is(err, ErrKeyReused) {
			t.Errorf("other content under the key: %v", err)
		}
		_ = s.Close()
		s = open(t, folder, small)
	}
	o := small
	o.KeysMax = 1
	_ = s.Close()
	s = open(t, folder, o)
	if _, err := s.Append(t.Context(), entry("other", `{"b":1}`)); !errors.Is(err, ErrFull) {
		t.Errorf("a key beyond the most: %v", err)
	}
	o.KeyWindow = -time.Second // all is over
	_ = s.Close()
	s = open(t, folder, o)
	if got := put(t, s, entry("k", `{"c":1}`)); got.Repeated {
		t.Error("a key is remembered beyond its window")
	}
}

func TestFull(t *testing.T) {
	o := small
	o.BytesMax = 1000
	folder := t.TempDir()
	s := open(t, folder, o)
	n := uint64(0)
	for {
		r, err := s.Append(t.Context(), entry("", `{"a":"something"}`))
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || n > 100 {
			t.Fatal(n, err)
		}
		n = r.First + r.Count
	}
	_ = s.Close()
	s = open(t, folder, o) // full as before
	if _, err := s.Append(t.Context(), entry("", `{"a":"something"}`)); !errors.Is(err, ErrFull) {
		t.Errorf("after a restart: %v", err)
	}
	if err := s.Trim(n); err != nil {
		t.Fatal(err)
	}
	put(t, s, entry("", `{"a":"something"}`))
}

// TestManySenders appends from many at once, some with the same keys.
func TestManySenders(t *testing.T) {
	s := open(t, t.TempDir(), small)
	const senders, each = 16, 20
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			for j := range each {
				key := fmt.Sprint(i/2, "-", j) // two senders share it
				if _, err := s.Append(context.Background(), entry(key, fmt.Sprintf(`{"key":"%s"}`, key))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	got := rest(t, s, 0)
	slices.Sort(got)
	if all := len(got); all != senders/2*each || len(slices.Compact(got)) != all {
		t.Errorf("%d documents, want %d different ones", all, senders/2*each)
	}
}

// TestAgainstModel holds a spool to a list, through restarts and releases.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		folder, err := os.MkdirTemp("", "spool")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(folder)
		s := open(t, folder, small)
		defer func() { _ = s.Close() }()
		var all []string
		keys := map[string]Receipt{}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				key := rapid.SampledFrom([]string{"", "", "a", "b", "c"}).Draw(rt, "key")
				var docs []string
				for i := range rapid.IntRange(1, 5).Draw(rt, "docs") {
					docs = append(docs, fmt.Sprintf(`{"doc":"%s %d"}`, key, i))
				}
				e := entry(key, docs...)
				e.Sum = 7
				want, repeated := keys[key]
				if !repeated {
					want = Receipt{First: uint64(len(all)), Count: uint64(len(docs))}
					all = append(all, docs...)
					if key != "" {
						keys[key] = Receipt{want.First, want.Count, true}
					}
				}
				if got := put(t, s, e); got != want {
					rt.Fatalf("got %+v, want %+v", got, want)
				}
			},
			"release": func(rt *rapid.T) {
				to := rapid.IntRange(0, len(all)).Draw(rt, "to")
				if err := s.Trim(uint64(to)); err != nil {
					rt.Fatal(err)
				}
				if first, _ := s.Bounds(); first > s.LowWatermark() {
					rt.Fatalf("%d is gone, but only %d was given up", first, s.LowWatermark())
				}
			},
			"restart": func(rt *rapid.T) {
				_ = s.Close()
				s = open(t, folder, small)
			},
			"": func(rt *rapid.T) {
				first, end := s.Bounds()
				if end != uint64(len(all)) {
					rt.Fatalf("it ends at %d, want %d", end, len(all))
				}
				from := rapid.Uint64Range(first, end).Draw(rt, "from")
				if diff := cmp.Diff(append([]string{}, all[from:]...), append([]string{}, rest(t, s, from)...)); diff != "" {
					rt.Fatalf("from %d (-want +got):\n%s", from, diff)
				}
			},
		})
	})
}

func TestReaderWaits(t *testing.T) {
	s := open(t, t.TempDir(), small)
	r, err := s.NewReader(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var b event.Batch
	if err := r.ReadBatch(ctx, &b, 0, Limits{1, 10, 1 << 20}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing to read, and no more time: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _, _ = s.Append(context.Background(), entry("", "{}", "{}")) })
	if err := r.ReadBatch(t.Context(), &b, 0, Limits{10, 10, 1 << 20}); err != nil || b.Len() != 2 {
		t.Errorf("%d documents, %v", b.Len(), err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = s.Close() })
	b.Reset()
	if err := r.ReadBatch(t.Context(), &b, 2, Limits{10, 10, 1 << 20}); err != io.EOF {
		t.Errorf("a closed spool ends with %v", err)
	}
}

// TestRestoredFromACopy has others know of more than the spool does.
func TestRestoredFromACopy(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	if err := s.MarkVerified(); err != nil {
		t.Fatal(err)
	}
	put(t, s, entry("", `{"a":1}`, `{"a":2}`, `{"a":3}`))
	_ = s.Close()
	s = open(t, folder, small)
	name := s.ID()
	for _, done := range []event.Ranges{nil, {{First: 0, Count: 3}}} {
		if renamed, err := s.DetectRollback(done); renamed || err != nil {
			t.Errorf("done %v: renamed %v, %v", done, renamed, err)
		}
	}
	renamed, err := s.DetectRollback(event.Ranges{{First: 1, Count: 1}, {First: 4, Count: 5}})
	if !renamed || err != nil || s.ID() == name {
		t.Errorf("renamed %v, %v, name %s", renamed, err, s.ID())
	}
	name = s.ID()
	_ = s.Close()
	s = open(t, folder, small)
	if s.ID() != name || s.Skipped().String() != "[1,2)" {
		t.Errorf("name %s, skipped %s", s.ID(), s.Skipped())
	}
	if err := s.MarkVerified(); err != nil {
		t.Fatal(err)
	}
	put(t, s, entry("", `{"a":4}`))
	if renamed, err := s.DetectRollback(event.Ranges{{First: 0, Count: 4}}); renamed || err != nil {
		t.Errorf("what was read in this process: renamed %v, %v", renamed, err)
	}
}

// TestGrowsBeforeItIsCompared has a spool restored from a copy grow, and its process
// end, before anybody tells what others have.
func TestGrowsBeforeItIsCompared(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	put(t, s, entry("", `{"a":1}`, `{"a":2}`))
	if err := s.MarkVerified(); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	others := event.Ranges{{Count: 5}} // they had three more, from the spool that the copy is of
	for i := range 3 {
		s = open(t, folder, small)
		put(t, s, entry("", fmt.Sprintf(`{"b":%d}`, 2*i), fmt.Sprintf(`{"b":%d}`, 2*i+1)))
		_ = s.Close()
	}
	s = open(t, folder, small)
	if renamed, err := s.DetectRollback(others); !renamed || err != nil || s.Skipped().String() != "[0,2)" {
		t.Errorf("renamed %v, %v, skipped %v: what came since counts as had", renamed, err, s.Skipped())
	}
}

// TestBytes compares an entry with the bytes that the first version has written.
func TestBytes(t *testing.T) {
	e := entry("key", `{"a":1}`, `{"b":2}`)
	e.Sum = 0
	got := (&storedEntry{first: 7, when: time.Unix(9, 0), entry: e}).appendFrame(nil)
	const want = "37000000f6b2121e" + "0700000000000000" + "0900000000000000" + "0000000000000000" + "0300" + "02000000" +
		"6b6579" + "07000000" + "0e000000" + "7b2261223a317d" + "7b2262223a327d"
	if fmt.Sprintf("%x", got) != want {
		t.Errorf("an entry is stored as\n%x, want\n%s", got, want)
	}
}

func FuzzEntry(f *testing.F) {
	whole := (&storedEntry{first: 7, when: time.Unix(9, 0), entry: entry("key", `{"a":1}`, `{"b":2}`)}).appendFrame(nil)
	f.Add(whole[frame.PrefixSize:])
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, record []byte) {
		var e storedEntry
		if err := e.decode(record); err != nil {
			return
		}
		if again := e.appendFrame(nil)[frame.PrefixSize:]; string(again) != string(record) {
			t.Errorf("%q became %q", record, again)
		}
	})
}

func TestFolderIsPrivate(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "spool")
	open(t, folder, small)
	info, err := os.Stat(folder)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
}

func TestMissingSegmentIsAnError(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	for range 20 {
		put(t, s, entry("", `{"a":"something"}`))
	}
	name := s.path(s.sealed[len(s.sealed)-1].first, segmentSuffix)
	_ = s.Close()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, small); err == nil || !strings.Contains(err.Error(), "one is missing") {
		t.Errorf("got %v", err)
	}
}

// TestCloseWaits: a commit that begins while the spool closes, and found it open, keeps its file
// until it has ended.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir(), small)
		flushed, began, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s.commits = durable.NewGroupCommit(func(group []*pendingAppend) error {
			if group[0].entry == nil {
				close(flushed)
				return nil
			}
			close(began)
			<-goOn
			if !s.mu.TryLock() {
				t.Error("Close holds the lock that a commit needs to end")
			} else {
				s.mu.Unlock()
			}
			return s.file.Sync()
		})
		s.commits.Defer(&pendingAppend{}) // which tells that Close has begun
		s.mu.Lock()                       // and goes no further than to here
		closed, appended := make(chan error, 1), make(chan error, 1)
		go func() { closed <- s.Close() }()
		<-flushed
		go func() {
			_, err := s.Append(t.Context(), entry("", "{}"))
			appended <- err
		}()
		<-began
		s.mu.Unlock()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("the spool is closed during a commit")
		}
		close(goOn)
		if err := <-appended; err != nil {
			t.Errorf("the commit ends with %v", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close ends with %v", err)
		}
	})
}

// TestBrokenDisk has writes fail: what was not synced is not there, its key is
// free, and the spool takes nothing more before it is opened again.
func TestBrokenDisk(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, small)
	put(t, s, entry("", `{"a":1}`))
	_ = s.file.Close()
	for _, want := range []string{"write to the spool", "must be opened again"} {
		if _, err := s.Append(t.Context(), entry("k", `{"a":2}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("appending returned %v, want an error with %q", err, want)
		}
	}
	if got := rest(t, s, 0); len(got) != 1 {
		t.Errorf("readers see %q", got)
	}
	_ = s.Close()
	s = open(t, folder, small)
	if got := put(t, s, entry("k", `{"a":2}`)); got != (Receipt{First: 1, Count: 1}) {
		t.Errorf("after it was opened again: %+v", got)
	}
}

// TestNoRoomForSegment cannot write the beginning of the next segment: the entry is not stored,
// no file is left open, and the spool goes on when there is room.
func TestNoRoomForSegment(t *testing.T) {
	s := open(t, t.TempDir(), small)
	for s.active.bytes < small.SegmentBytes {
		put(t, s, entry("", `{"a":1}`))
	}
	stored, next := s.end, s.path(s.end, segmentSuffix)
	const major, minor = 1, 7 // of /dev/full
	if err := unix.Mknod(next, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Skip("only root can put a device that is always full in the place of the segment: ", err)
	}
	leaktest.Closed(t, next, func() {
		if _, err := s.Append(t.Context(), entry("k", `{"a":2}`)); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "begin a segment") {
			t.Errorf("appending returned %v", err)
		}
	})
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	if got := put(t, s, entry("k", `{"a":2}`)); got != (Receipt{First: stored, Count: 1}) {
		t.Errorf("with room: %+v", got)
	}
	if got := rest(t, s, 0); len(got) != int(stored)+1 {
		t.Errorf("%d documents, want %d", len(got), stored+1)
	}
}

// TestCancelledAppend gives up before its entry is written.
func TestCancelledAppend(t *testing.T) {
	s := open(t, t.TempDir(), small)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Append(ctx, entry("k", "{}")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := put(t, s, entry("k", "{}")); got.Repeated {
		t.Error("a cancelled entry was stored")
	}
}

// TestKeysOfASender lets one sender use all the keys that it may have: another one still
// has room, and so has the first without a key.
func TestKeysOfASender(t *testing.T) {
	o := small
	o.KeysPerSender = 2
	s := open(t, t.TempDir(), o)
	for key, want := range map[string]error{"a": nil, "b": nil} {
		if _, err := s.Append(t.Context(), Entry{Key: key, Sender: "one", Data: []byte("{}"), Ends: []uint32{2}}); err != want {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		sender, key string
		want        error
	}{{"one", "c", ErrSenderKeys}, {"one", "a", nil}, {"one", "", nil}, {"two", "c", nil}} {
		if _, err := s.Append(t.Context(), Entry{Key: c.key, Sender: c.sender, Data: []byte("{}"), Ends: []uint32{2}}); err != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestFilesAreClosed: readers, sealed segments and a spool that cannot be opened leave no file
// open.
func TestFilesAreClosed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "spool")
	leaktest.Closed(t, folder, func() {
		s := open(t, folder, small)
		for range 20 {
			put(t, s, entry("", `{"a":"something"}`))
		}
		if got := rest(t, s, 0); len(got) != 20 {
			t.Errorf("%d documents", len(got))
		}
		if _, err := s.NewReader(21); err == nil || !strings.Contains(err.Error(), "position 21 is not in the spool") {
			t.Errorf("a reader behind the end: %v", err)
		}
		sealed, active := s.path(s.sealed[0].first, segmentSuffix), s.path(s.active.first, segmentSuffix)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := open(t, folder, small).Close(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{active: errNotSegment.Error(), sealed: errNotSegment.Error(), filepath.Join(folder, identityFile): "is damaged"} {
			text, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, append([]byte("damaged "), text...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(folder, small); err == nil || !strings.Contains(err.Error(), filepath.Base(name)) || !strings.Contains(err.Error(), want) {
				t.Errorf("a spool whose %s is damaged: %v", name, err)
			}
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// The last step of opening a spool that was compared with its sinks cannot be made.
		s = open(t, folder, small)
		if err := errors.Join(s.MarkVerified(), s.Close(), os.Mkdir(filepath.Join(folder, identityFile+".new"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder, small); !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), identityFile) {
			t.Errorf("a spool whose identity cannot be written: %v", err)
		}
	})
}

// TestForgottenSenders: a sender whose keys have expired takes no memory, and one that still has
// keys is counted with them.
func TestForgottenSenders(t *testing.T) {
	table := keyTable{window: time.Minute, max: 10, maxOfSender: 2, byKey: map[string]keyRecord{}, ofSender: map[string]int{}}
	now := time.Unix(1000, 0)
	for i, sender := range []string{"a", "a", "b", ""} {
		table.add(&storedEntry{entry: Entry{Key: fmt.Sprint("k", i), Sender: sender}, when: now.Add(time.Duration(i) * time.Second)})
	}
	if table.hasRoomFor("a", "k", now) || !table.hasRoomFor("b", "k", now) || !table.hasRoomFor("", "k", now) || !table.hasRoomFor("a", "", now) {
		t.Errorf("of two keys, a has %d, b %d", table.ofSender["a"], table.ofSender["b"])
	}
	if _, found := table.find("k0", now.Add(time.Minute)); !found {
		t.Error("a key expires before its time")
	}
	if _, found := table.find("k0", now.Add(time.Minute+1)); found || table.ofSender["a"] != 1 || len(table.byKey) != 3 {
		t.Errorf("a key outlives its time: a has %d of %d", table.ofSender["a"], len(table.byKey))
	}
	table.remove([]string{"k1", "k3"})
	if len(table.ofSender) != 1 || table.ofSender["b"] != 1 || len(table.byKey) != 1 {
		t.Errorf("senders %v, keys %v", table.ofSender, table.byKey)
	}
	table.removeExpired(now.Add(time.Hour))
	if len(table.ofSender) != 0 || len(table.byKey) != 0 {
		t.Errorf("senders %v, keys %v", table.ofSender, table.byKey)
	}
}

// TestExpiredKeysMakeRoom: where there is no room for a key, expired keys are looked for once a
// second, and no more often.
func TestExpiredKeysMakeRoom(t *testing.T) {
	const window = time.Minute
	began := time.Unix(1000, 0)
	table := keyTable{window: window, max: 1, maxOfSender: 1, byKey: map[string]keyRecord{}, ofSender: map[string]int{}}
	table.add(&storedEntry{entry: Entry{Key: "a", Sender: "x"}, when: began})
	for _, step := range []struct {
		after time.Duration
		room  bool
	}{
		{window, false}, // the key has not expired
		{window + 1, false},
		{window + time.Second - 1, false},
		{window + time.Second, true},
	} {
		now := began.Add(step.after)
		if all, of := table.hasRoom("b", now), table.hasRoomFor("x", "b", now); all != step.room || of != step.room {
			t.Errorf("after %v: room for another key %v, of the sender %v, want %v", step.after, all, of, step.room)
		}
	}
}
