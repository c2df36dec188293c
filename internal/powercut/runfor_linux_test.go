package powercut

import (
	"bytes"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHungProgramIsKilled: a program that does not end is killed, and what it has begun too.
func TestHungProgramIsKilled(t *testing.T) {
	var output bytes.Buffer
	c := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	c.Stdout, c.Stderr = &output, &output
	err := runFor(300*time.Millisecond, c)
	if err == nil || !strings.Contains(err.Error(), "did not end in 300ms") {
		t.Fatalf("got %v", err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(output.String()))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !errors.Is(syscall.Kill(child, 0), syscall.ESRCH); time.Sleep(10 * time.Millisecond) {
		if stat, _ := exec.Command("ps", "-o", "stat=", strconv.Itoa(child)).Output(); strings.HasPrefix(string(stat), "Z") {
			break // dead, and nobody has waited for it
		}
		if time.Now().After(end) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("what it has begun still runs")
		}
	}
	if err := runFor(time.Minute, exec.Command("true")); err != nil {
		t.Errorf("a program that ends: %v", err)
	}
}
