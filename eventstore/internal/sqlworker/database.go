//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/segment"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A database is an in-memory DuckDB instance with one connection. Each query uses its own,
// with its own memory limit, so that queries cannot take memory from each other. A database
// is reused if its query succeeded: creating one takes milliseconds, and it caches the
// footers of Parquet files. Its views stay too, so a query that reads the same files as the
// previous one reuses its view.
type database struct {
	db     duck.Database
	conn   *duckdb.Conn
	number uint64 // unique in this process
	memory int64
	temp   string
	views  map[string]string // query of each view, by lower-case table name
	scans  map[scanKey]uint64
	files  map[string]bool // Parquet files whose footers DuckDB caches
	seen   uint64          // manifest version that files was last compared with
}

// removedFilesMax is the maximum number of removed files whose footers a database may cache.
// DuckDB frees a footer only with its database; a footer of 100 columns takes some 4 MiB.
const removedFilesMax = 64

// remember records files that the database reads.
func (d *database) remember(folder string, t *manifest.Table, files []*manifest.File) {
	for _, f := range files {
		d.files[t.Path(folder, f.Name)] = true
	}
}

// isOutdated reports whether the database caches footers of too many removed files.
func (d *database) isOutdated(folder string, m *manifest.Manifest) bool {
	if m == nil || m.Version == d.seen || len(d.files) <= removedFilesMax {
		return false
	}
	d.seen = m.Version
	there := 0
	for _, t := range m.Tables {
		for _, f := range t.Files {
			if d.files[t.Path(folder, f.Name)] {
				there++
			}
		}
	}
	return len(d.files)-there > removedFilesMax
}

// A scanKey identifies a scan: one part of a table's view.
type scanKey struct {
	table uint32
	part  int
}

// scanID returns the number of a scan in the database's views. It is stable across queries,
// so that new frames in the log do not change the view.
func (d *database) scanID(table uint32, part int) uint64 {
	key := scanKey{table, part}
	if d.scans[key] == 0 {
		d.scans[key] = logscan.NextID()
	}
	return d.scans[key]
}

// createView creates a table's view, unless an identical one exists.
func (d *database) createView(table, sql string) error {
	name := strings.ToLower(table)
	if d.views[name] == sql {
		return nil
	}
	if err := d.conn.Exec("CREATE OR REPLACE VIEW main." + sqltext.QuoteName(table) + " AS " + sql); err != nil {
		return err
	}
	d.views[name] = sql
	return nil
}

// idleDatabases is the maximum number of idle databases.
const idleDatabases = 2

// databases creates databases and pools idle ones.
type databases struct {
	settings protocol.Settings
	mu       sync.Mutex
	made     int
	making   bool // see prepare
	free     []*database
}

// lockdownSQL denies access to files outside the store's folder, the network, extensions and
// settings. It sets the time zone to UTC: TIMESTAMP columns are in UTC, so now() and date
// arithmetic must be too.
const lockdownSQL = `
ATTACH ':memory:' AS events;
CREATE SCHEMA events.` + statement.SystemSchema + `;
SET GLOBAL TimeZone = 'UTC';
SET GLOBAL enable_external_file_cache = false;
SET GLOBAL autoinstall_known_extensions = false;
SET GLOBAL autoload_known_extensions = false;
SET GLOBAL allow_community_extensions = false;
SET GLOBAL allowed_directories = [%s];
SET GLOBAL allowed_paths = [%s];
SET GLOBAL enable_external_access = false;
`

// rememberSQL caches the footers of Parquet files. Writers do not use it: they read each file
// once.
const rememberSQL = "SET GLOBAL parquet_metadata_cache = true;"

// lockSQL locks the settings. A worker without queries changes some itself.
const lockSQL = "SET GLOBAL lock_configuration = true;"

// searchPathSQL makes the tables of the store visible by their unqualified names.
const searchPathSQL = "SET search_path = 'events.main,events." + statement.SystemSchema + "';"

// take returns a database with the given memory limit.
func (d *databases) take(memory int64) (*database, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settings.Role == protocol.QueryRole {
		defer d.prepare(memory)
	}
	for i, one := range slices.Backward(d.free) { // the last one used has the best cache
		if one.memory == memory {
			d.free = append(d.free[:i], d.free[i+1:]...)
			return one, nil
		}
	}
	return d.make(memory)
}

// prepare creates a database for the next query, unless one is idle. The caller holds d.mu.
func (d *databases) prepare(memory int64) {
	if d.making || len(d.free) > 0 {
		return
	}
	d.making = true
	go func() {
		d.mu.Lock()
		one, err := d.make(memory)
		d.making = false
		d.mu.Unlock()
		if err == nil { // otherwise the next query that needs one reports it
			d.put(one, false)
		}
	}()
}

// make creates a database. The caller holds d.mu, which make releases meanwhile.
func (d *databases) make(memory int64) (*database, error) {
	d.made++
	number := d.made
	d.mu.Unlock()
	defer d.mu.Lock()
	return d.open(memory, number)
}

func (d *databases) open(memory int64, number int) (*database, error) {
	temp := filepath.Join(d.settings.Temp(), strconv.Itoa(number))
	config := map[string]string{
		"memory_limit":            strconv.FormatInt(max(memory>>10, 1), 10) + "KiB",
		"threads":                 strconv.Itoa(d.settings.Threads),
		"temp_directory":          temp,
		"max_temp_directory_size": tempMax,
		// Without background threads, DuckDB's allocator keeps the memory that a
		// thread freed until that thread works again.
		"allocator_background_threads": "true",
		// Rows without an ORDER BY have no defined order, and all threads read the
		// UNION ALL parts. Rows read from a single file keep their order.
		"preserve_insertion_order": strconv.FormatBool(d.settings.File != ""),
	}
	if d.settings.Role != protocol.QueryRole {
		config["threads"] = "1" // preserves the order of rows and holds one row group in memory
	}
	db, err := duckdb.Open(config)
	if err != nil {
		return nil, fmt.Errorf("open DuckDB: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(temp), 0o700); err != nil { // DuckDB creates only the last folder
		duck.Close(&db)
		return nil, err
	}
	one := &database{db: db, number: uint64(number), memory: memory, temp: temp, views: map[string]string{}, scans: map[scanKey]uint64{}, files: map[string]bool{}}
	if one.conn, err = duckdb.Connect(db); err == nil {
		directories := sqltext.Literal(manifest.TablesFolder(d.settings.Folder)+"/") + ", " + sqltext.Literal(d.settings.Temp()+"/")
		file := ""
		if d.settings.File != "" {
			file = sqltext.Literal(d.settings.File)
		}
		if err = registerScript(one.conn.Native); err == nil {
			err = one.conn.Exec(fmt.Sprintf(lockdownSQL, directories, file) + statement.MacrosSQL + functionsSQL(d.settings.Functions, uint64(number)) + searchPathSQL)
		}
		if err == nil {
			err = logscan.Register(one.conn.Native)
		}
		if err == nil && d.settings.Role == protocol.QueryRole {
			err = one.conn.Exec(rememberSQL + lockSQL)
		}
		if err == nil && d.settings.Role == protocol.MergeRole {
			err = segment.RegisterMerge(one.conn.Native)
		}
	}
	if err != nil {
		one.close()
		return nil, fmt.Errorf("open DuckDB: %w", err)
	}
	return one, nil
}

// tempMax is the maximum that one query may spill to disk.
const tempMax = "4GB"

// put returns a database to the pool. It closes the database after a failed query, which may
// have left memory allocated.
func (d *databases) put(one *database, failed bool) {
	d.mu.Lock()
	if failed = failed || len(d.free) >= idleDatabases; !failed {
		d.free = append(d.free, one)
	}
	d.mu.Unlock()
	if failed {
		one.close()
	}
}

func (d *database) close() {
	if d.conn != nil {
		d.conn.Close()
	}
	duck.Close(&d.db)
	_ = os.RemoveAll(d.temp)
}
