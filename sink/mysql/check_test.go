package mysql

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestCheckFindsFaults(t *testing.T) {
	var ours []string
	for _, statement := range stateTables {
		ours = append(ours, statement)
	}
	ours = slices.Clip(ours) // each test appends its own table
	tests := []struct {
		name   string
		tables []string
		create bool
		grant  string
		want   string // in the error; empty: none
	}{
		{"all there", append(ours, "CREATE TABLE events (id BIGINT, name VARCHAR(60))"), false, "SELECT, INSERT, UPDATE, DELETE", ""},
		{"all to be made", nil, true, "SELECT, INSERT, UPDATE, DELETE, CREATE", ""},
		{"no table", nil, false, "ALL", "table events does not exist"},
		{"may not create the table", ours, true, "SELECT, INSERT, UPDATE, DELETE", "CREATE command denied"},
		{"may not create the tables for positions", []string{"CREATE TABLE events (id BIGINT, name VARCHAR(60))"}, false, "SELECT, INSERT, UPDATE, DELETE", "CREATE command denied"},
		{"may not insert", append(ours, "CREATE TABLE events (id BIGINT, name VARCHAR(60))"), false, "SELECT, UPDATE, DELETE", "INSERT command denied"},
		{"may not delete", append(ours, "CREATE TABLE events (id BIGINT, name VARCHAR(60))"), false, "SELECT, INSERT, UPDATE", "DELETE command denied"},
		{"another engine", append(ours, "CREATE TABLE events (id BIGINT, name VARCHAR(60)) ENGINE=MyISAM"), false, "ALL", "its engine is MyISAM"},
		{"lacks a column", append(ours, "CREATE TABLE events (id BIGINT)"), false, "ALL", `the table has no column "name"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newTarget(t, named(60)...)
			g.config.Create = test.create
			for _, table := range test.tables {
				g.exec(table)
			}
			before := g.text("SHOW TABLES")
			g.exec("CREATE USER checker@'%' IDENTIFIED BY 's3cret'")
			t.Cleanup(func() { _, _ = g.db.ExecContext(context.Background(), "DROP USER checker@'%'") })
			g.exec("GRANT " + test.grant + " ON " + quote(g.config.Database) + ".* TO checker@'%'")
			g.config.User, g.config.Password = "checker", "s3cret"

			s := g.sink("p")
			defer s.Close()
			err := s.check(t.Context())
			permanent, ok := errors.AsType[*event.PermanentError](err)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("found %v", err)
			case test.want != "" && (!ok || !strings.Contains(err.Error(), test.want) || permanent.Hint == ""):
				t.Errorf("found %v, want a permanent error with %q", err, test.want)
			}
			if after := g.text("SHOW TABLES"); len(after) != len(before) {
				t.Errorf("there were %v, and are %v", before, after)
			}
		})
	}
}
