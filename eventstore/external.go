//go:build cgo

package eventstore

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
)

// An ExternalTable is a table whose rows are not in the store. A query that names it
// gets a copy of its own. A table of the store that has the
// same name hides it.
type ExternalTable struct {
	Name    string
	Columns []ColumnInfo
	// Rows yields values that encode as JSON objects, with the columns for keys.
	// It is called once for each query, by several at the same time.
	Rows func() iter.Seq2[any, error]
}

// chunkBytes is how much JSON becomes rows at once.
const chunkBytes = 1 << 20

// copyExternalTables copies the external tables that the query may name. It runs before
// the query's transaction, which is read-only.
func (r *Rows) copyExternalTables(sql string) error {
	sql = strings.ToLower(sql)
	for _, f := range r.store.options.External {
		if name := strings.ToLower(f.Name); !strings.Contains(sql, name) || r.store.hasTable(name) {
			continue
		}
		if err := f.copyTo(r.conn); err != nil {
			return fmt.Errorf("eventstore: copy %s for the query: %w", f.Name, err)
		}
	}
	return nil
}

// hasTable reports whether a table exists, by lower-case name.
func (s *Store) hasTable(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[name] != nil
}

func (f *ExternalTable) copyTo(c *conn) error {
	types := map[string]string{}
	var columns []string
	for _, column := range f.Columns {
		types[column.Name] = column.Type
		columns = append(columns, quote(column.Name)+" "+column.Type)
	}
	if err := c.exec("CREATE TEMP TABLE " + quote(f.Name) + " (" + strings.Join(columns, ", ") + ")"); err != nil {
		return err
	}
	shape, err := json.Marshal([]any{types})
	if err != nil {
		return err
	}
	insert := "INSERT INTO temp." + quote(f.Name) + " BY NAME SELECT unnest(from_json(CAST(? AS JSON), '" +
		strings.ReplaceAll(string(shape), "'", "''") + "'), max_depth := 2)"
	for rows, err := range f.jsonChunks() {
		if err != nil {
			return err
		}
		if _, err := c.run(insert, rows); err != nil {
			return err
		}
	}
	return nil
}

// jsonChunks yields the rows as arrays in JSON.
func (f *ExternalTable) jsonChunks() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var rows []byte
		for row, err := range f.Rows() {
			text, failed := json.Marshal(row)
			if err == nil {
				err = failed
			}
			if err != nil {
				yield("", err)
				return
			}
			rows = append(append(rows, ','), text...)
			if len(rows) > chunkBytes {
				if !yield("["+string(rows[1:])+"]", nil) {
					return
				}
				rows = rows[:0]
			}
		}
		if len(rows) > 0 {
			yield("["+string(rows[1:])+"]", nil)
		}
	}
}
