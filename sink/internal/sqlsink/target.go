package sqlsink

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/sink"
)

// A Target is the table that a sink fills, as a configuration describes it.
type Target struct {
	*Dialect
	Place      string // the database or schema, for messages
	Table      string
	Name       string // of Table in statements of a person
	Create     bool
	Columns    []Column
	PrimaryKey []string
	Indexes    []string
	Mode       Mode
	Update     []string
	FitsKey    func(c Column) error // reports why a column cannot be part of a key
}

// TableIdentity is the Identity of a sink.Place that is a table. A name with quotes or a qualifier
// has an error, because the configuration takes it literally.
func TableIdentity(_ sink.Env, name string) (string, error) {
	parts := strings.Split(name, ".")
	last := strings.ToLower(strings.Trim(parts[len(parts)-1], "\"`[] "))
	if len(parts) > 1 || strings.ContainsAny(name, "\"`[]") {
		return last, fmt.Errorf("the table is named %s: write its name alone, without quotes, schema or database", name)
	}
	return last, nil
}

// A TableColumn is a column that the table has.
type TableColumn struct {
	Name     string
	Type     string // "varchar"; of a domain, its base type
	FullType string // "varchar(100)"
	Enum     bool
	Scale    int // digits after the point that a decimal keeps; -1 if it keeps all
	Nullable bool
	Required bool // it has neither a default nor NULL: an insert must name it
	Computed bool
}

// A Key is the columns of a primary key or unique index of the table.
type Key struct {
	Columns []string
	Primary bool
}

// Check finds what is wrong with the settings, without a connection.
func (t *Target) Check() error {
	if err := t.CheckName(t.Table); err != nil {
		return fmt.Errorf("table %w", err)
	}
	if err := t.checkColumns(); err != nil {
		return err
	}
	if t.Mode != Upsert && len(t.Update) > 0 {
		return errors.New("update is only for mode: upsert")
	}
	for _, name := range t.Update {
		if !t.names(name) {
			return fmt.Errorf("update: no column is named %q", name)
		}
	}
	return t.checkKeys()
}

func (t *Target) checkColumns() error {
	if len(t.Columns) == 0 {
		return errors.New("columns is empty: name at least one column to fill")
	}
	for i, c := range t.Columns {
		if err := t.CheckName(c.Name); err != nil {
			return fmt.Errorf("item %d of columns: name %w", i+1, err)
		}
		same := func(other Column) bool { return t.SameName(other.Name, c.Name) }
		if slices.IndexFunc(t.Columns, same) != i {
			return fmt.Errorf("column %q is named twice", c.Name)
		}
		if c.Type == 0 {
			return fmt.Errorf("column %q has no type; known: %s", c.Name, strings.Join(event.TypeNames(), ", "))
		}
		if slices.Contains(c.path(), "") {
			return fmt.Errorf("column %q: field %q has an empty part; write it as a.b.c", c.Name, c.Field)
		}
	}
	return nil
}

// checkKeys checks the keys of a table to create against its columns.
func (t *Target) checkKeys() error {
	if !t.Create && len(t.PrimaryKey)+len(t.Indexes) > 0 {
		return errors.New("primary_key and indexes apply only to a table that the sink creates: add create: true")
	}
	for _, key := range append(t.SplitIndexes(), t.PrimaryKey) {
		for _, name := range key {
			i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
			if i < 0 {
				return fmt.Errorf("the key over %s: no column is named %q", strings.Join(key, ", "), name)
			}
			if err := t.FitsKey(t.Columns[i]); err != nil {
				return fmt.Errorf("the key over %s: %w", strings.Join(key, ", "), err)
			}
		}
	}
	return nil
}

// names reports whether a column of the configuration has exactly the name.
func (t *Target) names(name string) bool {
	return slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Name == name })
}

// Fills reports whether the configuration fills a column of the table.
func (t *Target) Fills(name string) bool {
	return slices.ContainsFunc(t.Columns, func(c Column) bool { return t.SameName(c.Name, name) })
}

// FillsAll reports whether the configuration fills all columns of a key.
func (t *Target) FillsAll(k Key) bool {
	return !slices.ContainsFunc(k.Columns, func(name string) bool { return !t.Fills(name) })
}

// ColumnNames returns the names of the columns to fill.
func (t *Target) ColumnNames() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

// Find returns the column of the table with the name, or nil.
func (t *Target) Find(columns []TableColumn, name string) *TableColumn {
	for i := range columns {
		if t.SameName(columns[i].Name, name) {
			return &columns[i]
		}
	}
	return nil
}

// Missing is the error of a table that does not exist and may not be created.
func (t *Target) Missing() error {
	return &event.PermanentError{
		Err:  fmt.Errorf("table %s does not exist in %s", t.Table, t.Place),
		Hint: "set create: true, or run: " + strings.Join(t.Dialect.Create(t), "; "),
	}
}

// CheckTable checks the columns to fill against those of the table.
func (t *Target) CheckTable(columns []TableColumn) error {
	for _, c := range t.Columns {
		f := t.Find(columns, c.Name)
		switch {
		case f == nil:
			return t.missingColumn(c, columns)
		case f.Computed:
			return &event.PermanentError{
				Err:  fmt.Errorf("the server computes column %q", f.Name),
				Hint: "remove it from columns",
			}
		case !t.Accepts(f, event.Type(c.Type)):
			return &event.PermanentError{
				Err:  fmt.Errorf("column %q is %s in the table, which cannot hold every %v unchanged", f.Name, f.FullType, event.Type(c.Type)),
				Hint: "change its type in columns, or run: " + t.alter(t.AlterType(f.Name, t.Type(c))),
			}
		}
	}
	for i := range columns {
		if f := &columns[i]; f.Required && !t.Fills(f.Name) {
			return &event.PermanentError{
				Err:  fmt.Errorf("column %q needs a value (NOT NULL, no default) and is not filled", f.Name),
				Hint: "add it to columns, or run: " + t.alter(t.AlterNull(f)),
			}
		}
	}
	return nil
}

func (t *Target) alter(change string) string { return "ALTER TABLE " + t.Name + " " + change }

func (t *Target) missingColumn(c Column, columns []TableColumn) error {
	names := make([]string, len(columns))
	for i, f := range columns {
		names[i] = f.Name
	}
	message := fmt.Sprintf("the table has no column %q", c.Name)
	if near := nearest.Name(c.Name, names); near != "" {
		message += fmt.Sprintf("; the nearest name is %q", near)
	}
	return &event.PermanentError{
		Err: errors.New(message),
		Hint: fmt.Sprintf("correct the name (the table has %s), or run: %s",
			strings.Join(names, ", "), t.alter("ADD COLUMN "+t.Definition(c))),
	}
}

// Definition is a column of a table to create.
func (t *Target) Definition(c Column) string {
	if c.Required {
		return t.Quote(c.Name) + " " + t.Type(c) + " NOT NULL"
	}
	return t.Quote(c.Name) + " " + t.Type(c)
}

// Definitions are the columns and the primary key of a table to create.
func (t *Target) Definitions() []string {
	var lines []string
	for _, c := range t.Columns {
		lines = append(lines, t.Definition(c))
	}
	if len(t.PrimaryKey) > 0 {
		lines = append(lines, "PRIMARY KEY ("+t.QuoteAll(t.PrimaryKey)+")")
	}
	return lines
}

// SplitIndexes returns the columns of each index of a table to create: an index is
// names of columns, separated by commas.
func (t *Target) SplitIndexes() [][]string {
	var all [][]string
	for _, index := range t.Indexes {
		names := strings.Split(index, ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		all = append(all, names)
	}
	return all
}

// QuoteAll quotes names and joins them by commas.
func (d *Dialect) QuoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = d.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// UpdateColumns returns the columns that an upsert replaces: those of the
// configuration, or all that are not part of keys.
func (t *Target) UpdateColumns(keys []Key) ([]string, error) {
	if len(t.Update) > 0 {
		return t.Update, nil
	}
	names := slices.DeleteFunc(t.ColumnNames(), func(name string) bool {
		same := func(part string) bool { return t.SameName(part, name) }
		return slices.ContainsFunc(keys, func(k Key) bool { return slices.ContainsFunc(k.Columns, same) })
	})
	if len(names) == 0 {
		return nil, &event.PermanentError{
			Err:  errors.New("mode is upsert, and every column is part of a key: there is nothing to update"),
			Hint: "use mode: ignore",
		}
	}
	return names, nil
}

// NoKey is the error of a mode that needs a key that the table lacks.
func (t *Target) NoKey(need string) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("mode is %s, and the table has no %s", t.Mode, need),
		Hint: "add such a key to the table, or use mode: insert",
	}
}
