package spool

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// roomy is small with room for every key that the killed processes write, however long
// the test lasts.
var roomy = func() Options {
	o := small
	o.KeysMax = math.MaxInt
	return o
}()

// appendForever is a process of its own: it prints the number of each entry when
// Append has returned.
func appendForever(folder string) {
	s, err := Open(folder, roomy)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, next := s.Bounds()
	for i := next; ; i++ {
		if _, err := s.Append(context.Background(), entry(fmt.Sprint("key", i), fmt.Sprintf(`{"n":%d}`, i))); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

// TestKill kills the writer at random: what it said to be there is there.
func TestKill(t *testing.T) {
	folder := t.TempDir()
	said := -1
	for i := range 8 {
		said = max(said, killed(t, folder, time.Duration(20+13*i)*time.Millisecond))
		s := open(t, folder, roomy)
		docs := rest(t, s, 0)
		if len(docs) <= said {
			t.Fatalf("%d documents, but number %d was said to be there", len(docs), said)
		}
		for n, doc := range docs {
			if want := fmt.Sprintf(`{"n":%d}`, n); doc != want {
				t.Fatalf("document %d is %s", n, doc)
			}
		}
		if got := put(t, s, entry(fmt.Sprint("key", said), fmt.Sprintf(`{"n":%d}`, said))); !got.Repeated {
			t.Fatalf("the key of entry %d is forgotten", said)
		}
		_ = s.Close()
	}
}

func killed(t *testing.T, folder string, after time.Duration) (said int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "SPOOL_APPEND_FOREVER="+folder)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(time.Minute, func() { _ = child.Process.Kill() })
	defer hung.Stop()
	lines := bufio.NewScanner(out)
	for said = -1; lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Error(lines.Text())
			break
		}
		if said < 0 {
			time.AfterFunc(after, func() { _ = child.Process.Kill() })
		}
		said = n
	}
	_ = child.Wait()
	if said < 0 {
		t.Fatal("the writer has stored nothing")
	}
	return said
}
