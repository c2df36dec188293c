package outbox

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// crashFolder makes the test's process a writer that runs until it is killed.
const crashFolder = "PERIGEE_TEST_CRASH_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(crashFolder); folder != "" {
		writeForever(folder)
	}
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := putAndRemove(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// kept is the number of entries that the writer does not remove.
const kept = 3

// writeForever stores one entry after the other, prints its number once it is durable,
// and removes all but the last kept ones.
func writeForever(folder string) {
	s, err := Open(folder)
	for first := uint64(0); err == nil; first++ {
		err = s.Put(entryOf("p", "a", first))
		fmt.Println(first)
		if first >= kept {
			s.Remove("p", "a", first-kept)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKill kills a writer and finds all entries that were durable and not removed, and
// none that was removed before the last entry was stored.
func TestKill(t *testing.T) {
	for kill := range 5 {
		folder := t.TempDir()
		last := killWriter(t, folder, time.Duration(20+kill*13)*time.Millisecond)
		s := open(t, folder)
		found := map[uint64]bool{}
		for _, e := range all(t, s, "p", "a") {
			first := e.Batch.Range.First
			found[first] = true
			if first > last+1 || first+kept+1 < last {
				t.Errorf("entry %d is there, the last one that was durable is %d", first, last)
			}
			if diff := cmp.Diff(entryOf("p", "a", first), e); diff != "" {
				t.Errorf("entry %d is not whole: %s", first, diff)
			}
		}
		for first := last; first+kept > last && first <= last; first-- {
			if !found[first] {
				t.Errorf("entry %d was durable and is gone; the last one is %d", first, last)
			}
		}
		closed(t, s)
	}
}

// killWriter returns the last entry that the writer printed.
func killWriter(t *testing.T, folder string, after time.Duration) (last uint64) {
	t.Helper()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), crashFolder+"="+folder)
	writer.Stderr = os.Stderr
	out, err := writer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(time.Minute, func() { writer.Process.Kill() })
	defer hung.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if last, err = strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64); err != nil {
			t.Fatal(err)
		}
		if last == 1 {
			time.AfterFunc(after, func() { writer.Process.Kill() })
		}
	}
	if err := writer.Wait(); err == nil || last == 0 {
		t.Fatalf("the writer ended with %v after entry %d", err, last)
	}
	return last
}
