package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perigeedb/perigee/internal/testserver"
)

// TestMigrationPages runs our side of each page for people who come from another program: its
// configuration, script and commands, with real servers at other ports. Test events are dropped,
// addresses are in lower case, and the time is a time.
func TestMigrationPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/howto/from-*.md")
	if err != nil {
		t.Fatal(err)
	}
	redis, pg := testserver.Redis(t), testserver.PostgreSQL(t)
	played := 0
	for _, path := range pages {
		p := openPage(t, "docs/howto/"+filepath.Base(path))
		if !strings.Contains(p.text, "## The same pipeline in Perigee") {
			continue
		}
		played++
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) { playMigration(t, p, redis, pg) })
	}
	if played != 4 {
		t.Errorf("%d pages have a pipeline", played)
	}
}

func playMigration(t *testing.T, p *page, redis *testserver.RedisServer, pg *testserver.PostgreSQLServer) {
	_, ours, _ := strings.Cut(p.text, "## The same pipeline in Perigee")
	p.text = ours
	name := pg.Database(t)
	config := strings.NewReplacer("127.0.0.1:6379", redis.Address(), "127.0.0.1:5432", pg.Address(), "user: perigee", "user: postgres",
		"database: mail", "database: "+name, "pipelines:", "http: off\npipelines:").Replace(p.block(t, "yaml"))
	p.put(t, "pipeline.yaml", config)
	p.put(t, "signup.lua", p.block(t, "lua"))
	flush := exec.Command("redis-cli", "-u", "redis://"+redis.Address(), "FLUSHALL")
	if out, err := flush.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	commands := strings.Split(strings.TrimSpace(p.block(t, "sh")), "\n")
	if len(commands) != 3 || !strings.HasPrefix(commands[2], "perigee run ") {
		t.Fatalf("commands are %q", commands)
	}
	push := strings.Replace(commands[0], "redis-cli ", "redis-cli -u redis://"+redis.Address()+" ", 1)
	p.step(t, push)
	p.step(t, strings.Replace(push, `{"id":1,`, `{"id":2,"test":true,`, 1))
	p.step(t, strings.Replace(push, `{"id":1,"email":"Ada@Example.com","at":"2026-11-22T10:00:00Z"`, `{"id":3,"email":"bob@example.org","at":"never"`, 1))
	p.step(t, commands[1])

	engine := exec.Command("sh", "-c", "exec "+commands[2])
	var log syncBuffer
	engine.Dir, engine.Stdout, engine.Stderr = p.folder, &log, &log
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	defer engine.Process.Kill()
	db, err := pgx.Connect(t.Context(), pg.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	var rows int
	for end := time.Now().Add(patience); rows < 1 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_ = db.QueryRow(t.Context(), "SELECT count(*) FROM signups").Scan(&rows) // the table may not exist yet
	}
	engine.Process.Signal(syscall.SIGTERM)
	if err := engine.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	var id int
	var email, domain string
	var at time.Time
	err = db.QueryRow(t.Context(), "SELECT id, email, domain, at, count(*) OVER () FROM signups").Scan(&id, &email, &domain, &at, &rows)
	if err != nil || rows != 1 || id != 1 || email != "ada@example.com" || domain != "example.com" || !at.Equal(time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("%d rows: %d %s %s %v, %v\n%s", rows, id, email, domain, at, err, log.String())
	}
	if letters, _ := p.run(t, p.folder, "perigee dlq list --config pipeline.yaml --format ndjson"); strings.Count(letters, `"stage":"column"`) != 1 {
		t.Errorf("dead letters are %s", letters)
	}
	if p.failed > 0 {
		t.Error("a command of the page failed")
	}
}
