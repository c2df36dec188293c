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
	"sync/atomic"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A database is an instance of DuckDB, in memory, with one connection. A query has one for
// itself, with its own memory limit, so that none takes what another needs; one that worked
// without an error is used again, because it takes milliseconds to make one and it remembers
// the footers of Parquet files. Its views stay too: a query that reads the same files as the
// one before finds its view.
type database struct {
	db     duck.Database
	conn   *duckdb.Conn
	number uint64 // of this process
	memory int64
	temp   string
	views  map[string]string // the query of each view, by the table's lower-case name
	scans  map[scanKey]uint64
	files  map[string]bool // paths of Parquet files whose footers DuckDB remembers
	seen   uint64          // version of the manifest that files were compared with
}

// removedFilesMax is how many removed files a database may remember the footers of. DuckDB lets go
// of a footer with its database only; with one of 100 columns, that is some 4 MiB.
const removedFilesMax = 64

// remember notes files that the database reads.
func (d *database) remember(folder string, t *manifest.Table, files []*manifest.File) {
	for _, f := range files {
		d.files[t.Path(folder, f.Name)] = true
	}
}

// isOutdated reports whether the database remembers many files that the store has no more.
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

// A scanKey names what a scan shows: one part of a table's view.
type scanKey struct {
	table uint32
	part  int
}

// scansNumbered counts the numbers of scans that were given out.
var scansNumbered atomic.Uint64

// scanID returns the number of a scan in the database's views. It is the same for each query,
// so that new frames in the log do not change the view.
func (d *database) scanID(table uint32, part int) uint64 {
	key := scanKey{table, part}
	if d.scans[key] == 0 {
		d.scans[key] = scansNumbered.Add(1)
	}
	return d.scans[key]
}

// createView makes a view of a table, unless it is there.
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

// idleDatabases is how many databases wait for a query.
const idleDatabases = 2

// databases makes databases and keeps those that are free.
type databases struct {
	settings protocol.Settings
	mu       sync.Mutex
	made     int
	making   bool // see prepare
	free     []*database
}

// lockdownSQL closes a database to files outside the store's folder, to the network, to
// extensions and to settings. Columns of type TIMESTAMP are UTC, and so must now() and the
// arithmetic of dates be.
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

// rememberSQL keeps the footers of Parquet files. One who writes files reads each once.
const rememberSQL = "SET GLOBAL parquet_metadata_cache = true;"

// lockSQL keeps the settings as they are. A worker without queries sets some by itself.
const lockSQL = "SET GLOBAL lock_configuration = true;"

// searchPathSQL lets a connection find the tables of the store by their names.
const searchPathSQL = "SET search_path = 'events.main,events." + statement.SystemSchema + "';"

// take returns a database with a memory limit.
func (d *databases) take(memory int64) (*database, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settings.Role == protocol.QueryRole {
		defer d.prepare(memory)
	}
	for i, one := range slices.Backward(d.free) { // the last one used knows most of what is wanted
		if one.memory == memory {
			d.free = append(d.free[:i], d.free[i+1:]...)
			return one, nil
		}
	}
	return d.make(memory)
}

// prepare makes a database for the query to come, if none is free. The caller holds d.mu.
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

// make makes a database. The caller holds d.mu, which is released meanwhile.
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
		// Without them, DuckDB's own allocator keeps what a thread has freed until that
		// thread works again.
		"allocator_background_threads": "true",
		// Rows that no ORDER BY sorts have no order, and their parts, each of which is a part of
		// a UNION ALL, are read by all threads. What is read out of a file has one.
		"preserve_insertion_order": strconv.FormatBool(d.settings.File != ""),
	}
	if d.settings.Role != protocol.QueryRole {
		config["threads"] = "1" // keeps the order of rows, and has one row group in memory
	}
	db, err := duckdb.Open(config)
	if err != nil {
		return nil, fmt.Errorf("open DuckDB: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(temp), 0o700); err != nil { // DuckDB makes the last folder only
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
			err = registerScans(one.conn.Native)
		}
		if err == nil && d.settings.Role == protocol.QueryRole {
			err = one.conn.Exec(rememberSQL + lockSQL)
		}
		if err == nil && d.settings.Role == protocol.MergeRole {
			err = registerMerge(one.conn.Native)
		}
	}
	if err != nil {
		one.close()
		return nil, fmt.Errorf("open DuckDB: %w", err)
	}
	return one, nil
}

// tempMax is what one query may spill to disk.
const tempMax = "4GB"

// put takes a database back. One whose query failed may hold memory, and goes.
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
