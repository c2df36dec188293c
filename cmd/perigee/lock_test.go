package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestOwn(t *testing.T) {
	data := t.TempDir() + "/made/here"
	first, err := own(data)
	if err != nil {
		t.Fatal(err)
	}
	_, err = own(data)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("in use by process %d", os.Getpid())) || event.HintOf(err) == "" {
		t.Errorf("the second owner gets %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := own(data)
	if err != nil {
		t.Fatalf("a folder that was given up: %v", err)
	}
	again.Close()
}
