package deadletter

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
)

// crashFolder makes the test's process a writer that runs until it is killed, crashQueue
// one that requests retries.
const (
	crashFolder = "PERIGEE_TEST_CRASH_FOLDER"
	crashQueue  = "PERIGEE_TEST_CRASH_QUEUE"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(crashFolder); folder != "" {
		writeForever(folder)
	}
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := replaceAndRetry(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if folder := os.Getenv(crashQueue); folder != "" {
		queueAll(folder)
	}
	goleak.VerifyTestMain(m)
}

const perRound = 5

// writeForever replaces the letters of the same five positions repeatedly, and prints
// the number of each round once it is durable.
func writeForever(folder string) {
	s, err := Open(folder)
	for round := 1; err == nil; round++ {
		var letters []event.DeadLetter
		for i := range uint64(perRound) {
			letters = append(letters, event.DeadLetter{Position: i, Stage: "script", Error: strconv.Itoa(round)})
		}
		err = s.Replace("p", "a", event.Range{Count: perRound}, letters)
		fmt.Println(round)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKill kills a writer and finds each time one whole round: the last one printed, or
// the one after it.
func TestKill(t *testing.T) {
	for kill := range 5 {
		folder := t.TempDir()
		last := killWriter(t, crashFolder+"="+folder, time.Duration(20+kill*13)*time.Millisecond)
		s := open(t, folder)
		letters := list(t, s, Filter{})
		if len(letters) != perRound {
			t.Fatalf("%d letters after round %d", len(letters), last)
		}
		for _, l := range letters {
			if l.Error != letters[0].Error {
				t.Errorf("rounds %s and %s are mixed", l.Error, letters[0].Error)
			}
		}
		if round, _ := strconv.Atoi(letters[0].Error); round != last && round != last+1 {
			t.Errorf("round %d is there, %d was durable", round, last)
		}
		s.Close()
	}
}

// killWriter returns the last round that the writer printed.
func killWriter(t *testing.T, env string, after time.Duration) (last int) {
	t.Helper()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), env)
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
		if last, err = strconv.Atoi(strings.TrimSpace(lines.Text())); err != nil {
			t.Fatal(err)
		}
		if last == 1 {
			time.AfterFunc(after, func() { writer.Process.Kill() })
		}
	}
	if err := writer.Wait(); err == nil || last == 0 {
		t.Fatalf("the writer ended with %v after round %d", err, last)
	}
	return last
}

// queueAll requests the retry of all letters, one after the other.
func queueAll(folder string) {
	s, err := Open(folder)
	if err == nil {
		fmt.Println(1)
		for l, err := range s.List(Filter{}) {
			if err == nil {
				_, err = s.Retry(Filter{IDs: []string{l.ID()}})
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	time.Sleep(time.Minute) // until it is killed
	os.Exit(1)
}

// TestKillRetry kills the process that requests retries: each letter is either still
// stored or queued.
func TestKillRetry(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	var letters []event.DeadLetter
	for i := range uint64(400) {
		letters = append(letters, dead(i, "x"))
	}
	keep(t, s, "a", letters...)
	for kill, left := 0, len(letters); kill < 4 || kill < 40 && left == len(letters); kill++ { // on a slow machine, until one has moved
		s.Close()
		killWriter(t, crashQueue+"="+folder, time.Duration(5+11*kill)*time.Millisecond)
		s = open(t, folder)
		left = len(list(t, s, Filter{}))
		if queued, err := s.Queued(); err != nil || left+queued["p"] != len(letters) {
			t.Errorf("%d letters and %d queued ones of %d, %v", left, queued["p"], len(letters), err)
		}
	}
	if n, err := s.Count(Filter{}); err != nil || n == len(letters) {
		t.Errorf("nothing was moved before the kills: %v", err)
	}
}
