package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// schemaColumnsMax is the maximum number of columns in a stored table, because a query names
// each of them. New tables have a lower limit.
const schemaColumnsMax = 1000

// check returns an error if the manifest is inconsistent.
func (m *Manifest) check() error {
	if err := m.checkTables(); err != nil {
		return err
	}
	for _, t := range m.Tables {
		if err := cmp.Or(m.checkFiles(t, t.Files), checkPartitions(t.Partitions)); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	return nil
}

// checkTables is check without the files and partitions of tables.
func (m *Manifest) checkTables() error {
	if len(m.Store) != 32 {
		return errors.New("it has no valid store ID")
	}
	if err := m.checkIncarnations(); err != nil {
		return err
	}
	ids, names, folders := map[uint32]bool{}, map[string]bool{}, map[string]bool{}
	for _, t := range m.Tables {
		name, dir := strings.ToLower(t.Name), strings.ToLower(t.DirName())
		switch {
		case !isFolderName(t.Name):
			return fmt.Errorf("invalid table name %q", t.Name)
		case !isFolderName(t.DirName()):
			return fmt.Errorf("table %s has the invalid folder %q", t.Name, t.Dir)
		case names[name]:
			return fmt.Errorf("two tables are called %s", t.Name)
		case folders[dir]:
			return fmt.Errorf("two tables have the folder %s", t.DirName())
		case t.ID == 0 || t.ID >= m.NextTable || ids[t.ID]:
			return fmt.Errorf("table %s has an invalid or duplicate ID %d", t.Name, t.ID)
		}
		ids[t.ID], names[name], folders[dir] = true, true, true
		if err := m.checkTable(t); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	return nil
}

func isFolderName(name string) bool {
	return name != "" && name == filepath.Base(name) && !strings.HasPrefix(name, ".") && !strings.ContainsRune(name, 0)
}

func (m *Manifest) checkTable(t *Table) error {
	if len(t.Schemas) == 0 {
		return errors.New("it has no schema")
	}
	for i, s := range t.Schemas {
		if i > 0 && s.Version <= t.Schemas[i-1].Version {
			return fmt.Errorf("schema version %d is not newer than the one before", s.Version)
		}
		if len(s.Columns) > schemaColumnsMax {
			return fmt.Errorf("schema version %d has %d columns; a table has at most %d", s.Version, len(s.Columns), schemaColumnsMax)
		}
		ids := map[int32]bool{}
		for _, c := range s.Columns {
			if c.Name == "" || strings.ContainsRune(c.Name, 0) {
				return fmt.Errorf("schema version %d has a column named %q", s.Version, c.Name)
			}
			if c.ID <= RestID || c.ID >= t.NextColumn || ids[c.ID] {
				return fmt.Errorf("column %s of schema version %d has an invalid or duplicate ID %d", c.Name, s.Version, c.ID)
			}
			ids[c.ID] = true
		}
	}
	if t.Lake != nil && t.Lake.Widening != nil && t.Lake.Widening.Step > 0 && (t.Lake.Widening.At < 0 || t.Lake.Widening.At >= len(t.Lake.Columns)) {
		return fmt.Errorf("the running widening names lake column %d, which does not exist", t.Lake.Widening.At)
	}
	for _, d := range t.Deletes {
		if d.Number >= m.NextDelete {
			return fmt.Errorf("delete %d has a number that is not assigned yet", d.Number)
		}
	}
	for _, r := range t.Recomputes {
		if r.Number > m.LastRecompute || t.Current().ByID(r.Column) == nil {
			return fmt.Errorf("recompute %d of column %d has a number that is not assigned yet, or no column", r.Number, r.Column)
		}
	}
	return nil
}

// checkFiles checks some of a table's files. Their names must differ.
func (m *Manifest) checkFiles(t *Table, files []*File) error {
	names := map[string]bool{}
	for _, f := range files {
		switch {
		case !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Name != path.Clean(f.Name) || names[f.Name]:
			return errFileName(f)
		case f.Bloom != "" && f.Bloom != BloomName(f.Name): // the name is used to read and to remove the file
			return fmt.Errorf("file %s has its bloom filters in %q", f.Name, f.Bloom)
		case f.Rows < 0 || f.Bytes < 0:
			return fmt.Errorf("file %s has %d rows and %d bytes", f.Name, f.Rows, f.Bytes)
		case t.Schema(f.Schema) == nil:
			return fmt.Errorf("file %s has schema version %d, which is unknown", f.Name, f.Schema)
		case f.Segment >= m.NextSegment:
			return fmt.Errorf("file %s has a number that is not assigned yet", f.Name)
		case f.Log >= m.LogStart:
			return fmt.Errorf("file %s has rows of log file %d, which readers also read from the log", f.Name, f.Log)
		}
		names[f.Name] = true
		if err := m.checkLake(t, f); err != nil {
			return err
		}
	}
	return nil
}

func errFileName(f *File) error { return fmt.Errorf("invalid or repeated file %q", f.Name) }

func checkPartitions(partitions []*Partition) error {
	for _, p := range partitions {
		for _, r := range p.Ranges {
			if r[0]+r[1] < r[0] {
				return fmt.Errorf("partition %s of pipeline %s has a range of %d events at %d", p.Partition, p.Pipeline, r[1], r[0])
			}
		}
	}
	return nil
}
