package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// permanent fails the test unless err is one that a person must act on, with
// want in it and hint in its hint, and without the password.
func (g *place) permanent(err error, want, hint string) {
	g.t.Helper()
	permanent, ok := errors.AsType[*event.PermanentError](err)
	if !ok {
		g.t.Fatalf("returned %v, want a permanent error with %q", err, want)
	}
	hint = strings.NewReplacer("{schema}", quote(g.config.Schema), "{table}", g.config.target().Name).Replace(hint)
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), g.config.Address) || !strings.Contains(permanent.Hint, hint) {
		g.t.Errorf("error %q\n hint %q\n want %q\n hint %q", err, permanent.Hint, want, hint)
	}
	if p := string(g.config.Password); p != "" && strings.Contains(err.Error()+permanent.Hint, p) {
		g.t.Errorf("the password is in %q or %q", err, permanent.Hint)
	}
}

// refusesOpen wants the same of Open and of Check.
func (g *place) refusesOpen(want, hint string) {
	g.t.Helper()
	s := g.sink("p")
	defer s.Close()
	g.permanent(s.check(g.t.Context()), want, hint)
	_, _, err := s.Open(g.t.Context(), "a")
	g.permanent(err, want, hint)
}

func TestTargetIsChecked(t *testing.T) {
	tests := []struct {
		name   string
		table  string // statement that makes events
		change func(*Config)
		want   string // in the error
		hint   string // in its hint
	}{
		{"absent", "", nil,
			"table events does not exist in schema", `CREATE TABLE IF NOT EXISTS {table} ("id" BIGINT NOT NULL, "name" VARCHAR(60))`},
		{"lacks a column", "CREATE TABLE events (id bigint, nmae text)", nil,
			`the table has no column "name"; the nearest name is "nmae"`, `ALTER TABLE {table} ADD COLUMN "name" VARCHAR(60)`},
		{"lacks a column like no other", "CREATE TABLE events (id bigint, q int)", nil,
			`the table has no column "name"`, "the table has id, q"},
		{"other case", `CREATE TABLE events (id bigint, "Name" text)`, nil,
			`the table has no column "name"; the nearest name is "Name"`, ""},
		{"view", "CREATE VIEW events AS SELECT 1 AS id, 'a' AS name", nil,
			"events is not an ordinary table", "the one behind a view"},
		{"unlogged", "CREATE UNLOGGED TABLE events (id bigint, name text)", nil,
			"events is an unlogged table", "ALTER TABLE {table} SET LOGGED"},
		{"another type", "CREATE TABLE events (id bigint, name int)", nil,
			`column "name" is integer in the table, which cannot hold every string`, `ALTER COLUMN "name" TYPE VARCHAR(60)`},
		{"unfilled column", "CREATE TABLE events (id bigint, name text, org int NOT NULL)", nil,
			`column "org" needs a value`, `ALTER COLUMN "org" DROP NOT NULL`},
		{"computed column", "CREATE TABLE events (id bigint, name text GENERATED ALWAYS AS ('x') STORED)", nil,
			`the server computes column "name"`, "remove it"},
		{"no key to upsert by", "CREATE TABLE events (id bigint, name text, org int UNIQUE)", func(c *Config) { c.Mode = sqlsink.Upsert },
			"mode is upsert, and the table has no primary key or unique index", "add such a key"},
		{"no key to ignore by", "CREATE TABLE events (id bigint, name text)", func(c *Config) { c.Mode = sqlsink.Ignore },
			"mode is ignore, and the table has no primary key or unique index", "add such a key"},
		{"partial key", "CREATE TABLE events (id bigint, name text); CREATE UNIQUE INDEX ON events (id) WHERE id > 5", func(c *Config) { c.Mode = sqlsink.Upsert },
			"no primary key", "add such a key"},
		{"two keys", "CREATE TABLE events (id bigint UNIQUE, name text UNIQUE)", func(c *Config) { c.Mode = sqlsink.Upsert },
			"the table has 2 unique indexes", "make one of them the primary key"},
		{"only a key", "CREATE TABLE events (id bigint, name text, PRIMARY KEY (id, name))", func(c *Config) { c.Mode = sqlsink.Upsert },
			"there is nothing to update", "use mode: ignore"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newPlace(t, named(60)...)
			g.config.Create = false
			if test.table != "" {
				g.text(test.table)
			}
			if test.change != nil {
				test.change(&g.config)
			}
			g.refusesOpen(test.want, test.hint)
		})
	}
}

func TestUnknownType(t *testing.T) {
	g := newPlace(t, sqlsink.Column{Name: "id", Type: sqlsink.Type(event.Int64), SQL: "BIGNIT"})
	s := g.sink("p")
	defer s.Close()
	_, _, err := s.Open(t.Context(), "a")
	g.permanent(err, `type "bignit" does not exist`, "check sql")
}

func TestTableWithMoreThanIsFilled(t *testing.T) {
	g := newPlace(t, named(60)...)
	g.text("CREATE TABLE events (pk bigserial PRIMARY KEY, org int NOT NULL DEFAULT 7, name text, id bigint, at timestamptz NOT NULL DEFAULT now(), note text)")
	w := g.open()
	r := sinktest.NewOutputBuilder(w.sink.columns)
	r.Add(int64(5), "five")
	g.write(w, r.Output(0))
	if got := g.text("SELECT pk, org, name, id, note FROM events"); len(got) != 1 || got[0] != "1|7|five|5|NULL" {
		t.Errorf("the table has %v", got)
	}
}

// TestPrimaryKeyIsPreferred: of several unique indexes an upsert goes by the
// primary key; by one that is not filled it can't.
func TestPrimaryKeyIsPreferred(t *testing.T) {
	for create, want := range map[string]string{
		"CREATE TABLE events (name text UNIQUE, id bigint PRIMARY KEY)":                      "1|b",
		"CREATE TABLE events (pk bigserial PRIMARY KEY, id bigint UNIQUE, name varchar(60))": "1|b",
	} {
		g := newPlace(t, named(60)...)
		g.config.Mode = sqlsink.Upsert
		g.text(create)
		w := g.open()
		r := sinktest.NewOutputBuilder(w.sink.columns)
		r.Add(int64(1), "a")
		r.Add(int64(1), "b")
		g.write(w, r.Output(0))
		if got := g.text("SELECT id, name FROM events"); len(got) != 1 || got[0] != want {
			t.Errorf("%s: the table has %v", create, got)
		}
	}
}

func TestAccountAndDatabaseAreExplained(t *testing.T) {
	g := newPlace(t, named(60)...)
	role := "reader_" + strings.ToLower(g.config.Schema[len("It's "):])
	g.text("CREATE TABLE events (id bigint, name text)")
	g.text("CREATE ROLE " + role + " LOGIN")
	g.config.User, g.config.Password = role, "s3cret"
	g.refusesOpen("permission denied for schema", `GRANT USAGE, CREATE ON SCHEMA {schema} TO "`+role)
	g.text("GRANT USAGE ON SCHEMA " + quote(g.config.Schema) + " TO " + role)
	s := g.sink("p")
	defer s.Close()
	g.permanent(s.check(t.Context()), "may not INSERT in table events", `GRANT INSERT ON {table} TO "`+role)
	g.text("GRANT INSERT ON events TO " + role)
	g.permanent(s.check(t.Context()), "may not create tables in schema", "GRANT CREATE ON SCHEMA {schema}")
	_, _, err := s.Open(t.Context(), "a")
	g.permanent(err, "creating the tables for positions", `GRANT USAGE, CREATE ON SCHEMA {schema} TO "`+role)
	g.config.Mode = sqlsink.Upsert
	g.text("ALTER TABLE events ADD PRIMARY KEY (id)")
	upsert := g.sink("p")
	defer upsert.Close()
	g.permanent(upsert.check(t.Context()), "may not SELECT in table events", "GRANT SELECT ON {table}")

	g.config.User, g.config.Database = "postgres", "absent"
	g.refusesOpen(`database "absent" does not exist`, `CREATE DATABASE "absent"`)
	g.config.User = "nobody"
	g.refusesOpen(`role "nobody" does not exist`, `CREATE ROLE "nobody" LOGIN`)
	g.config.User, g.config.Database, g.config.Schema = "postgres", "postgres", "elsewhere"
	g.config.Create = true
	s = g.sink("p")
	defer s.Close()
	g.permanent(s.check(t.Context()), "has no schema elsewhere", `CREATE SCHEMA "elsewhere"`)
	_, _, err = s.Open(t.Context(), "a")
	g.permanent(err, `schema "elsewhere" does not exist`, `CREATE SCHEMA "elsewhere" AUTHORIZATION "postgres"`)
}

// TestAccountThatMayNotCreate opens with a role that may only write, once the
// tables are there.
func TestAccountThatMayNotCreate(t *testing.T) {
	g := newPlace(t, named(60)...)
	g.open()
	role := "writer_" + strings.ToLower(g.config.Schema[len("It's "):])
	schema := quote(g.config.Schema)
	g.text("CREATE ROLE " + role + " LOGIN; GRANT USAGE ON SCHEMA " + schema + " TO " + role +
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + schema + " TO " + role)
	g.config.User = role
	w := g.open()
	if err := w.sink.check(t.Context()); err != nil {
		t.Error(err)
	}
	g.write(w, span(w, 0, 10))
	// Superusers and other roles have connections that this one may not end.
	g.open()
	g.once(10)
}

func TestTableThatChanges(t *testing.T) {
	g := newPlace(t, named(60)...)
	g.upserts(sqlsink.Upsert)
	w := g.open()
	g.write(w, span(w, 0, 10))
	g.text("ALTER TABLE events DROP COLUMN name")
	g.permanent(w.Write(t.Context(), span(w, 10, 10)), `column "name" of relation "events" does not exist`, "someone changed the tables")
	g.text("ALTER TABLE events ADD COLUMN name text")
	g.write(w, span(w, 10, 10))
	g.once(20)
}
