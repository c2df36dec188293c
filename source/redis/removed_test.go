package redis_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// keptAndNot runs a test for a stream that is trimmed and for one that keeps its entries.
func keptAndNot(t *testing.T, test func(t *testing.T, f keyKind)) {
	t.Helper()
	for _, f := range forms()[1:3] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// startStream makes a stream of events and reads it up to some batch.
func startStream(t *testing.T, f keyKind, lost string, events, batches int) (rueidis.Client, *run, []string, []event.Batch) {
	t.Helper()
	_, client, r, items := startKind(t, f, events)
	r.config.Lost = lost
	r.close()
	r.mustOpen()
	var read []event.Batch
	for range batches {
		read = append(read, r.mustRead())
	}
	return client, r, items, read
}

func counted(t *testing.T, client rueidis.Client, field string) int {
	t.Helper()
	text, err := do(t, client, "HGET", "{q}:perigee", field).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(text)
	return n
}

// TestEvictedUnread removes unread entries by MAXLEN while the reader waits.
func TestEvictedUnread(t *testing.T) {
	keptAndNot(t, func(t *testing.T, f keyKind) {
		client, r, items, _ := startStream(t, f, "", 300, 0)
		r.drain()
		later := numbered("later", 0, 10)
		for _, item := range later {
			do(t, client, "XADD", listQueue, "MAXLEN", "=", "3", "*", "data", item)
		}
		_, err := r.read()
		if !errors.Is(err, source.ErrMoved) {
			t.Fatalf("reading past a gap returns %v", err)
		}
		r.close()
		permanent(t, r.open(), "7 events", "position 300", "lost: report")
		r.config.Lost = "report"
		r.mustOpen()
		r.drain()
		r.close()
		r.once(items, later[7:])
		if n := counted(t, client, "lost"); n != 7 {
			t.Errorf("%d events are counted as lost, want 7", n)
		}
	})
}

// TestEvictedAfterCommit removes committed entries: none is lost, and none is repeated.
func TestEvictedAfterCommit(t *testing.T) {
	keptAndNot(t, func(t *testing.T, f keyKind) {
		client, r, items, read := startStream(t, f, "", 1000, 6)
		for _, b := range read[:5] {
			r.commit(b) // and not acknowledged
		}
		do(t, client, "XTRIM", listQueue, "MAXLEN", "=", "600")
		r.mustOpen()
		r.drain()
		r.close()
		r.once(items)
		if n := counted(t, client, "head"); n != 1000 {
			t.Errorf("the head is at %d, want 1000", n)
		}
	})
}

// TestEvictedInFlight removes entries of batches that are committed in part.
func TestEvictedInFlight(t *testing.T) {
	keptAndNot(t, func(t *testing.T, f keyKind) {
		client, r, items, read := startStream(t, f, "report", 1000, 6)
		r.commit(read[0])
		r.commit(read[4])
		do(t, client, "XTRIM", listQueue, "MAXLEN", "=", "750")
		r.mustOpen()
		r.drain()
		r.close()
		r.once(items[:100], items[250:])
		if n := counted(t, client, "lost"); n != 150 {
			t.Errorf("%d events are counted as lost, want 150", n)
		}
	})
}

// TestDeletedUnread deletes an unread entry.
func TestDeletedUnread(t *testing.T) {
	keptAndNot(t, func(t *testing.T, f keyKind) {
		client, r, items, read := startStream(t, f, "", 1000, 3)
		r.commit(read[0])
		r.commit(read[1])
		entries, err := do(t, client, "XRANGE", listQueue, "-", "+").AsXRange()
		if err != nil {
			t.Fatal(err)
		}
		do(t, client, "XDEL", listQueue, entries[500].ID)
		permanent(t, r.open(), "1 events")
		r.config.Lost = "report"
		r.mustOpen()
		r.drain()
		r.close()
		r.once(items[:500], items[501:])
	})
}

// TestStreamRecreated deletes a stream and creates it again, with its own IDs or low ones.
func TestStreamRecreated(t *testing.T) {
	keptAndNot(t, func(t *testing.T, f keyKind) {
		for _, explicit := range []bool{false, true} {
			client, r, items, _ := startStream(t, f, "", 300, 0)
			r.drain()
			do(t, client, "DEL", listQueue)
			later := numbered("later", 0, 20)
			for i, item := range later {
				id := "*"
				if explicit {
					id = strconv.Itoa(i + 1)
				}
				do(t, client, "XADD", listQueue, id, "data", item)
			}
			r.drain()
			r.close()
			r.once(items, later)
		}
	})
}

// TestStateDeleted deletes the state: all entries are new ones.
func TestStateDeleted(t *testing.T) {
	client, r, items, _ := startStream(t, forms()[1], "", 300, 0)
	r.drain()
	r.close()
	do(t, client, "DEL", "{q}:perigee")
	later := numbered("later", 0, 20)
	forms()[1].push(t, client, listQueue, later...)
	r.mustOpen()
	r.drain()
	r.close()
	r.once(items, later)
}

func TestKeptStreamStays(t *testing.T) {
	client, r, items, _ := startStream(t, forms()[2], "", 1000, 0)
	r.drain()
	r.close()
	r.mustOpen()
	r.drain()
	r.close()
	r.once(items)
	if n, err := do(t, client, "XLEN", listQueue).ToInt64(); err != nil || n != 1000 {
		t.Errorf("the stream has %d entries, want all 1000", n)
	}
}

func TestDrainedStreamIsEmpty(t *testing.T) {
	client, r, _, _ := startStream(t, forms()[1], "", 1000, 0)
	r.drain()
	r.close()
	if n, err := do(t, client, "XLEN", listQueue).ToInt64(); err != nil || n != 0 {
		t.Errorf("the stream still has %d entries", n)
	}
}

// TestTrimsEntryByEntry reads one entry at a time, and acknowledges only the first.
func TestTrimsEntryByEntry(t *testing.T) {
	client, r, _, _ := startStream(t, forms()[1], "", 10, 0)
	r.close()
	r.limits.Events = 1
	r.mustOpen()
	first := r.mustRead()
	r.mustRead() // requests the third
	r.commit(first)
	r.ack(first)
	r.mustRead() // requests the trim, and the fourth
	r.mustRead()
	if n, err := do(t, client, "XLEN", listQueue).ToInt64(); err != nil || n != 9 {
		t.Errorf("the stream has %d entries, want 9: one is durable", n)
	}
	r.close()
}
