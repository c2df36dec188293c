package mysql

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

func TestTargetIsChecked(t *testing.T) {
	tests := []struct {
		name    string
		table   string // statement that makes events
		columns []Column
		want    string // in the error
		hint    string // in its hint
	}{
		{"absent", "", named(60),
			"table events does not exist in database", "CREATE TABLE IF NOT EXISTS `{db}`.`events` (`id` BIGINT NOT NULL, `name` VARCHAR(60))"},
		{"lacks a column", "CREATE TABLE events (id BIGINT, nmae VARCHAR(60))", named(60),
			`the table has no column "name"; the nearest name is "nmae"`, "ALTER TABLE `{db}`.`events` ADD COLUMN `name` VARCHAR(60)"},
		{"lacks a column like no other", "CREATE TABLE events (id BIGINT, q INT)", named(60),
			`the table has no column "name"`, "the table has id, q"},
		{"no transactions", "CREATE TABLE events (id BIGINT, name VARCHAR(60)) ENGINE=MyISAM", named(60),
			"its engine is MyISAM", "ALTER TABLE `{db}`.`events` ENGINE=InnoDB"},
		{"view", "CREATE VIEW events AS SELECT 1 AS id, 'a' AS name", named(60),
			"events is a view", "name the table behind it"},
		{"another type", "CREATE TABLE events (id BIGINT, name INT)", named(60),
			`column "name" is int(11) in the table, which cannot hold every string`, "MODIFY `name` VARCHAR(60)"},
		{"unfilled column", "CREATE TABLE events (id BIGINT, name VARCHAR(60), org INT NOT NULL)", named(60),
			`column "org" needs a value`, "MODIFY `org` int(11) NULL"},
		{"computed column", "CREATE TABLE events (id BIGINT, name VARCHAR(60) AS (concat(id, '')))", named(60),
			`the server computes column "name"`, "remove it"},
		{"unknown type", "", []Column{{Name: "id", Type: Type(event.Int64), SQL: "BIGNIT"}},
			"Unknown data type: 'BIGNIT'", "check sql"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newTarget(t, test.columns...)
			g.config.Create = strings.Contains(test.hint, "sql")
			if test.table != "" {
				g.exec(test.table)
			}
			g.refusesOpen(test.want, test.hint)
		})
	}
}

// refusesOpen fails the test unless Open returns a permanent error that says
// want and hints at hint, without the password.
func (g *target) refusesOpen(want, hint string) {
	g.t.Helper()
	s := g.sink("p")
	defer s.Close()
	_, _, err := s.Open(g.t.Context(), "a")
	permanent, ok := errors.AsType[*event.PermanentError](err)
	if !ok {
		g.t.Fatalf("opening returned %v, want a permanent error", err)
	}
	hint = strings.ReplaceAll(hint, "{db}", g.config.Database)
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), g.config.Address) || !strings.Contains(permanent.Hint, hint) {
		g.t.Errorf("error %q\n hint %q\n want %q\n hint %q", err, permanent.Hint, want, hint)
	}
	if p := string(g.config.Password); p != "" && strings.Contains(err.Error()+permanent.Hint, p) {
		g.t.Errorf("the password is in %q or %q", err, permanent.Hint)
	}
}

func TestTableWithMoreThanIsFilled(t *testing.T) {
	g := newTarget(t, named(60)...)
	g.exec("CREATE TABLE events (pk INT AUTO_INCREMENT PRIMARY KEY, org INT NOT NULL DEFAULT 7, NAME VARCHAR(60), id BIGINT, " +
		"at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, note TEXT)")
	w := g.open()
	r := newRows(w)
	r.Add(int64(5), "five")
	r.write(t, w)
	if got := g.text("SELECT pk, org, name, id, note FROM events"); len(got) != 1 || got[0] != "1|7|five|5|NULL" {
		t.Errorf("the table has %v", got)
	}
}

func TestAccountAndDatabaseAreExplained(t *testing.T) {
	g := newTarget(t, named(60)...)
	g.exec("CREATE TABLE events (id BIGINT, name VARCHAR(60))")
	g.exec("CREATE USER reader@'%' IDENTIFIED BY 's3cret'")
	g.exec("GRANT SELECT ON " + quote(g.config.Database) + ".* TO reader@'%'")
	t.Cleanup(func() { _, _ = g.db.ExecContext(context.Background(), "DROP USER reader@'%'") })

	g.config.User, g.config.Password = "reader", "s3cret-but-wrong"
	g.refusesOpen("Access denied for user 'reader'", "CREATE USER 'reader'@'%' IDENTIFIED BY '…'; GRANT SELECT, INSERT")
	g.config.Password = "s3cret"
	g.refusesOpen("command denied", "as an administrator run: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `{db}`.* TO 'reader'@'%'")
	g.config.User, g.config.Password, g.config.Database = "root", "", "absent"
	g.refusesOpen("Unknown database 'absent'", "CREATE DATABASE `absent`")
}

// TestHintNamesTheAccount runs what the hint says, for an account of the client's host only.
func TestHintNamesTheAccount(t *testing.T) {
	for _, test := range []struct {
		name, grant string
	}{
		{"denied the database", ""},
		{"denied a table", "GRANT SELECT ON {db}.*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newTarget(t, named(60)...)
			g.exec("CREATE TABLE events (id BIGINT, name VARCHAR(60))")
			account := "'o''b@x'@'127.0.0.1'"
			g.exec("CREATE USER " + account + " IDENTIFIED BY 's3cret'")
			t.Cleanup(func() { _, _ = g.db.ExecContext(context.Background(), "DROP USER "+account) })
			if test.grant != "" {
				g.exec(strings.ReplaceAll(test.grant, "{db}", quote(g.config.Database)) + " TO " + account)
			}
			g.config.User, g.config.Password = "o'b@x", "s3cret"
			s := g.sink("p")
			defer s.Close()
			_, _, err := s.Open(t.Context(), "a")
			_, grant, _ := strings.Cut(event.HintOf(err), "as an administrator run: ")
			if !strings.HasSuffix(grant, " TO "+account) {
				t.Fatalf("the hint of %v is %q, want a GRANT to %s", err, event.HintOf(err), account)
			}
			g.exec(grant)
			granted := g.sink("p")
			defer granted.Close()
			if err := granted.check(t.Context()); err != nil {
				t.Errorf("with what the hint grants: %v", err)
			}
		})
	}
}

// TestOthersTargetIsNotListed lists the tables of a sink that does not create its target.
func TestOthersTargetIsNotListed(t *testing.T) {
	g := newTarget(t, named(60)...)
	g.config.Create = false
	s := g.sink("p")
	defer s.Close()
	tables, err := s.Traits().Tables(t.Context())
	if err != nil || len(tables) != 4 || tables[0].Name != sqlsink.OwnersTable {
		t.Errorf("lists %v (%v), want the four tables of the sink", tables, err)
	}
}

// TestAccountThatMayNotCreate opens with an account that may only write, once
// the tables are there.
func TestAccountThatMayNotCreate(t *testing.T) {
	g := newTarget(t, named(60)...)
	g.open()
	g.exec("CREATE USER writer@'%'")
	g.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + quote(g.config.Database) + ".* TO writer@'%'")
	t.Cleanup(func() { _, _ = g.db.ExecContext(context.Background(), "DROP USER writer@'%'") })
	g.config.User = "writer"
	w := g.open()
	r := newRows(w)
	r.Add(int64(1), "one")
	r.write(t, w)
}

func TestSessionsAreSetUp(t *testing.T) {
	g := newTarget(t, named(60)...)
	var mode, zone, charset string
	var lockWait, silence, packet int
	err := g.open().sink.db.QueryRow("SELECT @@sql_mode, @@time_zone, @@character_set_client, @@innodb_lock_wait_timeout, @@wait_timeout, "+
		"@@net_read_timeout").Scan(&mode, &zone, &charset, &lockWait, &silence, &packet)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(mode, "STRICT_ALL_TABLES") || strings.Contains(mode, "BACKSLASH") || strings.Contains(mode, "ANSI") {
		t.Errorf("sql_mode %s", mode)
	}
	if zone != "+00:00" || charset != "utf8mb4" {
		t.Errorf("time zone %s, charset %s", zone, charset)
	}
	if lockWait > 10 || silence > 30 || packet > 30 {
		t.Errorf("a frozen worker could hold its locks for %d, %d, %d seconds", lockWait, silence, packet)
	}
}
