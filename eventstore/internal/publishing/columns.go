package publishing

import (
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// columnsOf returns the lake's columns of a table: those that it has, whose types never change,
// and new ones for the new columns of the table.
func columnsOf(t *manifest.Table) []manifest.LakeColumn {
	columns := slices.Clone(t.Lake.Ordering())
	has := func(id int32) bool {
		return slices.ContainsFunc(columns, func(known manifest.LakeColumn) bool { return known.ID == id })
	}
	add := func(id int32, name string, kind string, isJSON bool) {
		if has(id) {
			return
		}
		for slices.ContainsFunc(columns, func(other manifest.LakeColumn) bool { return strings.EqualFold(other.Name, name) }) {
			name += "_"
		}
		columns = append(columns, manifest.LakeColumn{ID: id, Name: name, Type: kind, JSON: isJSON})
	}
	for _, c := range t.Current().Columns {
		kind, isJSON := tablesql.LakeType(&c)
		switch micros := manifest.MicrosID(c.ID); {
		case c.Type == 0:
		case c.Type == event.TimestampNS && (has(micros) || !has(c.ID)): // else the lake has it in another type
			add(micros, c.Name, string(lake.Timestamptz), false) // before its nanoseconds, whose name it may change
			add(c.ID, c.Name+"_ns", string(lake.Long), false)
		case !has(micros):
			add(c.ID, c.Name, kind, isJSON)
		}
	}
	// All tables have it, so that a first unknown field does not change the lake table.
	add(manifest.RestID, catalog.RestColumn, string(lake.String), true)
	return columns
}

// isReady reports whether a file can be read by other engines, with the types of the lake's
// columns.
func isReady(t *manifest.Table, f *manifest.File, columns []manifest.LakeColumn) bool {
	if !f.Open || f.Undivided {
		return false
	}
	written, needsRest, hasRest := t.Schema(f.Schema), false, false
	for i := range columns {
		c := &columns[i]
		isFitted := slices.Contains(f.Fitted, c.FittedID())
		if c.ID == manifest.RestID {
			hasRest = isFitted
			continue
		}
		had := written.ByID(c.Source())
		if had == nil || had.Type == 0 || t.Current().ByID(had.ID) == nil || tablesql.IsNatural(had, columns, c) {
			continue
		}
		if !isFitted {
			return false
		}
		needsRest = true
	}
	return hasRest || !needsRest
}

// NeedRewrite returns the files that must be written again before they can be published.
func NeedRewrite(t *manifest.Table) (files []*manifest.File) {
	if t.Lake == nil {
		return nil
	}
	columns := columnsOf(t)
	for _, f := range t.Files {
		if f.Step == 0 && f.Remote == nil && !f.Undivided && !isReady(t, f, columns) {
			files = append(files, f)
		}
	}
	for _, f := range needWiden(t) {
		if !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	return files
}
