//go:build linux && cgo

package sqlworker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// TestSQLStaysInTheStore tries every way to escape with SQL. Each attempt must fail and leave
// no file and no change behind.
func TestSQLStaysInTheStore(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.csv")
	if err := os.WriteFile(secret, []byte("a,b\nTOP,SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 1, storetest.Row(1)))
	f.Seal(1)
	inside := filepath.Join(f.Path, "planted.csv")
	if err := os.WriteFile(inside, []byte("a,b\nTOP,SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	parquet := table.Path(f.Path, table.Files[0].Name)
	before := f.Ask(`SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'`)
	for _, sql := range []string{
		// files, read
		`SELECT * FROM read_csv('SECRET')`, `SELECT * FROM read_csv_auto('SECRET')`, `SELECT * FROM read_text('SECRET')`,
		`SELECT * FROM read_blob('SECRET')`, `SELECT * FROM read_json('SECRET')`, `SELECT * FROM read_parquet('SECRET')`,
		`SELECT * FROM 'SECRET'`, `FROM "SECRET"`, `SELECT * FROM glob('OUTSIDE/*')`, `SELECT * FROM sniff_csv('SECRET')`,
		`SELECT * FROM parquet_metadata('SECRET')`, `SELECT * FROM parquet_schema('SECRET')`,
		`SELECT * FROM parquet_file_metadata('SECRET')`, `SELECT * FROM parquet_kv_metadata('SECRET')`,
		`SELECT * FROM read_ndjson_objects('SECRET')`, `SELECT * FROM read_json_objects('SECRET')`,
		`SELECT * FROM read_csv('/etc/passwd')`, `SELECT * FROM read_text('https://127.0.0.1/x')`, `SELECT * FROM 's3://bucket/x.parquet'`,
		`SELECT * FROM query('SELECT * FROM read_text(''SECRET'')')`, `SELECT * FROM query_table('SECRET')`,
		`WITH x AS (SELECT * FROM read_text('SECRET')) SELECT * FROM x`, `SELECT (SELECT content FROM read_text('SECRET'))`,
		`DESCRIBE SELECT * FROM read_csv('SECRET')`, `SUMMARIZE SELECT * FROM read_csv('SECRET')`, `SUMMARIZE 'SECRET'`, `DESCRIBE 'SECRET'`,
		`SELECT * FROM read_csv('INSIDE')`, `SELECT * FROM 'INSIDE'`, `FROM 'PARQUET'`, `FROM read_parquet('PARQUET')`, `FROM "FOLDER".parquet`, `FROM "FOLDER"."0000000001-0".parquet`,
		`DESCRIBE 'PARQUET'`, `SUMMARIZE 'PARQUET'`, `SELECT * FROM (DESCRIBE 'PARQUET')`, `FROM (PIVOT 'PARQUET' ON event USING count(*))`, `SELECT (FROM 'PARQUET' LIMIT 1)`, `FROM 'FOLDER/*.parquet'`,
		`WITH x AS (FROM 'PARQUET') FROM x`, `SELECT * FROM events JOIN 'PARQUET' USING (id)`, `FROM log_frames(1)`, `FROM events UNION ALL FROM 'PARQUET'`, `SELECT COLUMNS(*) FROM 'PARQUET'`,
		// files, written
		`COPY (SELECT 1) TO 'OUTSIDE/copy.csv'`, `COPY events FROM 'SECRET'`, `COPY (SELECT 1) TO 'INSIDE'`,
		`EXPORT DATABASE 'OUTSIDE/export'`, `IMPORT DATABASE 'OUTSIDE'`, `PRAGMA import_database('OUTSIDE')`,
		`EXPLAIN ANALYZE COPY (SELECT 1) TO 'OUTSIDE/explain.csv'`,
		`SELECT write_log('x')`, `CALL enable_logging(storage_path := 'OUTSIDE/log')`, `SELECT * FROM enable_logging(storage_path := 'OUTSIDE/log')`,
		// other databases and extensions
		`ATTACH 'OUTSIDE/new.db'`, `ATTACH ':memory:' AS other`, `DETACH events`, `USE memory`, `INSTALL httpfs`, `LOAD httpfs`, `LOAD 'SECRET'`,
		`FORCE INSTALL httpfs`, `UPDATE EXTENSIONS`, `CREATE SECRET (TYPE s3)`, `COPY FROM DATABASE events TO memory`,
		// settings
		`SET enable_external_access = true`, `SET GLOBAL memory_limit = '1TB'`, `RESET memory_limit`, `PRAGMA memory_limit = '1TB'`,
		`PRAGMA enable_external_access = true`, `SET lock_configuration = false`, `SET VARIABLE x = 1`, `PRAGMA enable_profiling`,
		`PRAGMA profiling_output = 'OUTSIDE/profile'`, `SET temp_directory = 'OUTSIDE'`,
		// changes
		`CREATE TABLE mine (a INT)`, `CREATE TEMP TABLE mine (a INT)`, `CREATE VIEW mine AS SELECT 1`, `CREATE MACRO f() AS 1`, `CREATE SEQUENCE q`,
		`INSERT INTO events VALUES (1)`, `INSERT INTO events VALUES (2, NULL)`, `DELETE FROM events`, `UPDATE events SET id = 3`,
		`DROP VIEW events`, `DROP TABLE events`, `TRUNCATE events`, `ALTER TABLE events ADD COLUMN b INT`, `DELETE FROM events`,
		`MERGE INTO events USING (SELECT 1 AS id) x ON true WHEN MATCHED THEN DELETE`,
		`EXPLAIN ANALYZE INSERT INTO events VALUES (2, NULL)`, `EXPLAIN ANALYZE DELETE FROM events`, `EXPLAIN ANALYZE CREATE TABLE mine (a INT)`,
		`WITH x AS (SELECT 1) INSERT INTO events SELECT 2, NULL`, `PREPARE x AS SELECT 1`, `EXECUTE x`, `DEALLOCATE x`,
		`CHECKPOINT`, `FORCE CHECKPOINT`, `VACUUM`, `ANALYZE`, `CALL force_checkpoint()`, `COMMENT ON VIEW events IS 'x'`,
		// transactions and more than one statement
		`BEGIN`, `COMMIT`, `ROLLBACK`, `SELECT 1; SELECT 2`, `COMMIT; DROP VIEW events`, `SELECT 1; COMMIT; DELETE FROM events`,
		// functions that do more than read
		`SELECT * FROM system.main.enable_logging()`, `SELECT * FROM "Enable_Logging"()`, `EXPLAIN ANALYZE SELECT * FROM enable_logging(storage_path := 'OUTSIDE/log')`,
		`EXPLAIN /**/ SELECT * FROM enable_logging(storage_path := 'OUTSIDE/log')`, `SELECT * FROM checkpoint()`, `SELECT * FROM force_checkpoint()`,
		`WITH x AS (SELECT * FROM disable_logging()) SELECT 1`, `SELECT (SELECT 1 FROM truncate_duckdb_logs())`, `SELECT 1 WHERE EXISTS (FROM duckdb_logs())`,
		`SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM checkpoint()'))`, `SELECT * FROM query('SELECT 1')`,
		`SELECT * FROM arrow_scan(1, 1, 1)`, `DESCRIBE FROM checkpoint()`, `SELECT system.main.write_log('x')`, `SELECT 'x'.write_log()`,
		// the rest
		``, `;`, `-- nothing`, `SELECT ?`, `SELECT $name`, `SELECT getenv('HOME')`, `.tables`,
	} {
		sql = strings.NewReplacer("SECRET", secret, "OUTSIDE", outside, "INSIDE", inside, "PARQUET", parquet, "FOLDER", filepath.Dir(parquet)).Replace(sql)
		if got, err := storetest.Read(f.Query(t.Context(), sql)); err == nil {
			t.Errorf("%s was answered: %s", sql, got)
		} else if testing.Verbose() {
			t.Logf("%s: %v", sql, err)
		}
	}
	f.Want(`SELECT id FROM events`, "1")
	f.Want(`SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'`, before)
	if files, _ := os.ReadDir(outside); len(files) != 1 {
		t.Errorf("files were written: %v", files)
	}
}

func TestStatementsThatRead(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 1, storetest.Row(1)))
	for _, sql := range []string{
		`SELECT 1`, `FROM events`, `WITH x AS (SELECT 1) SELECT * FROM x`, `VALUES (1), (2)`, `TABLE events`, `SELECT 1;`, `SELECT 1 -- done`,
		`DESCRIBE events`, `DESCRIBE SELECT 1`, `SHOW TABLES`, `SHOW ALL TABLES`, `SUMMARIZE events`, `EXPLAIN SELECT 1`, `EXPLAIN ANALYZE SELECT * FROM events`,
		`SELECT * FROM (PIVOT events ON event IN ('x') USING count(*))`, `explain (analyze, format json) select 1`,
		`SELECT * FROM events WHERE id IN (SELECT id FROM events) ORDER BY ALL LIMIT 1`,
		`WITH events AS (SELECT 1 AS id) SELECT * FROM events`, `SELECT * FROM main.events`, `SELECT * FROM events.events`, `SELECT * FROM events.main.events`, `SELECT table_name FROM information_schema.tables`, `SELECT * FROM duckdb_views() LIMIT 1`,
		`SELECT e.id FROM events e, LATERAL (SELECT e.id + 1) x`, `SELECT * FROM events AS "a.b"`, `FROM range(3)`, `SELECT * FROM unnest([1, 2])`,
	} {
		if got := f.Ask(sql); got == "" {
			t.Errorf("%s has no answer", sql)
		}
	}
}
