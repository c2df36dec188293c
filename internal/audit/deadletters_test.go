package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// TestLettersOfTwoFolders has one letter in both folders and one in each.
func TestLettersOfTwoFolders(t *testing.T) {
	var folders []string
	for _, ids := range [][]string{{`{"id":3}`, `{"id":1}`}, {`{"id":3}`, "", `{"id":2}`}} {
		folder := t.TempDir()
		folders = append(folders, folder)
		store, err := deadletter.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		var dead []event.DeadLetter
		for position, id := range ids {
			if id != "" {
				dead = append(dead, event.DeadLetter{Position: uint64(position), Original: []byte(id)})
			}
		}
		if err := store.Replace("p", "a", event.Range{Count: 3}, dead); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := New(4)
	if err := l.AddDeadLetters(folders...); err != nil {
		t.Fatal(err)
	}
	got := l.Report(func(id uint64) bool { return id == 4 })
	if diff := cmp.Diff(Report{Events: 4, Dropped: 1, Dead: 3}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
