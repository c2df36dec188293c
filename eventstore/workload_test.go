//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// The workload is the activity of a process. A test kills the process or cuts the power to its
// disk, and checks the result. The workload appends batches of numbered events to three tables,
// closes and reopens the store, deletes, and drops, renames and changes one of the tables. It
// prints what the store has confirmed:
//
//	ack TABLE FIRST  a batch is durable
//	dropping         the changing table may be dropped, with all its batches
//	did CHANGE       it was dropped, renamed, or otherwise changed
//	deleting USER    a delete was requested
//	deleted USER     it has returned
//	failed ERROR     an operation failed and is retried
//
// Meanwhile the store seals, merges, rewrites and removes many files. The column mark of
// events is computed and repeatedly recomputed: when one recompute has ended, the next
// process or the next Open requests another, with another function.
const (
	workBatch   = 100 // events
	userBatches = 5   // batches per user
	deleteEach  = 3   // one in this many users is deleted
	eventsTable = "events"
	oldTable    = "old"     // every other event is older than its retention
	changed     = "changed" // prefix of the changing table's name
)

func workOptions() Options { return Options{SegmentBytes: 64 << 10, Threads: 1} }

func eventsConfig() TableConfig {
	return TableConfig{Time: "time", Event: "name", Columns: declared(event.Int64, "mark")}
}
func oldConfig() TableConfig { return TableConfig{Time: "time", Retention: 24 * time.Hour} }

// marksPerID is the number of functions of mark with distinct values.
const marksPerID = 1000

// marking returns the column mark with one of its functions.
func marking(version string) ComputedColumn {
	return computedBy("mark", version, func(r testRow) (any, error) {
		id, err := r.number("id")
		n, _ := strconv.ParseInt(version, 10, 64)
		return id*marksPerID + n%marksPerID, err
	})
}

// lastMarking returns the function of the last recompute of mark, and whether it has ended.
func lastMarking(s *Store) (version string, ended bool) {
	if table := s.current().Table(eventsTable); table != nil && len(table.Recomputes) > 0 {
		return table.Recomputes[0].Function, !table.Recomputes[0].Ended.IsZero()
	}
	return "0", true
}

// A workload is a running workload process.
type workload struct {
	folder     string
	store      *Store
	partitions map[string]*Partition // by table
	done       map[string]event.Ranges
	next       map[string]uint64 // first position not appended yet
	changed    string            // current name of the changing table
	lanes      int
	mu         sync.Mutex // held while a line is printed
}

func (w *workload) say(line string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Printf(line+"\n", args...)
}

func (w *workload) open() (err error) {
	if w.store, err = Open(w.folder, workOptions()); err != nil {
		return err
	}
	version, ended := lastMarking(w.store)
	if ended {
		n, _ := strconv.Atoi(version)
		version = strconv.Itoa(n + 1)
	}
	w.store.SetComputed([]ComputedColumn{marking(version)})
	w.changed = changed
	if t := changedTable(w.store); t != nil {
		w.changed = t.Name
	}
	w.partitions, w.done, w.next = map[string]*Partition{}, map[string]event.Ranges{}, map[string]uint64{}
	for name, config := range map[string]TableConfig{eventsTable: eventsConfig(), oldTable: oldConfig()} {
		table, err := w.store.Table(name, config)
		if err != nil {
			return err
		}
		if err := w.take(name, table); err != nil {
			return err
		}
	}
	if err := w.takeChanged(); err != nil {
		return err
	}
	if ended {
		_, err = w.store.Recompute(context.Background(), eventsTable, "mark")
	}
	return err
}

// take takes over the partition of a table.
func (w *workload) take(name string, table *Table) (err error) {
	if w.partitions[name], w.done[name], err = table.TakeOver(context.Background(), "pipe", "part"); err != nil {
		return err
	}
	for _, r := range w.done[name] {
		w.next[name] = max(w.next[name], r.End())
	}
	return nil
}

// takeChanged opens the changing table under its current name.
func (w *workload) takeChanged() error {
	table, err := w.store.UseTable(w.changed)
	if err != nil {
		return err
	}
	return w.take(changed, table)
}

// changeTable occasionally changes the changing table.
func (w *workload) changeTable() error {
	ctx, err := context.Background(), error(nil)
	kind := rand.IntN(20)
	switch kind {
	case 0:
		w.say("dropping 0") // each line ends in a number
		if err = w.store.DropTable(ctx, w.changed); err == nil {
			w.changed = changed
		}
	case 1:
		to := changed + string(rune('a'+rand.IntN(3)))
		if err = w.store.RenameTable(ctx, w.changed, to, rand.IntN(2) == 0); err == nil {
			w.changed = to
		}
	case 2:
		err = w.store.SetTime(ctx, w.changed, TimeColumn{Name: "seen", Unit: event.TextOnly})
	case 3:
		err = w.store.SetTime(ctx, w.changed, TimeColumn{Name: "sent"})
	case 4:
		err = w.store.SetTime(ctx, w.changed, TimeColumn{})
	case 5:
		if strings.Contains(fmt.Sprint(changedTable(w.store).Columns), "{x ") {
			err = w.store.DropColumn(ctx, w.changed, "x")
		}
	default:
		return nil
	}
	if err != nil {
		w.say("failed %v", err)
		return err
	}
	w.say("did %s", [...]string{"drop", "rename", "set-time", "set-time", "set-time", "drop-column"}[kind])
	return w.takeChanged()
}

// changedTable describes the changing table under its current name, or returns nil if it was
// dropped.
func changedTable(s *Store) *catalog.Table {
	for _, t := range describedTables(s) {
		if strings.HasPrefix(t.Name, changed) {
			return &t
		}
	}
	return nil
}

// run works until the given number of batches of each table is durable. It closes the store
// in between.
func (w *workload) run(batches int) error {
	const perOpen = 40
	for {
		if err := w.open(); err != nil {
			return err
		}
		target := w.next[eventsTable] + perOpen*workBatch
		err := w.appendUpTo(min(target, uint64(batches)*workBatch))
		if closeErr := w.store.Close(); err != nil || closeErr != nil {
			return fmt.Errorf("%w, %w", err, closeErr)
		}
		if target >= uint64(batches)*workBatch {
			return nil
		}
	}
}

// appendUpTo appends the missing events before position end to all tables, on several lanes,
// and deletes users whose events are complete.
func (w *workload) appendUpTo(end uint64) error {
	for first := uint64(0); first < end; first += uint64(w.lanes) * workBatch {
		var lanes errgroup.Group
		for lane := range w.lanes {
			at := first + uint64(lane)*workBatch
			lanes.Go(func() error { return w.appendBatch(eventsTable, at) })
			lanes.Go(func() error { return w.appendBatch(oldTable, at) })
			lanes.Go(func() error { return w.appendBatch(changed, at) })
		}
		if err := lanes.Wait(); err != nil {
			return err
		}
		if err := w.deleteUsers(first, first+uint64(w.lanes)*workBatch); err != nil {
			return err
		}
		if err := w.changeTable(); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload) appendBatch(table string, first uint64) error {
	if w.done[table].Covers(first, first+workBatch) {
		return nil
	}
	out := outputOf(first, workDocs(table, first)...)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := w.partitions[table].Append(context.Background(), out)
		if err == nil {
			w.say("ack %s %d", table, first)
			return nil
		}
		w.say("failed %v", err)
		if time.Now().After(end) {
			return fmt.Errorf("table %s does not take the batch at %d: %w", table, first, err)
		}
	}
}

// deleteUsers deletes the users with a last event in [from, end).
func (w *workload) deleteUsers(from, end uint64) error {
	const perUser = userBatches * workBatch
	for user := from / perUser; user*perUser < end; user++ {
		last := (user+1)*perUser - 1
		if user%deleteEach != 0 || last < from || last >= end || w.done[eventsTable].Has(last) {
			continue
		}
		w.say("deleting %d", user)
		if _, err := w.store.Delete(context.Background(), eventsTable, fmt.Sprintf("user = %d", user)); err != nil {
			w.say("failed %v", err)
			return err
		}
		w.say("deleted %d", user)
	}
	return nil
}

// workDocs returns the events of a batch. Some batches add a new column.
func workDocs(table string, first uint64) []string {
	const day = 24 * time.Hour
	docs := make([]string, workBatch)
	if table == changed {
		for i := range docs {
			docs[i] = changedDoc(first + uint64(i))
		}
		return docs
	}
	now := time.Now()
	for i := range docs {
		id := first + uint64(i)
		at := now.Add(-time.Duration(id%3) * day) // three files
		if table == oldTable {
			at = now.Add(-time.Duration(id%2) * 3 * day)
		}
		docs[i] = fmt.Sprintf(`{"id":%d,"user":%d,"time":%q,"name":"event %d","c%d":"%s"}`,
			id, id/(userBatches*workBatch), at.UTC().Format(time.RFC3339), id%7, first/workBatch/20, strings.Repeat("x", int(id)%50))
	}
	return docs
}

// Event id of the changing table was sent sentFirst + id*sentEach seconds after 1970.
const sentEach, sentFirst = 600, 1_700_000_000

func changedDoc(id uint64) string {
	sent := sentFirst + int64(id)*sentEach
	return fmt.Sprintf(`{"id":%d,"sent":%d,"seen":%q,"x":%[1]d}`, id, sent, time.Unix(sent, 0).UTC().Format(time.RFC3339))
}

// A verdict counts the wrong rows in a store.
type verdict struct{ lost, duplicated int }

func (v *verdict) add(other verdict) {
	v.lost += other.lost
	v.duplicated += other.duplicated
}

// checkWork compares a store with the output of workloads.
func checkWork(t testing.TB, s *Store, said []string) (v verdict) {
	t.Helper()
	acknowledged := map[string]event.Ranges{}
	deleting, deleted := map[uint64]bool{}, map[uint64]bool{}
	for _, line := range said {
		word := strings.Fields(line)
		if len(word) == 0 {
			continue
		}
		number, err := strconv.ParseUint(word[len(word)-1], 10, 64)
		switch {
		case err != nil: // the output of a failure, or a line truncated by the kill
		case word[0] == "ack" && len(word) == 3:
			set := acknowledged[word[1]]
			set.Add(event.Range{First: number, Count: workBatch})
			acknowledged[word[1]] = set
		case word[0] == "dropping":
			delete(acknowledged, changed)
		case word[0] == "deleting":
			deleting[number] = true
		case word[0] == "deleted":
			deleted[number] = true
		}
	}
	for _, name := range []string{eventsTable, oldTable, changed} {
		table := s.tableNamed(name)
		if t := changedTable(s); name == changed && t != nil {
			table = s.tableNamed(t.Name)
		}
		if table == nil {
			if len(acknowledged[name]) > 0 {
				t.Errorf("table %s is gone", name)
				v.lost += workBatch
			}
			continue
		}
		committed, err := committedRanges(table, "pipe", "part")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range acknowledged[name] {
			for _, gap := range committed.Missing(a) {
				t.Errorf("%s: %v was acknowledged, and the store has %v", name, gap, committed)
				v.lost += int(gap.Count)
			}
		}
		if len(committed) == 0 {
			continue
		}
		switch name {
		case eventsTable:
			v.add(checkUsers(t, s, committed, deleting, deleted))
		case oldTable:
			v.add(checkRetention(t, s, committed))
		case changed:
			v.add(checkChanged(t, s, committed))
		}
	}
	return v
}

// checkUsers checks that all events of each user exist once, or none if the user was deleted.
func checkUsers(t testing.TB, s *Store, committed event.Ranges, deleting, deleted map[uint64]bool) (v verdict) {
	t.Helper()
	rows, ids := map[uint64]int{}, map[uint64]int{}
	for _, part := range partsOf(committed) {
		for line := range strings.Lines(ask(t, s, `SELECT "user", count(*), count(DISTINCT id) FROM events WHERE `+part+` GROUP BY "user"`)) {
			var user uint64
			var n, distinct int
			if _, err := fmt.Sscanf(line, "%d,%d,%d", &user, &n, &distinct); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			rows[user] += n
			ids[user] += distinct
		}
	}
	if n := unmarked(t, s); n > 0 {
		t.Errorf("%d rows lack the value that was computed for them", n)
		v.lost += n
	}
	const perUser = userBatches * workBatch
	last := committed[len(committed)-1].End()
	for user := uint64(0); user*perUser < last || rows[user] > 0; user++ {
		want := countIn(committed, user*perUser, (user+1)*perUser)
		switch {
		case deleted[user], deleting[user] && rows[user] == 0:
			if rows[user] > 0 {
				t.Errorf("user %d was deleted, and has %d rows", user, rows[user])
				v.duplicated += rows[user]
			}
		case ids[user] != want || rows[user] != want:
			t.Errorf("user %d has %d rows with %d ids, and %d events are committed", user, rows[user], ids[user], want)
			v.lost += max(want-ids[user], 0)
			v.duplicated += rows[user] - min(ids[user], want)
		}
	}
	return v
}

// unmarked counts the events without a valid value of mark.
func unmarked(t testing.TB, s *Store) (n int) {
	t.Helper()
	answer := ask(t, s, fmt.Sprintf(`SELECT count(*) FILTER (mark IS NULL OR mark // %d <> id) FROM events`, marksPerID))
	if _, err := fmt.Sscan(answer, &n); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	return n
}

// checkRetention checks that unexpired events exist once, and expired ones at most once.
func checkRetention(t testing.TB, s *Store, committed event.Ranges) (v verdict) {
	t.Helper()
	var young, youngIDs, old, oldIDs int
	for _, part := range partsOf(committed) {
		var n [4]int
		answer := ask(t, s, `SELECT count(*) FILTER (id % 2 = 0), count(DISTINCT id) FILTER (id % 2 = 0), count(*) FILTER (id % 2 = 1), count(DISTINCT id) FILTER (id % 2 = 1) FROM old WHERE `+part)
		if _, err := fmt.Sscanf(answer, "%d,%d,%d,%d", &n[0], &n[1], &n[2], &n[3]); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		young, youngIDs, old, oldIDs = young+n[0], youngIDs+n[1], old+n[2], oldIDs+n[3]
	}
	want := countIn(committed, 0, 1<<62) / 2
	if young != want || youngIDs != want || old != oldIDs || old > want {
		t.Errorf("%d young rows with %d ids, and %d old ones with %d; %d of each are committed", young, youngIDs, old, oldIDs, want)
		v.lost += max(want-youngIDs, 0)
		v.duplicated += young - min(youngIDs, want) + old - oldIDs
	}
	return v
}

// checkChanged checks that each event of the changing table exists once, with its values, and
// that queries return the same events with and without time bounds.
func checkChanged(t testing.TB, s *Store, committed event.Ranges) (v verdict) {
	t.Helper()
	table := changedTable(s)
	types := map[string]string{}
	for _, c := range table.Columns {
		types[c.Name] = c.Type
	}
	want := countIn(committed, 0, 1<<62)
	wrong := []string{"false"}
	for _, name := range []string{"sent", "seen"} {
		value := map[string]string{"BIGINT": name, "VARCHAR": "epoch(CAST(" + name + " AS TIMESTAMP))", "TIMESTAMP": "epoch(" + name + ")"}[types[name]]
		wrong = append(wrong, fmt.Sprintf("coalesce(%s <> %d + id * %d, true)", value, sentFirst, sentEach))
	}
	if types["x"] != "" {
		wrong = append(wrong, "x <> id") // the column was dropped, or is null or correct
	}
	inRange := "true"
	if table.Time != "" {
		inRange = fmt.Sprintf("%s >= make_timestamp(%d) AND %[1]s < make_timestamp(%d)", table.Time, (sentFirst+500*sentEach)*1_000_000, (sentFirst+1500*sentEach)*1_000_000)
	}
	var rows, ids, bad, within, found int
	answer := ask(t, s, fmt.Sprintf(`SELECT count(*), count(DISTINCT id), count(*) FILTER (%s), count(*) FILTER (%s), (SELECT count(*) FROM %s WHERE %[2]s) FROM %[3]s`,
		strings.Join(wrong, " OR "), inRange, table.Name))
	if _, err := fmt.Sscanf(answer, "%d,%d,%d,%d,%d", &rows, &ids, &bad, &within, &found); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	if rows != want || ids != want || bad > 0 || within != found {
		t.Errorf("table %s, time %q: %d rows with %d ids, %d of them with wrong values, and %d events are committed; %d in a time, a query finds %d of them", table.Name, table.Time, rows, ids, bad, want, within, found)
		v.lost = max(want-ids, 0) + bad + max(within-found, 0)
		v.duplicated = rows - min(ids, want)
	}
	return v
}

// partsOf returns predicates that partition the rows into parts small enough for a distinct
// count of their ids.
func partsOf(committed event.Ranges) (predicates []string) {
	const ids = 1 << 20
	begin, end := uint64(0), committed[len(committed)-1].End()
	for ; begin+ids < end; begin += ids {
		predicates = append(predicates, fmt.Sprintf("id >= %d AND id < %d", begin, begin+ids))
	}
	return append(predicates, fmt.Sprintf("id >= %d OR id < 0 OR id IS NULL", begin))
}

func countIn(set event.Ranges, first, end uint64) (n int) {
	for _, r := range set.Intersect(event.Ranges{{First: first, Count: end - first}}) {
		n += int(r.Count)
	}
	return n
}

// countFrom returns the number in an environment variable, with which the make targets run
// longer tests.
func countFrom(t testing.TB, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// workFolder returns the folder of a workload's store below the folder of a test.
func workFolder(folder string) string { return filepath.Join(folder, "made", "events") }

// sealedFiles returns the number of log files sealed so far, to verify that a test covers
// sealing.
func sealedFiles(s *Store) uint64 { return s.current().LogStart - 1 }
