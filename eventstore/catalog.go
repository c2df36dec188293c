//go:build linux && cgo

package eventstore

import (
	"errors"
	"fmt"
	"os"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A Catalog describes the tables of a store that may be open in another process.
type Catalog struct{ manifest *manifest.Manifest }

// ReadCatalog reads the tables of the store in folder. A folder without a store has no
// tables.
func ReadCatalog(folder string) (Catalog, error) {
	m, err := manifest.Load(folder)
	if errors.Is(err, os.ErrNotExist) {
		m, err = manifest.New(), nil
	}
	if err != nil {
		return Catalog{}, fmt.Errorf("eventstore: %w", explainDamage(err))
	}
	return Catalog{m}, nil
}

// Tables describes the tables, sorted by name.
func (c Catalog) Tables() []TableInfo { return tablesOf(c.manifest) }

// Check returns the error that Store.Table would return for a table, or Store.UseTable if
// want is nil.
func (c Catalog) Check(name string, want *TableConfig) error {
	err := errors.Join(CheckTableName(name), checkName(c.manifest, name))
	if err != nil || want == nil {
		return err
	}
	if t := c.manifest.Table(name); t != nil {
		_, err = schemaOf(t).declared(name, *want)
	} else {
		_, err = firstSchema(name, *want)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	return nil
}

// Key returns the columns of a table's unique key, or nil if the table does not drop
// duplicates.
func (c Catalog) Key(table string) []string {
	if t := c.manifest.Table(table); t != nil && t.Unique != nil {
		return t.Unique.Key
	}
	return nil
}
