//go:build linux && cgo

package eventstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// TestDescribeRequired checks which columns DESCRIBE reports as nullable.
func TestDescribeRequired(t *testing.T) {
	s := openStore(t, t.TempDir())
	for name, config := range map[string]TableConfig{
		"timed": {Time: "at", Columns: []event.Column{
			{Name: "it's", Path: []string{"id"}, Type: event.Int64, Required: true}, {Name: "email", Path: []string{"email"}, Type: event.String},
		}},
		"plain": {Columns: []event.Column{{Name: "email", Path: []string{"email"}, Type: event.String}}},
	} {
		if _, err := s.Table(name, config); err != nil {
			t.Fatal(err)
		}
	}
	const timed = "at TIMESTAMP NO; it's BIGINT NO; email VARCHAR YES"
	for _, test := range []struct{ sql, want string }{
		{"DESCRIBE timed", timed},
		{" describe\nTIMED ; ", timed},
		{`DESC "timed"`, timed},
		{"DESCRIBE main.timed", timed},
		{"DESCRIBE TABLE timed", timed},
		{"DESCRIBE plain", "email VARCHAR YES"},
		{"DESCRIBE SELECT email FROM timed", "email VARCHAR YES"},
	} {
		rows, err := s.Query(t.Context(), test.sql)
		if err != nil {
			t.Errorf("%s: %v", test.sql, err)
			continue
		}
		var names, got []string
		for _, c := range rows.Columns() {
			names = append(names, c.Name)
		}
		for rows.Next() {
			got = append(got, fmt.Sprint(rows.Row()[0], " ", rows.Row()[1], " ", rows.Row()[2]))
		}
		if answer := strings.Join(got, "; "); rows.Err() != nil || answer != test.want {
			t.Errorf("%s answers %s (%v), want %s", test.sql, answer, rows.Err(), test.want)
		}
		if answer := strings.Join(names, " "); answer != "column_name column_type null key default extra" {
			t.Errorf("%s: got columns %s, want column_name column_type null key default extra", test.sql, answer)
		}
		rows.Close()
	}
}
