package main

import (
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

func TestPrintLakeFailures(t *testing.T) {
	since := time.Date(2026, 11, 29, 10, 20, 30, 0, time.UTC)
	tables := []catalog.Table{
		{Name: "local"},
		{Name: "published", Lake: &catalog.LakeState{WaitingFiles: 1, WaitingBytes: 1000, WaitingSince: since}},
		{Name: "alone", Lake: &catalog.LakeState{Error: "the program perigee-lake is missing\x1b[2J", Hint: "install it"}},
		{Name: "late", Lake: &catalog.LakeState{Error: "no answer", WaitingFiles: 2, WaitingBytes: 3 << 20, WaitingSince: since}},
	}
	var got strings.Builder
	printLakeFailures(&got, tables)
	want := `the lake of table alone fails: the program perigee-lake is missing\x1b[2J (install it)
the lake of table late fails: no answer; 2 files with 3.0 MiB waiting since 2026-11-29 10:20:30 UTC
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
