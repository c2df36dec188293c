//go:build linux && cgo

package eventstore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const crashFolder = "PERIGEE_TEST_CRASH_FOLDER"

const (
	crashBatch   = 200
	crashSegment = 256 << 10 // so that files are closed, sealed and merged meanwhile
)

// TestMain is also the process that TestCrash kills.
func TestMain(m *testing.M) {
	RunWorker()
	if folder := os.Getenv(crashFolder); folder != "" {
		if err := appendForever(folder); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := appendAndGrow(folder); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// appendForever appends batches from where the store is, on two lanes, and says
// of each that it is acknowledged. Now and then a batch brings a new column.
func appendForever(folder string) error {
	s, err := Open(folder, Options{SegmentBytes: crashSegment})
	if err != nil {
		return err
	}
	table, err := s.Table("events", TableConfig{})
	if err != nil {
		return err
	}
	p, done, err := table.TakeOver(context.Background(), "pipe", "part")
	if err != nil {
		return err
	}
	work := make(chan uint64)
	errs := make(chan error, 2)
	var say sync.Mutex
	for range cap(errs) {
		go func() {
			for first := range work {
				if err := p.Append(context.Background(), output(first, crashDocs(first)...)); err != nil {
					errs <- err
					return
				}
				say.Lock()
				fmt.Println("ack", first)
				say.Unlock()
			}
		}()
	}
	for first := uint64(0); ; first += crashBatch {
		if done.Covers(first, first+crashBatch) {
			continue
		}
		select {
		case work <- first:
		case err := <-errs:
			return err
		}
	}
}

func crashDocs(first uint64) []string {
	docs := make([]string, crashBatch)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d,"c%d":"%s"}`, first+uint64(i), first/crashBatch/20, strings.Repeat("x", int(first)%50))
	}
	return docs
}

// TestCrash kills a process that appends, again and again: nothing that it was
// told is durable may be missing, and nothing may be there twice.
func TestCrash(t *testing.T) {
	folder := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	acknowledged := map[uint64]bool{}
	for round := range 8 {
		for _, first := range runAndKill(t, folder, 5+r.IntN(40), time.Duration(r.IntN(20))*time.Millisecond) {
			acknowledged[first] = true
		}
		s := openStore(t, folder)
		table := openTable(t, s, TableConfig{})
		done, err := committedRanges(table, "pipe", "part")
		if err != nil {
			t.Fatal(err)
		}
		for first := range acknowledged {
			if !done.Covers(first, first+crashBatch) {
				t.Fatalf("round %d: batch %d was acknowledged and is not in %v", round, first, done)
			}
		}
		var events uint64
		for _, d := range done {
			events += d.Count
		}
		want := fmt.Sprintf("%d,%d", events, events)
		if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != want {
			t.Fatalf("round %d: rows and distinct ids are %s, the ranges say %s", round, got, want)
		}
		s.Close()
	}
	if len(acknowledged) < 100 {
		t.Errorf("only %d batches were acknowledged: the test proves little", len(acknowledged))
	}
}

// runAndKill runs appendForever until it has acknowledged n batches, waits a
// little and kills it. It returns all that was acknowledged.
func runAndKill(t *testing.T, folder string, n int, more time.Duration) []uint64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashFolder+"="+folder)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var firsts []uint64
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		number, ok := strings.CutPrefix(lines.Text(), "ack ")
		if !ok {
			t.Errorf("the process says %q", lines.Text())
			break
		}
		first, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			continue // cut off by the kill
		}
		firsts = append(firsts, first)
		if len(firsts) == n {
			time.AfterFunc(more, func() { cmd.Process.Kill() })
		}
	}
	cmd.Process.Kill()
	cmd.Wait() // says only that it was killed
	return firsts
}
