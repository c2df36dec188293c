//go:build linux && cgo

package sqlworker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/durable"
)

const (
	// rowGroupRows is how many rows a row group has. It is the least that is read of a file, all
	// of its values: smaller ones make a search for few rows faster, and reading all slower.
	rowGroupRows = 16_384
	// dictionaryMax is how many different values of a row group are written as a dictionary.
	dictionaryMax = 4096
)

// writeSegment writes the rows of a closed file of the log as Parquet files, one for each
// table and day.
func (w *worker) writeSegment(ctx context.Context, q *Segment, in *job) error {
	m, err := w.manifests.load(q.Version)
	if err != nil {
		return err
	}
	log, err := w.log.open(q.Log.Number, []wal.FileEnd{q.Log})
	if err != nil {
		return err
	}
	defer log.close()
	written := []Written{}
	part := 0
	for _, t := range m.Tables {
		from := selection{frames: log.of(t.ID)}
		if len(from.frames) == 0 {
			continue
		}
		files, err := w.writeFiles(ctx, t, from, q.Number, &part)
		if err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
		for _, f := range files {
			f.Log = q.Log.Number
			written = append(written, Written{t.ID, f})
		}
	}
	if err := in.out.writeJSON(filesMessage, written); err != nil {
		return err
	}
	return in.out.writeJSON(doneMessage, outcome{})
}

// merge writes the rows of several files of a table as one file a day.
func (w *worker) merge(ctx context.Context, q *Merge, in *job) error {
	m, err := w.manifests.load(q.Version)
	if err != nil {
		return err
	}
	t := m.TableByID(q.Table)
	if t == nil {
		return fmt.Errorf("no table %d", q.Table)
	}
	var from selection
	log := uint64(0)
	for _, name := range q.Files {
		found := false
		for _, f := range t.Files {
			if f.Name == name {
				from.files, found, log = append(from.files, f), true, max(log, f.Log)
			}
		}
		if !found {
			return fmt.Errorf("table %s has no file %s", t.Name, name)
		}
	}
	part := 0
	files, err := w.writeFiles(ctx, t, from, q.Number, &part)
	if err == ErrUnchanged {
		return in.out.writeJSON(doneMessage, outcome{Unchanged: true})
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	written := []Written{}
	for _, f := range files {
		f.Log = log
		written = append(written, Written{t.ID, f})
	}
	if err := in.out.writeJSON(filesMessage, written); err != nil {
		return err
	}
	return in.out.writeJSON(doneMessage, outcome{})
}

// sortMemory is what DuckDB may account for while it sorts rows. Beyond, it sorts on disk, but
// not if a few rows are as large: then it is tried once more, with the last one.
var sortMemory = []int64{96 << 20, 256 << 20}

// writeFiles writes rows of a table, sorted, one file for each day of event time. part is
// the number of the next file of the segment.
func (w *worker) writeFiles(ctx context.Context, t *manifest.Table, from selection, segment uint64, part *int) (files []manifest.File, err error) {
	for _, memory := range sortMemory {
		if files, err = w.sortFiles(ctx, memory, t, from, segment, part); err != errMemory {
			return files, err
		}
		for _, f := range files {
			err = errors.Join(err, t.RemoveFile(w.settings.Folder, f.Name))
			if f.Bloom != "" {
				err = errors.Join(err, t.RemoveFile(w.settings.Folder, f.Bloom))
			}
		}
	}
	return nil, err
}

// sortFiles does what writeFiles does, in so much memory.
func (w *worker) sortFiles(ctx context.Context, memory int64, t *manifest.Table, from selection, segment uint64, part *int) (files []manifest.File, err error) {
	s, err := w.newSession(ctx, memory)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if r := from.recompute; r != nil {
		r.attempts++
		setScriptCaller(s.database.number, &scriptCaller{ctx: ctx, job: r.job})
		defer setScriptCaller(s.database.number, nil)
	}
	if err := s.createView(t, from); err != nil {
		return nil, err
	}
	days, err := s.listDays(t)
	if err == nil && from.recompute == nil && len(from.frames) == 0 && len(from.files) == 1 && countDays(days) == from.files[0].Rows {
		return nil, ErrUnchanged
	}
	for i := 0; err == nil && i < len(days); i++ {
		ofDay := from
		if days[i].day != "" && days[i].day != nullDay { // only what has rows of that day is read for it
			ofDay = from.within(t, bounds{min: days[i].minTime, max: days[i].maxTime})
		}
		s.closeViews()
		if err = s.createView(t, ofDay); err != nil {
			break
		}
		name := manifest.FileName(days[i].day, segment, *part)
		var f manifest.File
		if f, err = s.writeDay(t, days[i], name); err == nil {
			f.Segment = segment
			files = append(files, f)
			*part++
		}
	}
	if err != nil {
		s.failed = true
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		} else if outOfMemory(err) {
			err = errMemory
		}
	}
	return files, err
}

// A day is the rows of one day of event time.
type day struct {
	day              string // "" in a table without a time column
	rows             int64
	minTime, maxTime int64 // microseconds
}

func countDays(days []day) (rows int64) {
	for _, d := range days {
		rows += d.rows
	}
	return rows
}

// nullDay is the day of rows without a time.
const nullDay = "1970-01-01"

// timeSQL returns the event time of a row in microseconds, or "" if the table has none.
func timeSQL(t *manifest.Table) string {
	switch timeType(t) {
	case event.Timestamp:
		return "epoch_us(" + quote(t.Time) + ")"
	case event.TimestampNS: // the division rounds towards 1970
		nanos := "epoch_ns(" + quote(t.Time) + ")"
		return "(" + nanos + " // 1000 - CAST(" + nanos + " % 1000 < 0 AS BIGINT))"
	}
	return ""
}

// timeType returns the type of the time column, or 0 if there is none.
func timeType(t *manifest.Table) event.Type {
	for _, c := range t.Current().Columns {
		if t.Time != "" && strings.EqualFold(c.Name, t.Time) {
			return c.Type
		}
	}
	return 0
}

func daySQL(t *manifest.Table) string {
	at := quote(t.Time)
	switch timeType(t) {
	case event.TimestampNS: // its cast rounds towards 1970
		at = "make_timestamp(" + timeSQL(t) + ")"
	case event.Timestamp:
	default:
		return "NULL"
	}
	return "coalesce(CAST(" + at + " AS DATE), DATE '" + nullDay + "')"
}

func (s *session) listDays(t *manifest.Table) (days []day, err error) {
	micros := timeSQL(t)
	if micros == "" {
		micros = "0"
	}
	rows, err := s.conn.run(fmt.Sprintf("SELECT CAST(%s AS VARCHAR), count(*), coalesce(min(%s), 0), coalesce(max(%[2]s), 0) FROM main.%[3]s GROUP BY ALL ORDER BY ALL", daySQL(t), "CAST("+micros+" AS BIGINT)", quote(t.Name)))
	for _, row := range rows {
		d := day{rows: row[1].(int64), minTime: row[2].(int64), maxTime: row[3].(int64)}
		d.day, _ = row[0].(string)
		days = append(days, d)
	}
	return days, err
}

// writeDay writes the rows of a day.
func (s *session) writeDay(t *manifest.Table, d day, name string) (manifest.File, error) {
	f := manifest.File{Name: name, Schema: t.Current().Version, Day: d.day, Rows: d.rows, MinTime: d.minTime, MaxTime: d.maxTime}
	for _, deleted := range t.Deletes {
		f.Deleted = deleted.Number
	}
	folder := s.worker.settings.temp()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return f, err
	}
	temp := filepath.Join(folder, filepath.Base(name))
	defer func() { _ = os.Remove(temp) }()
	if err := s.conn.exec(s.copySQL(t, d, temp)); err != nil {
		return f, err
	}
	rows, err := s.conn.run("SELECT count(*) FROM read_parquet(" + literal(temp) + ", hive_partitioning = false)")
	if err != nil {
		return f, err
	}
	if rows[0][0] != d.rows {
		return f, fmt.Errorf("file %s got %v rows instead of %d", name, rows[0][0], d.rows)
	}
	bloom := manifest.BloomName(name)
	written, err := s.writeBloom(t, temp, t.Path(s.worker.settings.Folder, bloom))
	if err != nil {
		return f, err
	}
	if written {
		f.Bloom = bloom
	}
	path := t.Path(s.worker.settings.Folder, name)
	size, err := moveDurably(temp, path)
	f.Bytes = size
	return f, err
}

func (s *session) copySQL(t *manifest.Table, d day, path string) string {
	var columns, ids, order []string
	for _, c := range shown(t.Current()) {
		if c.Type == 0 {
			continue
		}
		columns = append(columns, quote(c.Name))
		ids = append(ids, fmt.Sprintf("%s: %d", quote(c.Name), c.ID))
	}
	for _, name := range sortColumns(t) {
		order = append(order, quote(name))
	}
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM main." + quote(t.Name)
	if d.day != "" {
		sql += " WHERE " + daySQL(t) + " = DATE " + literal(d.day)
	}
	if len(order) > 0 {
		sql += " ORDER BY " + strings.Join(order, ", ")
	}
	return fmt.Sprintf("COPY (%s) TO %s (FORMAT parquet, PARQUET_VERSION V2, COMPRESSION zstd, ROW_GROUP_SIZE %d, DICTIONARY_SIZE_LIMIT %d, FIELD_IDS {%s})", sql, literal(path), s.worker.settings.RowGroup, dictionaryMax, strings.Join(ids, ", "))
}

// sortColumns returns the columns that a table's files are sorted by.
func sortColumns(t *manifest.Table) (names []string) {
	wanted := t.Sort
	if len(wanted) == 0 {
		wanted = []string{t.Event, t.Time}
	}
	for _, name := range wanted {
		for _, c := range t.Current().Columns {
			if name != "" && strings.EqualFold(c.Name, name) && c.Type != 0 {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// moveDurably moves a file to its place, and returns its size once file and name are durable.
func moveDurably(from, to string) (size int64, err error) {
	file, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	if err := durable.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return 0, err
	}
	if err := os.Rename(from, to); err != nil {
		return 0, err
	}
	return info.Size(), durable.SyncDir(filepath.Dir(to))
}

// checkPredicate returns an error unless a predicate can be that of a delete: one
// expression over the columns of a table that has the same result at any time.
func (w *worker) checkPredicate(ctx context.Context, q *checkRequest, in *job) error {
	ctx, stop := withTimeLimit(ctx, 10*time.Second)
	defer stop()
	m, err := w.manifests.load(q.Version)
	if err != nil {
		return err
	}
	t := m.TableByID(q.Table)
	if t == nil {
		return fmt.Errorf("no table %d", q.Table)
	}
	s, err := w.newSession(ctx, memoryDefault)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.createView(t, selection{}); err != nil {
		return err
	}
	if err := s.checkPredicate(t, q.Predicate); err != nil {
		s.failed = true
		return err
	}
	return in.out.writeJSON(doneMessage, outcome{})
}

func (s *session) checkPredicate(t *manifest.Table, predicate string) error {
	begin := "SELECT 1 FROM " + quote(t.Name) + " WHERE "
	sql := begin + predicate
	parsed, err := s.conn.parse(sql)
	if err != nil {
		return err
	}
	if parsed == nil {
		return predicateError(begin, sql, s.conn.exec(sql))
	}
	node := syntaxNode(parsed.tree).child("node")
	if len(parsed.tables) != 1 || node["type"] != "SELECT_NODE" || node["where_clause"] == nil || containsSubquery(node["where_clause"]) || !isBareWhere(node) {
		return &QueryError{Message: "the predicate must be one expression over the columns of " + t.Name, Hint: "for example: user = 7 AND event <> 'signup'"}
	}
	if name := volatileCall(node["where_clause"]); name != "" {
		return &QueryError{Message: "the predicate calls " + name + ", whose result changes", Hint: "use constants: the predicate is applied now and later"}
	}
	if _, err := s.conn.run(sql); err != nil {
		return predicateError(begin, sql, err)
	}
	described, err := s.conn.run("SELECT column_type FROM (DESCRIBE SELECT (" + predicate + "\n) FROM main." + quote(t.Name) + ")")
	if err == nil && described[0][0] != "BOOLEAN" {
		return &QueryError{Message: fmt.Sprintf("the predicate is %v, not BOOLEAN", described[0][0]), Hint: "compare the column with a value"}
	}
	return queryError(err, "")
}

// predicateError puts positions in the whole statement right for the predicate.
func predicateError(begin, sql string, err error) error {
	if err == nil {
		return nil
	}
	err = queryError(err, sql)
	if q, ok := errors.AsType[*QueryError](err); ok && q.Line == 1 {
		q.Column = max(q.Column-len(begin), 1)
	}
	return err
}

// isBareWhere reports whether a SELECT has nothing behind its WHERE.
func isBareWhere(node syntaxNode) bool {
	groups, _ := node["group_expressions"].([]any)
	modifiers, _ := node["modifiers"].([]any)
	return len(groups) == 0 && len(modifiers) == 0 && node["having"] == nil && node["qualify"] == nil && node["sample"] == nil
}

func containsSubquery(node any) bool {
	found := false
	forEachObject(node, func(n syntaxNode) {
		found = found || n["class"] == "SUBQUERY" || n["class"] == "WINDOW" || n["class"] == "PARAMETER"
	})
	return found
}

// volatileFunctions have another result each time.
var volatileFunctions = setOf([]FunctionGroup{{Names: strings.Fields(`now random uuid gen_random_uuid uuidv4 uuidv7 current_date current_time current_timestamp localtime localtimestamp current_localtime
	current_localtimestamp get_current_time get_current_timestamp today transaction_timestamp age`)}})

// volatileCall returns the name of a function below node whose result changes, or "".
func volatileCall(node any) (name string) {
	forEachObject(node, func(n syntaxNode) {
		called := n.text("function_name")
		if names, _ := n["column_names"].([]any); len(names) == 1 { // what SQL calls without parentheses
			called, _ = names[0].(string)
		}
		if called = strings.ToLower(called); volatileFunctions[called] {
			name = called
		}
	})
	return name
}

// forEachObject calls each for all objects of a syntax tree.
func forEachObject(node any, each func(syntaxNode)) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			forEachObject(child, each)
		}
	case map[string]any:
		each(node)
		for _, child := range node {
			forEachObject(child, each)
		}
	}
}
