package mysql

import (
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// keyed is a target with rows id, name, note, and a key over id.
func keyed(t *testing.T, mode sqlsink.Mode, update ...string) (*target, writer) {
	t.Helper()
	g := newTarget(t, append(named(20), Column{Name: "note", Type: Type(event.String), SQL: "VARCHAR(20)"})...)
	g.config.PrimaryKey, g.config.Mode, g.config.Update = []string{"id"}, mode, update
	return g, g.open()
}

// numbered makes a batch whose row i has id i modulo keys, in more rows than one
// statement of parameters takes.
func numbered(w writer, first uint64, count, keys int, name string) *rows {
	r := newRows(w)
	for i := range count {
		r.Add(int64(i%keys), name, name)
	}
	r.out.Range.First = first
	return r
}

func TestModes(t *testing.T) {
	tests := []struct {
		mode   sqlsink.Mode
		update []string
		want   string // name and note of every row
	}{
		{sqlsink.Upsert, nil, "new|new"}, {sqlsink.Upsert, []string{"note"}, "old|new"}, {sqlsink.Ignore, nil, "old|old"},
	}
	for _, test := range tests {
		t.Run(string(test.mode)+strings.Join(test.update, ","), func(t *testing.T) {
			g, w := keyed(t, test.mode, test.update...)
			numbered(w, 0, 600, 600, "old").write(t, w)
			numbered(w, 600, 1500, 600, "new").write(t, w)
			numbered(w, 600, 1500, 600, "again").write(t, w) // is there already
			got := g.text("SELECT name, note, COUNT(*) FROM events GROUP BY name, note")
			if !slices.Equal(got, []string{test.want + "|600"}) {
				t.Errorf("the table has %v, want %s", got, test.want)
			}
		})
	}
}

func TestModesNeedKeys(t *testing.T) {
	tests := []struct {
		name, table string
		mode        sqlsink.Mode
		want        string
	}{
		{"upsert without key", "CREATE TABLE events (id BIGINT, name VARCHAR(20), KEY (id))", sqlsink.Upsert, "no primary or unique key"},
		{"upsert by a key that is not filled", "CREATE TABLE events (pk INT AUTO_INCREMENT PRIMARY KEY, id BIGINT, name VARCHAR(20))", sqlsink.Upsert, "columns that are filled"},
		{"nothing but keys", "CREATE TABLE events (id BIGINT, name VARCHAR(20), PRIMARY KEY (id, name))", sqlsink.Upsert, "nothing to update"},
		{"ignore without key", "CREATE TABLE events (id BIGINT, name VARCHAR(20))", sqlsink.Ignore, "no unique key"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newTarget(t, named(20)...)
			g.config.Create, g.config.Mode = false, test.mode
			g.exec(test.table)
			g.refusesOpen(test.want, "mode: i")
		})
	}
}
