package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
)

// TestReplayPlaces compares spellings of places: those of one place have one identity, for every
// kind of sink.
func TestReplayPlaces(t *testing.T) {
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "archive"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "archive", "up": "."} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	sql := [][]string{{"emails", "Emails", "EMAILS", `"emails"`, "`emails`", "mail.emails", `"mail"."Emails"`, "[dbo].[emails]"}, {"emails_v2"}, {"emails2"}}
	places := map[string][][]string{
		"mysql": sql, "postgres": sql, "eventstore": {{"emails", "EMAILS"}, {"emails_v2"}},
		"file": {
			{"archive", "./archive/", "link", "up/archive", "up/up/link/.", filepath.Join(folder, "archive"), "other/../archive"},
			{"archive/new", "link/new", "up/link/x/../new"}, {"other"}, {"Archive"},
		},
		"kafka": {{"emails"}, {"Emails"}},
		"redis": {{"emails"}, {"emails:2"}, {"user:{id}", "user:{user.id}"}, {"user2:{id}"}},
		"http": {
			{"https://example.com/a?x=1&y=2", "HTTPS://EXAMPLE.com:443/a?y=2&x=1", "https://me:secret@example.com./b/../a?x=1&y=2#top"},
			{"http://example.com/a?x=1&y=2"}, {"https://example.com/a"}, {"https://example.com", "https://example.com/", "https://example.com:443"}, {"https://example.com:8443/"},
		},
	}
	for _, kind := range linked().Sinks {
		if kind.Place == nil {
			t.Errorf("kind %s has no place", kind.Name)
			continue
		}
		if len(kind.Place.Keys) == 0 {
			continue
		}
		seen := map[string]int{}
		for i, spellings := range places[kind.Name] {
			for _, spelling := range spellings {
				identity, _ := kind.Place.Identity(sink.Env{Folder: folder}, spelling)
				if before, found := seen[identity]; found && before != i || !found && spelling != spellings[0] {
					t.Errorf("%s: the identity of %q is %q", kind.Name, spelling, identity)
				}
				seen[identity] = i
			}
		}
		if len(seen) < 2 || len(seen) != len(places[kind.Name]) {
			t.Errorf("%s has %d identities of %d places", kind.Name, len(seen), len(places[kind.Name]))
		}
	}
}

// replayEvents is how many events the tests below replay.
const replayEvents = 20_000

func writeReplayEvents(t *testing.T, folder string) string {
	t.Helper()
	var text strings.Builder
	for id := range replayEvents {
		fmt.Fprintf(&text, "{\"id\":%d,\"name\":\"event %d\",\"drop\":%v}\n", id, id, id%10 == 9)
	}
	file := filepath.Join(folder, "events.ndjson")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const replayScript = `|
      function main(event)
        if event.drop then return nil end
        return {id = event.id, name = event.name:upper()}
      end
`

// replayUntilDone kills the command again and again until it ends by itself. It returns its last
// output.
func replayUntilDone(t *testing.T, args ...string) string {
	t.Helper()
	r, kills := testseed.New(t), 0
	for longest := 600; ; longest = longest * 3 / 2 {
		cmd := exec.Command("perigee", args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(100+r.IntN(longest))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		if timer.Stop() && err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out.String())
		}
		if err == nil {
			t.Logf("%d kills", kills)
			return out.String()
		}
		if kills++; kills > 15 {
			t.Fatalf("no replay ends within %d ms:\n%s", longest, out.String())
		}
	}
}

// TestReplayIsKilled replays into files and into tables of both SQL servers, and kills it again
// and again: each row is there once, and the pipeline's own tables, positions and list are as
// before.
func TestReplayIsKilled(t *testing.T) {
	t.Parallel()
	redis, server, pg := testserver.Redis(t), maria.Server(t), testserver.PostgreSQL(t)
	folder := shortDir(t)
	events := writeReplayEvents(t, folder)
	myDB, pgDB := server.Database(t), pg.Database(t)
	columns := "columns: [{name: id, type: int64, required: true}, {name: name, type: string}]"
	config := filepath.Join(folder, "pipeline.yaml")
	text := fmt.Sprintf(`
data: state
http: off
pipelines:
  mails:
    source: {redis: {address: "%s", list: mails}}
    script: %s
    sinks:
      my: {mysql: {address: "%s", user: root, database: %s, table: mails, create: true, %s}}
      pg: {postgres: {address: "%s", user: postgres, database: %s, table: mails, create: true, %s}}
      files: {file: {folder: archive}}
      list: {redis: {address: "%s", list: out}}
`, redis.Address(), replayScript, server.Address(), myDB, columns, pg.Address(), pgDB, columns, redis.Address())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMail(t, redis, server)
	m.do("RPUSH", "mails", `{"id":-1,"name":"waits"}`)
	for _, spelling := range []string{"mails", "Mails", `"mails"`, "`MAILS`", "public.mails"} {
		says(t, 1, "sink pg of pipeline mails writes to mails", "replay", config, events, "--skip", "my", "--skip", "files", "--skip", "list", "--into", "pg="+spelling)
		says(t, 1, "sink my of pipeline mails writes to mails", "replay", config, events, "--skip", "pg", "--skip", "files", "--skip", "list", "--into", "my="+spelling)
	}
	says(t, 1, "write its name alone", "replay", config, events, "--skip", "my", "--skip", "files", "--skip", "list", "--into", "pg=public.again")
	args := []string{"replay", config, events, "--into", "my=again", "--into", "pg=again", "--into", "files=again", "--into", "list=again"}
	if out := replayUntilDone(t, args...); !strings.Contains(out, "20,000 of 20000 events done") {
		t.Errorf("the last run says\n%s", out)
	}
	says(t, 1, "has finished", args...)

	const want = replayEvents / 10 * 9
	my, err := sql.Open("mysql", server.DSN(myDB))
	if err != nil {
		t.Fatal(err)
	}
	defer my.Close()
	postgres, err := pgx.Connect(t.Context(), pg.DSN(pgDB))
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.Close(context.Background())
	for name, query := range map[string]func(string) interface{ Scan(...any) error }{
		"mysql":    func(sql string) interface{ Scan(...any) error } { return my.QueryRow(sql) },
		"postgres": func(sql string) interface{ Scan(...any) error } { return postgres.QueryRow(t.Context(), sql) },
	} {
		var rows, ids int
		if err := query("SELECT count(*), count(DISTINCT id) FROM again WHERE name LIKE 'EVENT %'").Scan(&rows, &ids); err != nil || rows != want || ids != want {
			t.Errorf("%s has %d rows with %d ids, want %d: %v", name, rows, ids, want, err)
		}
		if err := query("SELECT count(*) FROM mails").Scan(&rows); err == nil {
			t.Errorf("%s has the table of the pipeline", name)
		}
	}
	lines := linesOf(t, filepath.Join(folder, "again"))
	if slices.Sort(lines); len(lines) != want || len(slices.Compact(lines)) != want {
		t.Errorf("the files have %d lines", len(lines))
	}
	if n, err := m.do("LLEN", "again").AsInt64(); err != nil || n != want {
		t.Errorf("the list has %d documents, %v", n, err)
	}
	if n, err := m.do("LLEN", "mails").AsInt64(); err != nil || n != 1 {
		t.Errorf("the source's list has %d events, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "archive")); err == nil {
		t.Error("the folder of the pipeline was made")
	}
	// The events that wait are read and not taken.
	says(t, 0, "1 of 1 event done", "replay", config, "--waiting", "--skip", "my", "--skip", "pg", "--skip", "list", "--into", "files=waiting")
	if n, err := m.do("LLEN", "mails").AsInt64(); err != nil || n != 1 {
		t.Errorf("the source's list has %d events, %v", n, err)
	}
}

// linesOf returns the lines of all files of a folder.
func linesOf(t *testing.T, folder string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	}
	return lines
}

// TestReplayIntoStoreIsKilled replays into a table of the event store while an engine runs there,
// and kills both again and again.
func TestReplayIntoStoreIsKilled(t *testing.T) {
	t.Parallel()
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	folder := shortDir(t)
	events := writeReplayEvents(t, folder)
	config := filepath.Join(folder, "pipeline.yaml")
	text := `
data: state
http: off
tables:
  mails: {columns: [{name: id, type: int64}, {name: name, type: string}]}
pipelines:
  mails:
    source: {file: {path: own.ndjson, follow: true}}
    script: ` + replayScript + `
    sink: {eventstore: {table: mails}}
`
	own := filepath.Join(folder, "own.ndjson")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("{\"id\":1,\"name\":\"own\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(folder, "state")
	count := func() string {
		out, _ := exec.Command("perigee", "query", "--data", data, "--format", "csv", "SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM mails) FROM again").CombinedOutput()
		return string(out)
	}
	engine := runEngine(t, config)
	engine.says("partition opened")
	replay := exec.Command("perigee", "replay", config, events, "--into", "again", "--rate", "6000/s")
	var out syncBuffer
	replay.Stdout, replay.Stderr = &out, &out
	if err := replay.Start(); err != nil {
		t.Fatal(err)
	}
	// Before this line a moment without an engine would make the replay write the rows itself.
	eventually(t, "the replay begins", func() bool { return strings.Contains(out.String(), "replaying") })
	for range 2 { // the replay waits for the engine
		time.Sleep(500 * time.Millisecond)
		engine.signal(syscall.SIGKILL)
		<-engine.done
		engine = runEngine(t, config)
		engine.says("partition opened")
	}
	if err := replay.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if got, want := count(), "18000,18000,1\n"; !strings.HasSuffix(got, want) {
		t.Errorf("the table has %s, want %s", got, want)
	}
	replayUntilDone(t, "replay", config, events, "--into", "again", "--name", "second", "--rate", "20000/s")
	if got, want := count(), "36000,18000,1\n"; !strings.HasSuffix(got, want) {
		t.Errorf("after two replays the table has %s, want %s", got, want)
	}
	engine.signal(syscall.SIGTERM)
	if err := <-engine.done; err != nil {
		t.Error(err)
	}
	// Without an engine the command writes the rows, and no engine starts meanwhile.
	replayUntilDone(t, "replay", config, events, "--into", "again", "--name", "third", "--rate", "20000/s")
	if got, want := count(), "54000,18000,1\n"; !strings.HasSuffix(got, want) {
		t.Errorf("after three replays the table has %s, want %s", got, want)
	}
	replay = exec.Command("perigee", "replay", config, events, "--into", "again", "--name", "fourth", "--rate", "1000/s")
	replay.Stderr = &out
	if err := replay.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it begins", func() bool { return strings.Contains(out.String(), "replay.fourth") })
	says(t, 1, "is in use by process", "run", config)
	_ = replay.Process.Kill()
	_ = replay.Wait()
}

// TestReplayInterrupted interrupts a replay at a rate: it takes as long as the rate says, ends
// with 130, says what it has done, and goes on.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	events := writeReplayEvents(t, folder)
	config := filepath.Join(folder, "pipeline.yaml")
	text := "data: state\nhttp: off\npipelines:\n  mails:\n    source: {file: {path: events.ndjson}}\n    script: " + replayScript + "    sink: {file: {folder: archive}}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"replay", config, events, "--into", "again", "--rate", "2000/s"}
	cmd := exec.Command("perigee", args...)
	var out syncBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it begins", func() bool { return strings.Contains(out.String(), "perigee: replaying 20000 events") })
	const seconds = 4
	end := time.After(seconds * time.Second)
	says(t, 1, "replay mails-again runs in process", args...)
	<-end
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(out.String(), "hint: continue with the same command") {
		t.Errorf("it exits with %d and says\n%s", code, out.String())
	}
	lines := linesOf(t, filepath.Join(folder, "again"))
	if rows := float64(len(lines)) / 0.9 / seconds; rows < 2000*0.9 || rows > 2000*1.25 { // it also starts and drains
		t.Errorf("%d rows in %d s at 2000/s", len(lines), seconds)
	}
	if _, found := strings.CutPrefix(out.String(), "\x1b"); found || strings.Contains(out.String(), "[#") {
		t.Errorf("a progress bar without a terminal:\n%s", out.String())
	}
	says(t, 1, "has begun with other events: "+events, "replay", config, "--waiting", "--into", "again")
	says(t, 1, "into other places", "replay", config, events, "--into", "elsewhere", "--name", "mails-again")
	says(t, 0, "20,000 of 20000 events done", "replay", config, events, "--into", "again")
	if lines := linesOf(t, filepath.Join(folder, "again")); len(lines) != replayEvents/10*9 {
		t.Errorf("%d lines", len(lines))
	}
	left, err := filepath.Glob(filepath.Join(folder, "state", "replays", "mails-again", "events*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the copy of the events is left: %v, %v", left, err)
	}
}
