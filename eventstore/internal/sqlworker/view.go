//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A tableView is one query's view of a table. It unites log frames and Parquet files, casts
// each to the table's newest schema, and excludes deleted rows.
type tableView struct {
	table    *manifest.Table
	database *database
	parts    []string
	after    string // condition on all parts
	equal    map[string][]string
	scans    []*scan
}

// newTableView creates the view of a table. Close it after the query.
func newTableView(folder string, t *manifest.Table, from selection, d *database) (*tableView, error) {
	v := &tableView{table: t, database: d, equal: from.equal}
	for deletes, frames := range v.splitFrames(from.frames) {
		if len(frames) == 0 {
			continue
		}
		if err := v.addFrames(frames, deletes); err != nil {
			v.close()
			return nil, err
		}
	}
	for _, group := range groupFiles(t, from.files) {
		v.addFiles(folder, group, from.rows)
	}
	if len(v.parts) == 0 {
		if err := v.addFrames(nil, 0); err != nil {
			return nil, err
		}
	}
	if from.after != nil {
		v.after = fmt.Sprintf(" WHERE %s >= make_timestamp(%d)", sqltext.QuoteName(t.Time), *from.after)
		if timeType(t) == event.TimestampNS {
			v.after = fmt.Sprintf(" WHERE %s >= make_timestamp_ns(%d)", sqltext.QuoteName(t.Time), *from.after*1000)
		}
	}
	return v, nil
}

// sql returns the query of the view.
func (v *tableView) sql() string {
	sql := strings.Join(v.parts, " UNION ALL ")
	if v.after != "" {
		sql = "SELECT * FROM (" + sql + ")" + v.after
	}
	return sql
}

func (v *tableView) close() {
	for _, s := range v.scans {
		s.close()
	}
}

// shown lists the columns that users see.
func shown(s *manifest.Schema) []manifest.Column {
	columns := slices.Clone(s.Columns)
	if s.Rest || len(columns) == 0 {
		columns = append(columns, manifest.Column{ID: manifest.RestID, Name: manifest.RestColumn, Type: event.JSON})
	}
	return columns
}

// splitFrames groups frames by the number of the table's last deletes that apply to them. A
// delete applies to all frames before its log position.
func (v *tableView) splitFrames(frames []*logFrame) [][]*logFrame {
	groups := make([][]*logFrame, len(v.table.Deletes)+1)
	for _, f := range frames {
		apply := 0
		for _, d := range v.table.Deletes {
			if f.position.Compare(d.Before) < 0 {
				apply++
			}
		}
		groups[apply] = append(groups[apply], f)
	}
	return groups
}

// addFrames adds frames to which the table's last deletes apply; deletes is their number.
// Deletes are ordered by log position.
func (v *tableView) addFrames(frames []*logFrame, deletes int) error {
	for _, group := range v.groupFrames(frames) {
		s, err := newScan(v.database.scanID(v.table.ID, len(v.scans)), group.columns(v.table), group.frames, v.equal)
		if err != nil {
			return err
		}
		v.scans = append(v.scans, s)
		v.parts = append(v.parts, partSQL(v.table, s.sql(), group.types, v.table.Deletes[len(v.table.Deletes)-deletes:]))
	}
	return nil
}

// columns returns the columns of a scan of the frames.
func (g frameGroup) columns(t *manifest.Table) []scanColumn {
	columns := []scanColumn{}
	for i, c := range shown(t.Current()) {
		if stored := g.types[i]; stored != 0 {
			kind := stored
			if c.Digits != (event.Digits{}) {
				kind = event.String // JSON would go through a double on its way to DECIMAL
			}
			columns = append(columns, scanColumn{c.ID, c.Name, kind, stored})
		}
	}
	if len(columns) == 0 { // DuckDB has no table without columns
		columns = append(columns, scanColumn{manifest.RestID, manifest.RestColumn, event.JSON, event.JSON})
	}
	return columns
}

// A layout is the types of the newest schema's columns in some frames or files; 0 for a
// missing column.
type layout []event.Type

// layoutOf returns the types of the newest schema's columns in a schema version.
func layoutOf(t *manifest.Table, version uint64) layout {
	s := t.Schema(version)
	var types layout
	for _, c := range shown(t.Current()) {
		found := event.Type(0)
		if s != nil {
			if i := slices.IndexFunc(shown(s), func(have manifest.Column) bool { return have.ID == c.ID }); i >= 0 {
				found = shown(s)[i].Type
			}
		}
		types = append(types, found)
	}
	return types
}

// frameLayout returns the types of the newest schema's columns in a frame.
func frameLayout(t *manifest.Table, f *logFrame) layout {
	if t.Schema(f.schema) != nil {
		return layoutOf(t, f.schema)
	}
	// The frame's file was sealed after a tail began to read it, and the manifest has
	// dropped the version.
	var types layout
	for _, c := range shown(t.Current()) {
		found := event.Type(0)
		if kind, _, ok := f.record.Column(c.ID); ok {
			found = kind
		} else if c.ID == manifest.RestID { // other frames of the version may have it
			found = event.JSON
		}
		types = append(types, found)
	}
	return types
}

// join combines two layouts. ok is false if a column has two types.
func (l layout) join(other layout) (joined layout, ok bool) {
	joined = slices.Clone(l)
	for i, t := range other {
		if joined[i] != 0 && t != 0 && joined[i] != t {
			return nil, false
		}
		joined[i] = max(joined[i], t)
	}
	return joined, true
}

type frameGroup struct {
	types  layout
	frames []*logFrame
}

// groupFrames groups frames whose columns have the same types. A missing column reads as
// null, so one group can have frames of many versions.
func (v *tableView) groupFrames(frames []*logFrame) []frameGroup {
	groups := []frameGroup{{types: layoutOf(v.table, v.table.Current().Version)}}
	index := map[uint64]int{}
	for _, f := range frames {
		i, known := index[f.schema]
		if !known {
			types := frameLayout(v.table, f)
			for i = range groups {
				if joined, ok := groups[i].types.join(types); ok {
					groups[i].types, known = joined, true
					break
				}
			}
			if !known {
				i = len(groups)
				groups = append(groups, frameGroup{types: types})
			}
			index[f.schema] = i
		}
		groups[i].frames = append(groups[i].frames, f)
	}
	if len(frames) > 0 {
		groups = slices.DeleteFunc(groups, func(g frameGroup) bool { return len(g.frames) == 0 })
	}
	return groups
}

type fileGroup struct {
	types   layout
	misses  bool // DuckDB's bloom filters of the files miss values; see manifest.FileFormat
	deletes []*manifest.Delete
	files   []*manifest.File
}

// groupFiles groups files with the same column types and the same deletes.
func groupFiles(t *manifest.Table, files []*manifest.File) []*fileGroup {
	var groups []*fileGroup
	index := map[string]*fileGroup{}
	for _, f := range files {
		types := layoutOf(t, f.Schema)
		deletes := t.Deletes
		for len(deletes) > 0 && deletes[0].Number <= f.Deleted {
			deletes = deletes[1:]
		}
		misses := f.Format < manifest.FileFormat && slices.ContainsFunc(types, isMissed)
		key := fmt.Sprint(types, len(deletes), misses)
		if index[key] == nil {
			index[key] = &fileGroup{types: types, misses: misses, deletes: deletes}
			groups = append(groups, index[key])
		}
		index[key].files = append(index[key].files, f)
	}
	return groups
}

// isMissed reports whether DuckDB's bloom filters miss values of a type.
func isMissed(t event.Type) bool { return t == event.Float64 || t == event.Bytes }

// sql returns a query for the rows of files of the group that satisfy where.
func (g *fileGroup) sql(folder string, t *manifest.Table, files []*manifest.File, where string) string {
	sql := filesSQL(folder, t, files) + where
	if !g.misses {
		return sql
	}
	var list []string // DuckDB does not push a predicate on a conditional down to the file
	for i, c := range shown(t.Current()) {
		if isMissed(g.types[i]) {
			list = append(list, fmt.Sprintf("if(%s IS NULL, NULL, %[1]s) AS %[1]s", sqltext.QuoteName(c.Name)))
		}
	}
	return "(SELECT * REPLACE (" + strings.Join(list, ", ") + ") FROM " + sql + ")"
}

// addFiles adds files. For a file in rows it adds only the given row ranges.
func (v *tableView) addFiles(folder string, g *fileGroup, rows map[*manifest.File][]rowRange) {
	var whole []*manifest.File
	for _, f := range g.files {
		if rows[f] == nil {
			whole = append(whole, f)
		}
		for _, r := range rows[f] {
			where := fmt.Sprintf(" WHERE %s BETWEEN %d AND %d", fileRowNumber, r.begin, r.end-1)
			v.parts = append(v.parts, partSQL(v.table, g.sql(folder, v.table, []*manifest.File{f}, where), g.types, g.deletes))
		}
	}
	if len(whole) > 0 {
		v.parts = append(v.parts, partSQL(v.table, g.sql(folder, v.table, whole, ""), g.types, g.deletes))
	}
}

// filesSQL returns a query for the rows of files.
func filesSQL(folder string, t *manifest.Table, files []*manifest.File) string {
	var paths []string
	for _, f := range files {
		paths = append(paths, sqltext.Literal(t.Path(folder, f.Name)))
	}
	return "read_parquet([" + strings.Join(paths, ", ") + "], hive_partitioning = false)"
}

// partSQL returns a query that converts rows with the given column types to the newest
// schema. more lists further columns of the result.
func partSQL(t *manifest.Table, from string, types layout, deletes []*manifest.Delete, more ...string) string {
	var list []string
	for i, c := range shown(t.Current()) {
		list = append(list, castSQL(types[i], c)+" AS "+sqltext.QuoteName(c.Name))
	}
	sql := "SELECT " + strings.Join(append(list, more...), ", ") + " FROM " + from
	if len(deletes) > 0 {
		sql = "SELECT * FROM (" + sql + ") WHERE true"
		for _, d := range deletes { // a column may have widened to JSON since, and may not compare
			sql += " AND NOT coalesce(TRY((" + d.Predicate + "\n)), false)"
		}
	}
	return sql
}

// castSQL returns SQL that casts a column of an older version to a newer one. Text becomes a
// JSON string: a CAST would parse it as JSON source.
func castSQL(have event.Type, want manifest.Column) string {
	name, was := sqltext.QuoteName(want.Name), manifest.Column{Type: have}
	switch {
	case want.Type == 0:
		return "NULL"
	case have == 0:
		return fmt.Sprintf("CAST(NULL AS %s)", want.SQLType())
	case was.SQLType() == want.SQLType():
		return name
	case want.SQLType() == "JSON":
		return fmt.Sprintf("to_json(%s)", name)
	case want.Type == event.Timestamp || want.Type == event.TimestampNS:
		return toTimeSQL(have, want)
	}
	return fmt.Sprintf("CAST(%s AS %s)", name, want.SQLType())
}
