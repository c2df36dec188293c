//go:build linux && cgo

package eventstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSQLStaysInTheStore tries every way to escape with SQL. Each attempt must fail and leave
// no file and no change behind.
func TestSQLStaysInTheStore(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.csv")
	if err := os.WriteFile(secret, []byte("a,b\nTOP,SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1}`)
	inside := filepath.Join(s.folder, "planted.csv")
	if err := os.WriteFile(inside, []byte("a,b\nTOP,SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := ask(t, s, `SELECT count(*) FROM duckdb_settings() WHERE name = 'memory_limit'`)

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
		`SELECT * FROM read_csv('INSIDE')`, `SELECT * FROM 'INSIDE'`,
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
		`INSERT INTO events VALUES (1)`, `INSERT INTO segment.s1 VALUES (2, NULL)`, `DELETE FROM segment.s1`, `UPDATE segment.s1 SET id = 3`,
		`DROP VIEW events`, `DROP TABLE segment.s1`, `TRUNCATE segment.s1`, `ALTER TABLE segment.s1 ADD COLUMN b INT`, `DELETE FROM perigee.ranges`,
		`MERGE INTO segment.s1 USING (SELECT 1 AS id) x ON true WHEN MATCHED THEN DELETE`,
		`EXPLAIN ANALYZE INSERT INTO segment.s1 VALUES (2, NULL)`, `EXPLAIN ANALYZE DELETE FROM segment.s1`, `EXPLAIN ANALYZE CREATE TABLE mine (a INT)`,
		`WITH x AS (SELECT 1) INSERT INTO segment.s1 SELECT 2, NULL`, `PREPARE x AS SELECT 1`, `EXECUTE x`, `DEALLOCATE x`,
		`CHECKPOINT`, `FORCE CHECKPOINT`, `VACUUM`, `ANALYZE`, `CALL force_checkpoint()`, `COMMENT ON VIEW events IS 'x'`,
		// transactions and more than one statement
		`BEGIN`, `COMMIT`, `ROLLBACK`, `SELECT 1; SELECT 2`, `COMMIT; DROP VIEW events`, `SELECT 1; COMMIT; DELETE FROM segment.s1`,
		// functions that do more than read
		`SELECT * FROM system.main.enable_logging()`, `SELECT * FROM "Enable_Logging"()`, `EXPLAIN ANALYZE SELECT * FROM enable_logging(storage_path := 'OUTSIDE/log')`,
		`EXPLAIN /**/ SELECT * FROM enable_logging(storage_path := 'OUTSIDE/log')`, `SELECT * FROM checkpoint()`, `SELECT * FROM force_checkpoint()`,
		`WITH x AS (SELECT * FROM disable_logging()) SELECT 1`, `SELECT (SELECT 1 FROM truncate_duckdb_logs())`, `SELECT 1 WHERE EXISTS (FROM duckdb_logs())`,
		`SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM checkpoint()'))`, `SELECT * FROM query('SELECT 1')`,
		`SELECT * FROM arrow_scan(1, 1, 1)`, `DESCRIBE FROM checkpoint()`, `SELECT system.main.write_log('x')`, `SELECT 'x'.write_log()`,
		// the rest
		``, `;`, `-- nothing`, `SELECT ?`, `SELECT $name`, `SELECT getenv('HOME')`, `.tables`,
	} {
		sql = strings.NewReplacer("SECRET", secret, "OUTSIDE", outside, "INSIDE", inside).Replace(sql)
		rows, err := s.Query(context.Background(), sql)
		if err == nil {
			for rows.Next() {
				t.Logf("%s: %v", sql, rows.Row())
			}
			err = rows.Err()
			rows.Close()
		}
		if err == nil {
			t.Errorf("%s was answered", sql)
		} else if testing.Verbose() {
			t.Logf("%s: %v", sql, err)
		}
	}
	if got := ask(t, s, `SELECT id FROM events`); got != "1" {
		t.Errorf("the table has changed: %q", got)
	}
	if got := ask(t, s, `SELECT count(*) FROM duckdb_settings() WHERE name = 'memory_limit'`); got != before {
		t.Errorf("settings have changed: %q", got)
	}
	if files, _ := os.ReadDir(outside); len(files) != 1 {
		t.Errorf("files were written: %v", files)
	}
	appendDocs(t, p, 1, `{"id":2}`)
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "2" {
		t.Errorf("the table takes no more rows: %q", got)
	}
}

func TestStatementsThatRead(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1,"name":"x"}`)
	for _, sql := range []string{
		`SELECT 1`, `FROM events`, `WITH x AS (SELECT 1) SELECT * FROM x`, `VALUES (1), (2)`, `TABLE events`, `SELECT 1;`, `SELECT 1 -- done`,
		`DESCRIBE events`, `DESCRIBE SELECT 1`, `SHOW TABLES`, `SHOW ALL TABLES`, `SUMMARIZE events`, `EXPLAIN SELECT 1`, `EXPLAIN ANALYZE SELECT * FROM events`,
		`SELECT * FROM (PIVOT events ON name IN ('x') USING count(*))`, `explain (analyze, format json) select 1`,
		`SELECT * FROM events WHERE id IN (SELECT id FROM events) ORDER BY ALL LIMIT 1`,
	} {
		if got := ask(t, s, sql); got == "" {
			t.Errorf("%s has no answer", sql)
		}
	}
}
