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

// crashFolder makes the test's process a writer that waits to be killed.
const crashFolder = "PERIGEE_TEST_CRASH_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(crashFolder); folder != "" {
		writeForever(folder)
	}
	goleak.VerifyTestMain(m)
}

const perRound = 5

// writeForever replaces the same five positions again and again, and says after
// each round that it is durable.
func writeForever(folder string) {
	s, err := Open(folder)
	for round := 1; err == nil; round++ {
		var letters []event.Dead
		for i := range uint64(perRound) {
			letters = append(letters, event.Dead{Position: i, Stage: "script", Error: strconv.Itoa(round)})
		}
		err = s.Replace("p", "a", event.Range{Count: perRound}, letters)
		fmt.Println(round)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKill kills a writer and finds each time one whole round: the last one
// that was said to be durable, or the one after it.
func TestKill(t *testing.T) {
	for kill := range 5 {
		folder := t.TempDir()
		last := killWriter(t, folder, time.Duration(20+kill*13)*time.Millisecond)
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

// killWriter returns the last round that the writer called durable.
func killWriter(t *testing.T, folder string, after time.Duration) (last int) {
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
