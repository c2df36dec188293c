package sourcetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// cancelled reads from a source that waits and takes the context away from the
// read that finds nothing.
func cancelled(t *testing.T, p Place) {
	if p.Wait == nil {
		t.Skip("this kind never waits")
	}
	o := reading(t, p.Wait(t, usual), usual, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var b event.Batch
		for {
			if err := o.reader.Read(ctx, &b); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		t.Fatalf("a read that should wait returns %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled read returns %v, want context.Canceled", err)
		}
	case <-time.After(time.Second):
		t.Error("a cancelled read still waits after a second")
		<-ended
	}
	o.close()
}

func lagCounts(t *testing.T, p Place) {
	o := open(t, p, source.Limits{Events: 10, Bytes: 1 << 20}, nil)
	var read uint64
	o.each = func(r event.Range) {
		read += r.Count
		want := uint64(len(p.Events)) - read
		if p.NoLag {
			want = 0
		}
		if lag := o.reader.Lag(); lag != want {
			t.Errorf("after %d of %d events the lag is %d, want %d", read, len(p.Events), lag, want)
		}
	}
	o.drain()
	o.close()
}
