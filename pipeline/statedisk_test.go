//go:build linux && cgo && luajit && lmdb

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state"
)

// countLua keeps the text of each event and counts them.
const countLua = `
	local nodedb = require "nodedb"
	function main(e)
		nodedb.node("^text")[e.id].__ = e.text
		return {id = e.id, n = nodedb.node("^n"):incr()}
	end`

// countDocs returns events for countLua with texts of so many bytes, and the rows that they make.
func countDocs(n, bytes int) (docs, rows []string) {
	for i := range n {
		docs = append(docs, fmt.Sprintf(`{"id":%d,"text":%q}`, i, randomText(bytes)))
		rows = append(rows, fmt.Sprintf(`{"id":%d,"n":%d}`, i, i+1))
	}
	return docs, rows
}

// A syncBuffer is a log that goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// waitForStatus waits until the pipeline retries, with this in the reason.
func waitForStatus(t *testing.T, p *Pipeline, ended <-chan error, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if s := p.Stats(); s.State == Retrying && strings.Contains(fmt.Sprint(s.Err), want) {
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("the pipeline ended with %v, want it to wait for %q", err, want)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the pipeline does not wait for %q: %+v", want, p.Stats())
		}
	}
}

// TestStateOnFullDisk fills the disk of the copies: the script waits, the status says why, and with
// room it goes on. A pipeline that is stopped meanwhile can be started again. Nothing is lost.
func TestStateOnFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 64<<20)
	if disk == "" {
		return
	}
	docs, rows := countDocs(600, 20_000)
	copies := filepath.Join(disk, "users")
	r := newStateRig(t, countLua, docs, copies)
	r.source.batch, r.config.State.Budget = func() int { return 10 }, state.NewBudget(0)
	var lines syncBuffer
	r.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
	ballast := filepath.Join(disk, "ballast")
	ctx, stop := context.WithCancel(t.Context())
	p, ended := New(r.config), make(chan error, 1)
	r.table.afterCommit = func(context.Context) error {
		if len(r.table.allRows()) > 100 && ballast != "" {
			powercut.Fill(t, ballast, 1<<20)
			ballast = ""
		}
		return nil
	}
	go func() { ended <- p.Run(ctx) }()
	waitForStatus(t, p, ended, "unit a of state users")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the pipeline ended with %v", err)
	}
	if n := strings.Count(lines.String(), "the script waits"); n != 1 {
		t.Errorf("the log says %d times that the script waits, want once:\n%s", n, &lines)
	}
	if waited := p.Stats().Units.WaitTime; waited <= 0 {
		t.Errorf("the script has waited %v, want more", waited)
	}
	p = New(r.config) // the copy of the unit may still be open
	go func() { ended <- p.Run(t.Context()) }()
	time.Sleep(200 * time.Millisecond)
	removeAll(t, filepath.Join(disk, "ballast"))
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("with room on the disk the pipeline does not go on: %+v", p.Stats())
	}
	if got := r.table.allRows(); !slices.Equal(got, rows) {
		t.Errorf("%d rows, want %d in order", len(got), len(rows))
	}
	if got := r.get(nodedb.Name("^n")); got != fmt.Sprint(len(docs)) {
		t.Errorf("the state has counted %s events, want %d", got, len(docs))
	}
	if dead := r.deadLetters(); len(dead) > 0 {
		t.Errorf("%d dead letters, the first %v", len(dead), &dead[0])
	}
}

// TestStateBudget gives two pipelines one small budget: both wait at times, and get through.
func TestStateBudget(t *testing.T) {
	budget := state.NewBudget(1 << 20)
	ended := make(chan error, 2)
	var waits []*Pipeline
	for range 2 {
		docs, rows := countDocs(300, 40_000)
		r := newStateRig(t, countLua, docs, filepath.Join(t.TempDir(), "users"))
		r.source.batch, r.config.State.Budget = func() int { return 10 }, budget
		r.config.State.FlushAge = time.Hour // only the budget makes the copy write
		p := New(r.config)
		waits = append(waits, p)
		go func() {
			err := p.Run(t.Context())
			if got := r.table.allRows(); err == nil && !slices.Equal(got, rows) {
				err = fmt.Errorf("%d rows, want %d in order", len(got), len(rows))
			}
			ended <- err
		}()
	}
	for range waits {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("a pipeline does not get through with the memory that there is")
		}
	}
	if waits[0].Stats().Units.WaitTime+waits[1].Stats().Units.WaitTime == 0 {
		t.Error("no script has waited for memory")
	}
}
