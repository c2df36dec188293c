//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/publishing"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
)

// lakeConfig returns the configuration of a table with every type in a lake below folder.
func lakeConfig(folder string) TableConfig {
	column := func(name string, kind event.Type) event.Column {
		return event.Column{Name: name, Path: []string{name}, Type: kind}
	}
	exact := column("exact", event.Decimal)
	exact.Digits = event.Digits{Precision: 18, Scale: 2}
	return TableConfig{
		Time: "moment", TimeUnit: event.Nanoseconds, Event: "kind", Retention: 100 * 365 * 24 * time.Hour,
		Columns: []event.Column{
			column("kind", event.String), column("flag", event.Bool), column("small", event.Int32), column("id", event.Int64), column("amount", event.Float64), column("text", event.String),
			column("seen", event.Timestamp), exact, column("raw", event.Bytes), column("data", event.JSON), column("twice", event.Int64),
		},
		Unknown: catalog.KeepUnknown,
		Lake:    &catalog.Lake{Warehouse: filepath.Join(folder, "warehouse"), Catalog: "sqlite://" + filepath.Join(folder, "catalog.db"), Table: "test.events"},
	}
}

// lakeDocs returns documents for lakeConfig. Fields are often null or missing.
func lakeDocs(r *rand.Rand, first, n int) (docs []string) {
	for i := range n {
		id := first + i
		at := time.Date(2026, 11, 22+id%3, 0, 0, 0, 0, time.UTC).UnixNano() + r.Int64N(86_400_000_000_000)
		if id == 0 {
			at = -1 // before 1970, by less than a microsecond
		}
		fields := []string{fmt.Sprintf(`"id":%d,"moment":%d,"kind":"k%d"`, id, at, r.IntN(4))}
		for _, field := range []string{
			fmt.Sprintf(`"flag":%v`, r.IntN(2) == 0), fmt.Sprintf(`"small":%d`, r.Int32()-1<<30), fmt.Sprintf(`"amount":%g`, float64(r.IntN(2000)-1000)/8),
			`"amount":-0.0`, fmt.Sprintf(`"text":"text %d é\n"`, r.IntN(20)), `"text":""`, fmt.Sprintf(`"seen":"2026-11-23T00:00:%02d.%06dZ"`, r.IntN(60), r.IntN(1e6)),
			fmt.Sprintf(`"exact":%d.%02d`, r.IntN(2000)-1000, r.IntN(100)), `"raw":"AP8q"`, fmt.Sprintf(`"data":{"a":[%d,null],"b":"x"}`, r.IntN(9)), fmt.Sprintf(`"other":{"c":%d}`, r.IntN(9)),
		} {
			if r.IntN(3) > 0 && !slices.ContainsFunc(fields, func(have string) bool { return strings.HasPrefix(have, field[:strings.Index(field, ":")]) }) {
				fields = append(fields, field)
			}
		}
		docs = append(docs, "{"+strings.Join(fields, ",")+"}")
	}
	return docs
}

// lakePredicates returns conditions that SQL engines agree on.
func lakePredicates(r *rand.Rand, n int) (all []string) {
	for range n {
		operator := []string{"=", "<", ">", "<=", ">=", "<>"}[r.IntN(6)]
		day := fmt.Sprintf("TIMESTAMP '2026-11-%02d %02d:00:00+00:00'", 22+r.IntN(3), r.IntN(24))
		one := []string{
			"id " + operator + fmt.Sprintf(" %d", r.IntN(400)), "amount " + operator + fmt.Sprintf(" %g", float64(r.IntN(40)-20)/4), "kind " + operator + fmt.Sprintf(" 'k%d'", r.IntN(5)),
			"moment " + []string{"<", ">="}[r.IntN(2)] + " " + day, "text IS NULL", "text = ''", "small " + operator + fmt.Sprintf(" %d", r.Int32()-1<<30), "flag IS NOT NULL", "amount " + operator + " 0.0",
			fmt.Sprintf("kind IN ('k%d', 'k3')", r.IntN(3)), "moment_ns > 0",
		}
		sql := one[r.IntN(len(one))]
		if r.IntN(2) == 0 {
			sql += []string{" AND ", " OR "}[r.IntN(2)] + one[r.IntN(len(one))]
		}
		all = append(all, sql)
	}
	return all
}

// readByEngine reads the table of a lake at location with an engine of tools/lake/engines.py, and
// returns how it differs from the truth in a file, or "".
func readByEngine(engine, truth, location string) (differences string) {
	name, _, _ := strings.Cut(engine, "=")
	python := os.Getenv("PERIGEE_LAKE_PYTHON")
	if name == "spark" { // whose package has the names of Sail's client
		python = os.Getenv("PERIGEE_LAKE_SPARK_PYTHON")
	}
	out, err := exec.Command(python, "../tools/lake/engines.py", truth, location, engine).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	switch last := lines[len(lines)-1]; {
	case err != nil:
		return fmt.Sprintf("%v: %s", err, out)
	case last != name+" agree":
		return last
	}
	return ""
}

// startLakeServer starts S3 with a REST catalog, to which the environment leads then, and returns
// the place of a table there.
func startLakeServer(t *testing.T, folder string) (*testserver.S3Server, catalog.Lake) {
	t.Helper()
	server, err := testserver.StartS3(t.Context(), folder)
	if err == nil {
		err = server.CreateTableBucket(t.Context(), "tables")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() }) // its orderly end takes 20 s
	for key, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.Endpoint(), "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": testserver.S3AccessKey, "AWS_SECRET_ACCESS_KEY": testserver.S3SecretKey,
		"AWS_ALLOW_HTTP": "true", "PERIGEE_LAKE_TOKEN": testserver.S3AccessKey + ":" + testserver.S3SecretKey,
	} {
		t.Setenv(key, value)
	}
	return server, catalog.Lake{Warehouse: "s3://tables", Catalog: server.Catalog(), Table: "test.events"}
}

// agreement counts what engines see of tables.
type agreement struct {
	engines map[string]bool
	wrong   int
}

// TestLakeEngines publishes a table with every type, in a folder and in S3, while its files are
// merged, rows deleted and columns added, and reads it by several engines. make test-lake and make
// test-lake-engines run it.
func TestLakeEngines(t *testing.T) {
	useCommitter(t)
	engines := os.Getenv("PERIGEE_LAKE_ENGINES")
	if engines == "" {
		t.Skip("needs PERIGEE_LAKE_ENGINES: make test-lake")
	}
	all := &agreement{engines: map[string]bool{}}
	t.Run("folder", func(t *testing.T) {
		folder := t.TempDir()
		config := lakeConfig(folder)
		all.readWhileItChanges(t, config, filepath.Join(config.Lake.Warehouse, "test.db", "events"), strings.Fields(engines))
	})
	if os.Getenv("PERIGEE_SEAWEEDFS") != "" {
		t.Run("S3", func(t *testing.T) {
			config := lakeConfig("")
			_, settings := startLakeServer(t, filepath.Join(t.TempDir(), "s3"))
			config.Lake = &settings
			withoutJVM := slices.DeleteFunc(strings.Fields(engines), func(engine string) bool { return strings.Contains(engine, "=") })
			all.readWhileItChanges(t, config, strings.Join([]string{settings.Catalog, settings.Warehouse, settings.Table}, "#"), withoutJVM)
		})
	}
	count := 0
	for _, yes := range all.engines {
		if yes {
			count++
		}
	}
	fmt.Printf("figure lake_engines_agreeing %d\nfigure lake_predicates_wrong %d\n", count, all.wrong)
}

func (all *agreement) readWhileItChanges(t *testing.T, config TableConfig, location string, engines []string) {
	t.Helper()
	r := testseed.New(t)
	folder := t.TempDir()
	s := openStore(t, filepath.Join(folder, "store"))
	p := take(t, openTable(t, s, config))
	next := 0
	grow := func(n int) {
		t.Helper()
		appendDocs(t, p, uint64(next), lakeDocs(r, next, n)...)
		next += n
		seal(t, s)
	}
	publish := func(at time.Duration) {
		t.Helper()
		if err := s.publish(t.Context(), time.Now().Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(what string, predicates int) {
		t.Helper()
		path := filepath.Join(folder, "truth.json")
		writeTruth(t, s, path, lakePredicates(r, predicates))
		for _, engine := range engines {
			name, _, _ := strings.Cut(engine, "=")
			_, seen := all.engines[name]
			differences := readByEngine(engine, path, location)
			if differences != "" {
				t.Errorf("%s: %s", what, differences)
				all.wrong += strings.Count(differences, ";") + 1
			}
			all.engines[name] = differences == "" && (all.engines[name] || !seen)
		}
	}
	settle := func() { // until nothing is left to rewrite or to merge
		t.Helper()
		wake(s.compactor)
		waitUntil(t, s, func() bool {
			s.compacting.Lock()
			defer s.compacting.Unlock()
			m := s.current().Table("events")
			return s.nextMerge(m, time.Now()) == nil && len(publishing.NeedRewrite(m)) == 0
		})
	}
	grow(150)
	publish(time.Hour)
	compare("published", 40)
	for range mergeMin + 1 {
		grow(40)
		publish(time.Hour)
	}
	settle()
	publish(time.Hour) // nothing: the lake has the rows of merged files
	compare("merged", 40)
	d, err := s.Delete(t.Context(), "events", "kind = 'k1' OR id = 7")
	if err == nil {
		err = s.WaitDeleted(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	publish(time.Hour)
	compare("rows deleted", 40)
	publish(24 * time.Hour) // merged files replace those of the lake
	compare("days merged", 40)
	s.SetComputed([]ComputedColumn{times("twice", "1", 2)})
	startRecompute(t, s, "twice")
	recomputed(t, s, "twice")
	config.Retention = time.Since(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC))
	openTable(t, s, config)
	before := len(filesOf(s))
	if err := s.removeOldFiles(time.Now()); err != nil || len(filesOf(s)) >= before {
		t.Fatalf("retention left %d of %d files (%v)", len(filesOf(s)), before, err)
	}
	settle()
	publish(24 * time.Hour)
	compare("a column computed, a day expired", 40)
}

// writeTruth writes what an engine must see of the table events, with its numeric columns besides
// those of lakeConfig; see tools/lake/engines.py.
func writeTruth(t *testing.T, s *Store, path string, predicates []string) {
	t.Helper()
	truth := struct {
		Columns  []string         `json:"columns"`
		Times    []string         `json:"times"`
		Bytes    []string         `json:"bytes"`
		Decimals map[string]int   `json:"decimals"`
		Rows     [][]any          `json:"rows"`
		Where    []map[string]any `json:"where"`
	}{Columns: []string{"id", "moment", "moment_ns", "kind", "flag", "small", "amount", "text", "seen", "exact", "raw", "data", "twice", "_rest"},
		Times: []string{"moment", "seen"}, Bytes: []string{"raw"}, Decimals: map[string]int{"exact": 2}}
	more, rest, schema := "", "NULL", s.current().Table("events").Current()
	if schema.Rest {
		rest = "CAST(_rest AS VARCHAR)"
	}
	for _, c := range schema.Columns {
		if !slices.Contains(truth.Columns, c.Name) && (c.Type == event.Int64 || c.Type == event.Float64) {
			truth.Columns = append(truth.Columns, c.Name)
			more += ", " + c.Name
		}
	}
	rows := func(sql string) (all []map[string]any) {
		t.Helper()
		result, err := s.Execute(t.Context(), Statement{SQL: sql, Format: FormatNDJSON})
		if err != nil {
			t.Fatal(err)
		}
		defer result.Close()
		var text strings.Builder
		if err := output.Write(&text, result); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			one := map[string]any{}
			decoder := json.NewDecoder(strings.NewReader(line))
			decoder.UseNumber()
			if err := decoder.Decode(&one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		return all
	}
	for _, row := range rows(`SELECT id, (epoch_ns(moment) - ((epoch_ns(moment) % 1000) + 1000) % 1000) // 1000 AS moment, epoch_ns(moment) AS moment_ns, kind, flag, small, amount, text, epoch_us(seen) AS seen,
		CAST(exact AS VARCHAR) AS exact, lower(hex(raw)) AS raw, CAST(data AS VARCHAR) AS data, twice, ` + rest + ` AS _rest` + more + ` FROM events`) {
		values := []any{}
		for _, c := range truth.Columns {
			values = append(values, row[c])
		}
		truth.Rows = append(truth.Rows, values)
	}
	for _, sql := range predicates {
		ids := []any{}
		for _, row := range rows("SELECT id FROM (SELECT * EXCLUDE (moment), CAST(moment AS TIMESTAMP) AS moment, epoch_ns(moment) AS moment_ns FROM events) WHERE " + strings.ReplaceAll(sql, "+00:00", "") + " ORDER BY id") {
			ids = append(ids, row["id"])
		}
		truth.Where = append(truth.Where, map[string]any{"sql": sql, "ids": ids})
	}
	text, err := json.Marshal(truth)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLakeCompactedBySpark lets Spark rewrite the files of a lake and expire its snapshots between
// commits. The files of Spark must stay, and no row may be added again.
func TestLakeCompactedBySpark(t *testing.T) {
	useCommitter(t)
	jar := os.Getenv("PERIGEE_LAKE_ICEBERG")
	if jar == "" {
		t.Skip("needs PERIGEE_LAKE_ICEBERG, a jar of Iceberg for Spark: make crash-lake")
	}
	r := testseed.New(t)
	folder := t.TempDir()
	s := openStore(t, filepath.Join(folder, "store"))
	config := lakeConfig(folder)
	config.Lake.Catalog = "" // the folder, which Spark knows as a catalog too
	p := take(t, openTable(t, s, config))
	next := 0
	grow := func(files int) {
		t.Helper()
		for range files {
			appendDocs(t, p, uint64(next), lakeDocs(r, next, 40)...)
			next += 40
			seal(t, s)
		}
		if err := s.publish(t.Context(), time.Now().Add(48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	truth := filepath.Join(folder, "truth.json")
	for round := range 3 {
		grow(2 + r.IntN(4))
		out, err := exec.Command(os.Getenv("PERIGEE_LAKE_SPARK_PYTHON"), "../tools/lake/compact.py", jar, config.Lake.Warehouse, config.Lake.Table).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "rewritten ") || strings.Contains(string(out), "rewritten 0") {
			t.Fatalf("Spark says %s (%v)", out, err)
		}
		grow(2 + r.IntN(4))
		s.compacting.Lock() // as the compactor does
		err = s.mergeUnlessChanged(t.Context())
		s.compacting.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		grow(1)
		writeTruth(t, s, truth, lakePredicates(r, 5))
		for _, engine := range []string{"sail", "duckdb"} {
			if differences := readByEngine(engine, truth, filepath.Join(config.Lake.Warehouse, "test", "events")); differences != "" {
				t.Errorf("round %d: %s", round+1, differences)
			}
		}
	}
}

// TestLakeOfTwoTables refuses to publish two tables as one, and keeps the lake table of a table that
// is renamed.
func TestLakeOfTwoTables(t *testing.T) {
	useCommitter(t)
	folder := t.TempDir()
	config := localConfig(folder)
	config.Lake.Table = "" // perigee.events
	s, want := newLocalIn(t, filepath.Join(folder, "store"), config, 0, 3000)
	if err := s.RenameTable(t.Context(), "events", "mails", true); err != nil {
		t.Fatal(err)
	}
	openTableNamed := func(name, lakeTable string) error {
		c := localConfig(folder)
		c.Lake.Table = lakeTable
		_, err := s.Table(name, c)
		return err
	}
	if err := openTableNamed("mails", ""); err != nil {
		t.Fatal(err)
	}
	if got := s.current().Table("mails").Lake.Table; got != "perigee.events" {
		t.Errorf("the renamed table is published as %s, want perigee.events", got)
	}
	if err := s.publish(t.Context(), time.Now().Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, strings.ReplaceAll(sumIDs, "events", "mails")); got != want {
		t.Errorf("the sum is %s, want %s", got, want)
	}
	for _, name := range []string{"", "perigee.events", "Perigee.Events"} {
		if err := openTableNamed("events", name); err == nil || !strings.Contains(err.Error(), "would both be published as") {
			t.Errorf("a second table as %q: got %v, want a refusal", name, err)
		}
	}
	if err := openTableNamed("events", "perigee.others"); err != nil {
		t.Fatal(err)
	}
	if err := openTableNamed("events", "perigee.events"); err == nil {
		t.Error("a table may move to the lake table of another one, want a refusal")
	}

	// When it is free, the other table publishes all its rows there.
	config.Lake.Table = "perigee.others"
	appendDocs(t, take(t, openTable(t, s, config)), 0, lakeDocs(testseed.New(t), 0, 100)...)
	seal(t, s)
	if err := openTableNamed("mails", "perigee.moved"); err != nil {
		t.Fatal(err)
	}
	if err := openTableNamed("events", "perigee.events"); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, s, func() bool { // mails takes its data back, and tells that it is elsewhere
		_ = s.publish(t.Context(), time.Now().Add(48*time.Hour))
		return !slices.ContainsFunc(s.LakeStates(), func(l catalog.LakeState) bool { return l.Error != "" || l.Committed.IsZero() || l.WaitingFiles > 0 })
	})
	for _, state := range s.LakeStates() {
		if state.Gone > 0 {
			t.Errorf("after the move, %d files of table %s count as rewritten by another engine, want none", state.Gone, state.Table)
		}
	}
}

// publishLater publishes as a store does once files are due.
func publishLater(ctx context.Context, s *Store) error {
	return s.publish(ctx, time.Now().Add(time.Hour))
}

// TestLakeTableDropped drops a table and makes it again, as an engine does that declares it. The rows of the
// former table must stay in the lake, and the log must name the delete that waits there.
func TestLakeTableDropped(t *testing.T) {
	useCommitter(t)
	s := openStore(t, t.TempDir())
	var log bytes.Buffer
	s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	config := TableConfig{Lake: &catalog.Lake{Warehouse: t.TempDir(), Table: "test.events"}}
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"id":1}`, `{"id":2}`)
	seal(t, s)
	if err := publishLater(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d, err := s.Delete(t.Context(), "events", "id = 1")
	if err == nil {
		err = s.WaitDeleted(t.Context(), d)
	}
	if err == nil {
		err = publishLater(t.Context(), s)
	}
	if err == nil {
		err = s.DropTable(t.Context(), "events")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "deletes of the table are not carried out in the lake table that it had") {
		t.Errorf("the log does not name the delete that waits: %s", log.String())
	}
	p = take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"id":3}`)
	seal(t, s)
	if err := publishLater(t.Context(), s); err == nil || !strings.Contains(err.Error(), "has rows of a table that this store has dropped") {
		t.Errorf("publishing where the dropped table was: %v, want an error", err)
	}
	if state := s.LakeStates()[0]; state.Error == "" || !strings.Contains(state.Hint, "PURGE") {
		t.Errorf("the state is %+v, want an error with a hint", state)
	}
}

// TestLakeLeftWhileDeleting gives a table another lake before a delete has reached the former one.
func TestLakeLeftWhileDeleting(t *testing.T) {
	useCommitter(t)
	s := openStore(t, t.TempDir())
	var log bytes.Buffer
	s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	config := TableConfig{Columns: []event.Column{{Name: "id", Path: []string{"id"}, Type: event.Int64}}, Lake: &catalog.Lake{Warehouse: t.TempDir(), Table: "test.events"}}
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"id":1}`, `{"id":2}`)
	seal(t, s)
	if err := publishLater(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.rewriting.Lock() // the rewrite takes long
	d, err := s.Delete(t.Context(), "events", "id = 1")
	if err != nil {
		t.Fatal(err)
	}
	former := config.Lake.Warehouse
	config.Lake = &catalog.Lake{Warehouse: t.TempDir(), Table: "test.events"}
	openTable(t, s, config)
	s.rewriting.Unlock()
	if err := s.WaitDeleted(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), former) {
		t.Errorf("the log does not name the former lake %s: %s", former, log.String())
	}
}
