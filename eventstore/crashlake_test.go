//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
)

// crashLakeFolder turns the test's process into a workload that publishes until it is killed, and
// crashLakeSettings has the place of its lake table as JSON.
const (
	crashLakeFolder   = "EVENTSTORE_CRASH_LAKE"
	crashLakeSettings = "EVENTSTORE_CRASH_LAKE_SETTINGS"
)

// publishUntilKilled appends, deletes, merges and publishes rows, and widens columns. It prints:
//
//	ack FIRST COUNT       rows are durable
//	deleting MODULUS ID   rows may be deleted: those with id % 50 = MODULUS and id < ID
//	deleted MODULUS ID    they are
//	widening COLUMN       it gets its present type in the lake
//	published             the lake has what the store wants
//	unpublished ERROR     it may not
func publishUntilKilled(folder string) error {
	var settings catalog.Lake
	if err := json.Unmarshal([]byte(os.Getenv(crashLakeSettings)), &settings); err != nil {
		return err
	}
	config := crashLakeConfig(settings)
	s, err := Open(folder, workOptions())
	if err != nil {
		return err
	}
	table, err := s.Table("events", config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	p, done, err := table.TakeOver(ctx, "pipe", "part")
	if err != nil {
		return err
	}
	next := 0
	for _, r := range done {
		next = max(next, int(r.End()))
	}
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(next)))
	for {
		switch action := r.IntN(21); {
		case action == 0:
			modulus := r.IntN(50)
			fmt.Println("deleting", modulus, next)
			if _, err := s.Delete(ctx, "events", fmt.Sprintf("id %% 50 = %d AND id < %d", modulus, next)); err != nil {
				return err
			}
			fmt.Println("deleted", modulus, next)
		case action < 6:
			if err := s.log.Rotate(ctx); err != nil {
				return err
			}
			wake(s.sealer)
		case action < 12:
			// Some files are due, or all of them.
			if err := s.publish(ctx, time.Now().Add(time.Duration(r.IntN(20))*time.Hour)); err != nil {
				fmt.Println("unpublished", strings.ReplaceAll(err.Error(), "\n", " "))
				continue
			}
			fmt.Println("published")
		case action < 13:
			column := grownColumn(r.IntN(next + 1))
			if _, err := s.WidenInLake("events", column); err == nil {
				fmt.Println("widening", column)
			} else if _, refused := errors.AsType[*event.PermanentError](err); !refused {
				return err
			}
		default:
			docs := crashLakeDocs(r, next, 1+r.IntN(60))
			if err := p.Append(ctx, outputOf(uint64(next), docs...)); err != nil {
				return err
			}
			fmt.Println("ack", next, len(docs))
			next += len(docs)
		}
	}
}

// crashLakeConfig returns the configuration of a table whose columns grow.
func crashLakeConfig(settings catalog.Lake) TableConfig {
	config := lakeConfig("")
	config.Lake, config.Unknown = &settings, catalog.AddUnknown
	return config
}

// crashLakeDocs returns documents whose grownColumn has integers first, and other numbers later.
func crashLakeDocs(r *rand.Rand, first, n int) []string {
	docs := lakeDocs(r, first, n)
	for i := range docs {
		half := ""
		if id := first + i; id%grownEvery > grownEvery/2 {
			half = ".5"
		}
		docs[i] = fmt.Sprintf("%s,%q:%d%s}", strings.TrimSuffix(docs[i], "}"), grownColumn(first+i), first+i, half)
	}
	return docs
}

const grownEvery = 1000 // ids with the same grownColumn

func grownColumn(id int) string { return fmt.Sprint("grown", id/grownEvery) }

// A crashedLake is a store that is killed while it publishes.
type crashedLake struct {
	t         *testing.T
	random    *rand.Rand
	server    *testserver.S3Server
	folder    string // of the test
	store     string // folder of the store
	settings  catalog.Lake
	said      []string // by the killed processes
	published int
	widened   int // columns
	verdict
}

// TestCrashLake kills a store that publishes, its committer, and the S3 service with the catalog,
// restores a backup, and repeats old orders. Then the store must have each row that it confirmed
// once, and so must the lake table, in Sail, with each column in its present type.
func TestCrashLake(t *testing.T) {
	kills := countFrom(t, "PERIGEE_LAKE_KILLS", 0)
	if kills == 0 {
		t.Skip("needs PERIGEE_LAKE_KILLS: make crash-lake")
	}
	l := &crashedLake{t: t, random: testseed.New(t), folder: t.TempDir()}
	l.startServer()
	l.interceptOrders()
	l.store = filepath.Join(l.folder, "store")
	var backup bytes.Buffer
	var saidBefore []string
	for kill := range kills {
		switch kill {
		case kills / 3:
			backup, saidBefore = l.backUp(), slices.Clone(l.said)
		case kills / 2:
			l.store, l.said = filepath.Join(l.folder, "restored"), saidBefore
			if err := Restore(l.store, &backup); err != nil {
				t.Fatal(err)
			}
		case kills * 2 / 3:
			l.loseServer(time.Minute)
		}
		l.kill()
		l.check(kill%10 == 9 || kill == kills-1)
		if t.Failed() {
			t.Fatalf("after kill %d", kill+1)
		}
		if kill%10 == 9 { // a run of 200 kills takes most of an hour
			fmt.Printf("after %d kills: %d orders, %d columns widened, nothing lost or duplicated\n", kill+1, l.published, l.widened)
		}
	}
	if l.published < kills || l.widened == 0 {
		l.t.Errorf("%d orders were carried out, %d columns widened: the test proves little", l.published, l.widened)
	}
	fmt.Printf("figure crash_lake_kills %d\nfigure crash_lake_published %d\nfigure crash_lake_widened %d\nfigure crash_lake_lost %d\nfigure crash_lake_duplicated %d\n", kills, l.published, l.widened, l.lost, l.duplicated)
}

func (l *crashedLake) startServer() {
	l.t.Helper()
	l.server, l.settings = startLakeServer(l.t, filepath.Join(l.folder, "s3"))
	settings, err := json.Marshal(l.settings)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Setenv(crashLakeSettings, string(settings))
}

// interceptOrders makes the store run a committer that keeps its orders.
func (l *crashedLake) interceptOrders() {
	l.t.Helper()
	bin := filepath.Join(l.folder, "bin")
	script := fmt.Sprintf("#!/bin/sh\ncat > %s/order-$$\nexec %s \"$@\" < %[1]s/order-$$\n", bin, os.Getenv("PERIGEE_LAKE"))
	if err := errors.Join(os.Mkdir(bin, 0o700), os.WriteFile(filepath.Join(bin, "perigee-lake"), []byte(script), 0o700)); err != nil { //nolint:gosec // a program
		l.t.Fatal(err)
	}
	l.t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// orders returns the files of the orders, the newest last.
func (l *crashedLake) orders() []string {
	all, _ := filepath.Glob(filepath.Join(l.folder, "bin", "order-*"))
	age := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(all, func(a, b string) int { return int(age(a) - age(b)) })
	return all
}

// kill lets a process work, disturbs it and kills it.
func (l *crashedLake) kill() {
	l.t.Helper()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.disturb(stop)
	}()
	lines := workAndKill(l.t, crashLakeFolder, l.store, 2+l.random.IntN(25), time.Duration(l.random.IntN(400_000))*time.Microsecond)
	close(stop)
	<-done
	l.said = append(l.said, lines...)
	for _, line := range lines {
		if line == "published" {
			l.published++
		}
		if strings.HasPrefix(line, "widening") {
			l.widened++
		}
	}
}

// disturb kills committers or the service, or carries out an earlier order beside the present
// one, or does nothing, until stop is closed.
func (l *crashedLake) disturb(stop <-chan struct{}) {
	pause := func(most time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(rand.N(most)):
			return true
		}
	}
	switch rand.IntN(4) {
	case 0:
		for pause(600 * time.Millisecond) {
			for _, pid := range committers(l.folder) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	case 1:
		for pause(2 * time.Second) {
			if err := l.server.Kill(); err != nil {
				l.t.Error(err)
			}
			pause(time.Second)
			if err := l.server.Start(context.Background()); err != nil {
				l.t.Error(err)
				return
			}
		}
	case 2:
		for pause(time.Second) {
			if orders := l.orders(); len(orders) > 0 {
				old := exec.Command(os.Getenv("PERIGEE_LAKE"), "publish")
				file, err := os.Open(orders[max(0, len(orders)-1-rand.IntN(3))])
				if err != nil {
					continue
				}
				old.Stdin = file
				_ = old.Run() // it may be an order of which half was written
				_ = file.Close()
			}
		}
	}
}

// committers returns the processes that carry out orders below a folder.
func committers(folder string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/fd/0")
	for _, input := range all {
		target, err := os.Readlink(input)
		if err != nil || !strings.HasPrefix(target, filepath.Join(folder, "bin", "order-")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(input, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// loseServer lets a process work without the service for a time.
func (l *crashedLake) loseServer(d time.Duration) {
	l.t.Helper()
	if err := l.server.Kill(); err != nil {
		l.t.Fatal(err)
	}
	lines := workAndKill(l.t, crashLakeFolder, l.store, 1, d)
	l.said = append(l.said, lines...)
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "unpublished") }) {
		l.t.Errorf("without S3, the process says only %q", lines)
	}
	if err := l.server.Start(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *crashedLake) backUp() (archive bytes.Buffer) {
	l.t.Helper()
	s := openWork(l.t, l.store)
	if err := errors.Join(s.Backup(l.t.Context(), &archive), s.Close()); err != nil {
		l.t.Fatal(err)
	}
	return archive
}

// check compares the store with what its processes confirmed and, if asked to, the lake with the
// store.
func (l *crashedLake) check(lakeToo bool) {
	l.t.Helper()
	s := openWork(l.t, l.store)
	defer func() {
		if err := s.Close(); err != nil {
			l.t.Error(err)
		}
	}()
	l.checkStore(s)
	if !lakeToo {
		return
	}
	openTable(l.t, s, crashLakeConfig(l.settings))
	seal(l.t, s)
	l.publishWidened(s)
	truth := filepath.Join(l.folder, "truth.json")
	writeTruth(l.t, s, truth, lakePredicates(l.random, 3))
	if differences := readByEngine("sail", truth, strings.Join([]string{l.settings.Catalog, l.settings.Warehouse, l.settings.Table}, "#")); differences != "" {
		l.t.Errorf("the lake differs: %s", differences)
		for word, count := range map[string]*int{"does not have": &l.lost, "has (": &l.duplicated, "different ones": &l.duplicated} {
			*count += strings.Count(differences, word)
		}
	}
}

// publishWidened publishes the store until the lake has each column in its present type.
func (l *crashedLake) publishWidened(s *Store) {
	l.t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < 2*time.Minute; time.Sleep(300 * time.Millisecond) {
		for _, c := range s.current().Table("events").Current().Columns {
			if s.LakeStates()[0].Widening == "" {
				_, _ = s.WidenInLake("events", c.Name) // it refuses what needs no widening
			}
		}
		err = s.publish(l.t.Context(), time.Now().Add(1000*time.Hour))
		if state := s.LakeStates()[0]; err == nil && state.Error == "" && state.Widening == "" && state.Misfits == 0 {
			return
		}
	}
	l.t.Fatalf("publish after all: %v, %+v", err, s.LakeStates())
}

func (l *crashedLake) checkStore(s *Store) {
	l.t.Helper()
	table := s.tableNamed("events")
	if table == nil {
		return // it was killed before it had one
	}
	count := map[int]int{}
	for line := range strings.Lines(ask(l.t, s, "SELECT id, count(*) FROM events GROUP BY id")) {
		var id, n int
		if _, err := fmt.Sscanf(line, "%d,%d", &id, &n); err != nil {
			l.t.Fatal(err)
		}
		if count[id] = n; n > 1 {
			l.t.Errorf("the store has id %d %d times", id, n)
			l.duplicated++
		}
	}
	acknowledged, mayBeGone, isGone := event.Ranges{}, map[int]int{}, map[int]int{}
	for _, line := range l.said {
		var a, b int
		word, rest, _ := strings.Cut(line, " ")
		if _, err := fmt.Sscanf(rest, "%d %d", &a, &b); err != nil {
			continue
		}
		switch word {
		case "ack":
			acknowledged.Add(event.Range{First: uint64(a), Count: uint64(b)})
		case "deleting":
			mayBeGone[a] = max(mayBeGone[a], b)
		case "deleted":
			isGone[a] = max(isGone[a], b)
		}
	}
	for _, r := range acknowledged {
		for id := int(r.First); id < int(r.End()); id++ {
			switch {
			case count[id] == 0 && id >= mayBeGone[id%50]:
				l.t.Errorf("id %d was acknowledged, and the store does not have it", id)
				l.lost++
			case count[id] > 0 && id < isGone[id%50]:
				l.t.Errorf("id %d was deleted, and the store has it", id)
				l.duplicated++
			}
		}
	}
}
