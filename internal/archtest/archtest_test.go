// Package archtest checks the structure of the repository: which package imports which,
// which packages use cgo, and which words and files do not belong in it. It parses the
// files itself, so that a cached test result never hides a new import.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/perigeedb/perigee/"
)

// may lists which packages of this module each package may import. Dependencies point
// inward, to event. A new package needs a row, and an entry that no file uses fails the
// test. Test files may import more: the suites and the test servers.
var may = map[string][]string{
	"event":        {},
	"event/ledger": {"event"},

	"source":          {"event", "source/format"},
	"source/format":   {"event"},
	"source/file":     {"event", "source", "source/format", "internal/decompress"},
	"source/generate": {"event", "source"},
	"source/kafka":    {"event", "source", "source/format", "internal/kafka"},
	"source/nats":     {"event", "source", "source/format", "internal/address"},
	"source/redis":    {"event", "source", "source/format", "internal/resp"},
	"source/http":     {"event", "source", "source/format", "internal/httpserver", "internal/spool", "internal/document/pure"},

	"nodedb":                   {},
	"nodedb/lua":               {"nodedb", "internal/luajit/extension"},
	"nodedb/internal/coretest": {"nodedb"},

	"script":             {"event", "internal/document", "internal/document/report", "internal/nearest", "script/pool"},
	"script/gopherlua":   {"event", "script", "script/pool", "script/stdlib", "script/luasyntax", "internal/document/pure"},
	"script/goplugin":    {"event", "script", "internal/document/pure", "internal/document"},
	"script/luajit":      {"event", "script", "script/pool", "script/stdlib", "internal/document", "internal/document/report", "internal/luajit"},
	"script/lua":         {"script", "script/gopherlua", "script/luacheck", "script/luajit"},
	"script/pool":        {},
	"script/passthrough": {"event", "script"},
	"script/computed":    {"event", "script", "internal/document", "internal/document/pure", "internal/document/report"},
	"script/reload":      {"event", "script", "script/loader"},
	"script/tuning":      {"event", "script", "script/pool", "internal/plot"},
	"script/stdlib":      {"script", "internal/document/pure", "internal/nearest"},
	"script/isolate":     {"event", "internal/child", "script", "script/pool", "script/stdlib"},
	"script/loader":      {"script", "internal/s3client"},
	"script/luacheck":    {"script", "script/luasyntax", "script/stdlib", "internal/nearest"},
	"script/luasyntax":   {},
	"script/stubs":       {},

	"sink":                     {"event"},
	"sink/changelog":           {"event", "sink", "sink/internal/positions", "internal/boltfile", "internal/durable"},
	"sink/eventstore":          {"event", "sink", "eventstore"},
	"sink/file":                {"event", "sink", "sink/internal/ndjson", "sink/internal/positions", "internal/durable"},
	"sink/http":                {"event", "sink", "sink/internal/ndjson", "sink/internal/partial"},
	"sink/internal/ndjson":     {},
	"sink/internal/partial":    {"event", "sink"},
	"sink/kafka":               {"event", "sink", "sink/internal/partial", "internal/kafka"},
	"sink/mysql":               {"event", "sink", "sink/internal/positions", "sink/internal/sqlsink", "sink/mysql/internal/wire", "internal/address"},
	"sink/mysql/internal/wire": {},
	"sink/internal/positions":  {"event", "event/ledger", "sink"},
	"sink/internal/sqlsink":    {"event", "sink", "sink/internal/positions", "internal/nearest"},
	"sink/postgres":            {"event", "sink", "sink/internal/positions", "sink/internal/sqlsink"},
	"sink/redis":               {"event", "sink", "sink/internal/positions", "internal/resp"},
	"sink/stdout":              {"event", "internal/terminal", "sink", "sink/internal/ndjson"},

	"pipeline":       {"event", "nodedb", "source", "source/format", "script", "sink", "pipeline/deadletter", "pipeline/outbox", "pipeline/state", "pipeline/tap", "internal/durable"},
	"pipeline/tap":   {"event"},
	"pipeline/state": {"event", "nodedb", "nodedb/lua", "pipeline/state/archive", "script", "sink", "internal/document", "internal/durable"},

	"pipeline/state/archive": {"sink", "internal/durable", "internal/s3client"},

	"pipeline/outbox":     {"event", "internal/boltfile", "internal/durable"},
	"pipeline/deadletter": {"event", "source", "internal/boltfile", "internal/durable"},

	"eventstore": {"event", "event/ledger", "eventstore/catalog", "eventstore/internal/keyset", "eventstore/internal/lakecache", "eventstore/internal/manifest", "eventstore/internal/protocol", "eventstore/internal/publishing", "eventstore/internal/sqlclient", "eventstore/internal/sqlworker", "eventstore/internal/statement", "eventstore/internal/wal", "eventstore/lake", "eventstore/systemtable", "internal/datafolder", "internal/document", "internal/durable", "internal/sqltext"},

	"eventstore/catalog":             {},
	"eventstore/lake":                {},
	"eventstore/lakecatalog":         {"internal/httpserver", "internal/s3client"},
	"eventstore/output":              {"eventstore/catalog", "eventstore/internal/protocol", "internal/terminal"},
	"eventstore/queryhttp":           {"event", "eventstore", "eventstore/output", "internal/httpserver", "internal/sqltext"},
	"eventstore/fileimport":          {"event", "eventstore", "eventstore/catalog", "eventstore/internal/protocol", "eventstore/internal/sqlclient", "internal/lines", "internal/sqltext", "source/format"},
	"eventstore/systemtable":         {"eventstore/internal/manifest", "eventstore/internal/statement", "eventstore/internal/wal"},
	"eventstore/eventstoretest":      {"event", "eventstore", "eventstore/output"},
	"eventstore/internal/protocol":   {"event", "eventstore/catalog", "eventstore/internal/manifest", "eventstore/internal/wal"},
	"eventstore/internal/duckdb":     {"event", "eventstore/internal/protocol", "internal/sqltext"},
	"eventstore/internal/statement":  {"event", "eventstore/catalog", "eventstore/internal/manifest", "eventstore/internal/protocol", "internal/nearest", "internal/sqltext"},
	"eventstore/internal/sqlclient":  {"event", "eventstore/catalog", "eventstore/internal/manifest", "eventstore/internal/protocol", "eventstore/internal/tablesql", "eventstore/internal/wal", "internal/child", "internal/sqltext"},
	"eventstore/internal/sqlworker":  {"event", "eventstore/catalog", "eventstore/internal/bloom", "eventstore/internal/duckdb", "eventstore/internal/logscan", "eventstore/internal/manifest", "eventstore/internal/protocol", "eventstore/internal/segment", "eventstore/internal/statement", "eventstore/internal/tableview", "eventstore/internal/wal", "internal/child", "internal/document", "internal/sqltext"},
	"eventstore/internal/segment":    {"event", "eventstore/internal/bloom", "eventstore/internal/duckdb", "eventstore/internal/logscan", "eventstore/internal/manifest", "eventstore/internal/protocol", "eventstore/internal/tablesql", "internal/durable", "internal/sqltext"},
	"eventstore/internal/tableview":  {"event", "eventstore/catalog", "eventstore/internal/bloom", "eventstore/internal/duckdb", "eventstore/internal/logscan", "eventstore/internal/manifest", "eventstore/internal/protocol", "eventstore/internal/statement", "eventstore/internal/tablesql", "internal/sqltext"},
	"eventstore/internal/bloom":      {"event", "eventstore/internal/duckdb", "eventstore/internal/manifest", "eventstore/internal/tablesql", "internal/durable", "internal/sqltext"},
	"eventstore/internal/logscan":    {"event", "eventstore/catalog", "eventstore/internal/manifest", "eventstore/internal/tablesql", "eventstore/internal/wal", "internal/durable", "internal/frame"},
	"eventstore/internal/lakecache":  {"event", "eventstore/internal/manifest", "internal/durable", "internal/s3client"},
	"eventstore/internal/publishing": {"event", "eventstore/catalog", "eventstore/internal/manifest", "eventstore/internal/tablesql", "eventstore/lake", "internal/release"},
	"eventstore/internal/tablesql":   {"event", "eventstore/catalog", "eventstore/internal/manifest", "internal/sqltext"},
	"eventstore/internal/keyset":     {"eventstore/internal/manifest"},
	"eventstore/internal/storetest":  {"event", "eventstore/internal/duckdb", "eventstore/internal/manifest", "eventstore/internal/protocol", "eventstore/internal/tablesql", "eventstore/internal/wal", "internal/sqltext"},
	"eventstore/internal/manifest":   {"event", "eventstore/catalog", "eventstore/internal/wal", "internal/durable"},
	"eventstore/internal/wal":        {"event", "internal/durable", "internal/frame"},

	"server": {"pipeline", "script", "script/pool", "internal/document", "internal/datafolder", "internal/httpserver"},
	"admin":  {"engine/compare", "engine/rowtext", "event", "nodedb", "source", "sink", "pipeline", "pipeline/deadletter", "pipeline/outbox", "pipeline/state", "pipeline/tap", "internal/datafolder", "internal/durable", "internal/nearest"},

	"engine": {
		"admin", "engine/compare", "engine/config", "engine/rowtext", "engine/shadow", "event", "internal/datafolder", "internal/nearest", "internal/s3client", "internal/tracing", "nodedb", "nodedb/lua", "pipeline", "pipeline/deadletter", "pipeline/outbox", "pipeline/state", "pipeline/state/archive", "pipeline/tap", "sink/changelog",
		"script", "script/computed", "script/isolate", "script/loader", "script/passthrough", "script/pool", "script/reload", "server", "sink", "source",
	},
	"engine/config":       {"eventstore/catalog", "eventstore/lake", "internal/address", "internal/datafolder", "internal/durable", "internal/httpserver", "internal/nearest", "internal/sqltext"},
	"engine/rowtext":      {"event", "internal/document/pure"},
	"engine/compare":      {"engine/rowtext", "event", "internal/document/pure", "internal/terminal"},
	"engine/shadow":       {"admin", "engine/compare", "event", "script", "script/reload"},
	"engine/trial":        {"engine", "engine/config", "event", "internal/document/pure", "script", "script/stdlib"},
	"engine/suite":        {"engine", "engine/config", "engine/rowtext", "engine/trial", "event", "internal/terminal", "nodedb", "script", "script/luasyntax"},
	"engine/replay":       {"engine", "engine/config", "event", "internal/datafolder", "internal/durable", "internal/frame", "sink", "source"},
	"engine/eventservice": {"admin", "engine", "engine/config", "event", "eventstore", "eventstore/catalog", "eventstore/fileimport", "eventstore/lakecatalog", "eventstore/output", "eventstore/queryhttp", "eventstore/systemtable", "internal/datafolder", "internal/durable", "internal/httpserver", "internal/sqltext", "pipeline", "pipeline/deadletter", "pipeline/tap", "script", "server", "sink", "sink/eventstore"},

	"internal/boltfile":         {"internal/durable"},
	"internal/child":            {},
	"internal/datafolder":       {"internal/durable", "internal/release"},
	"internal/release":          {},
	"internal/decompress":       {},
	"internal/durable":          {},
	"internal/document":         {"event", "internal/document/pure", "internal/document/report"},
	"internal/document/pure":    {"event", "internal/document/report"},
	"internal/luajit":           {"event", "internal/document", "internal/document/pure", "internal/luajit/extension"},
	"internal/document/report":  {"event"},
	"internal/scaffold":         {"event", "internal/inspect", "internal/sqltext", "script/stubs"},
	"internal/inspect":          {"event", "internal/decompress", "internal/document/pure", "source/format"},
	"internal/luajit/extension": {},
	"internal/audit":            {"pipeline/deadletter", "source/generate"},
	"internal/rates":            {"admin"},
	"internal/top":              {"admin", "internal/rates", "internal/terminal", "pipeline"},

	"console": {"admin", "engine", "engine/config", "engine/eventservice", "engine/rowtext", "engine/trial", "event", "internal/httpserver", "internal/rates", "pipeline/tap", "script"},

	"cmd/perigee-lake": {"event", "eventstore/lake", "internal/durable", "internal/release", "internal/s3client"}, // a module of its own
	"cmd/perigee": {
		"admin", "console", "engine", "engine/compare", "engine/config", "engine/eventservice", "engine/replay", "engine/suite", "engine/trial", "event", "pipeline", "pipeline/state", "pipeline/tap",
		"eventstore/catalog", "eventstore/fileimport", "internal/datafolder", "internal/durable", "internal/lines", "internal/sqltext", "internal/terminal", "nodedb", "nodedb/lua",
		"source", "source/file", "source/format", "source/generate", "source/http", "source/kafka", "source/nats", "source/redis",
		"script", "script/computed", "script/goplugin", "script/isolate", "script/loader", "script/lua", "script/luajit", "script/stubs", "script/tuning",
		"sink", "sink/file", "sink/http", "sink/kafka", "sink/mysql", "sink/postgres", "sink/redis", "sink/stdout",
		"internal/audit", "internal/chaos", "internal/inspect", "internal/nearest", "internal/release", "internal/scaffold", "internal/top", "examples",
	},
	"tools/mutants":       {},
	"examples":            {},
	"internal/address":    {},
	"internal/nearest":    {},
	"internal/kafka":      {"event", "internal/address"},
	"internal/httpserver": {"internal/address"},
	"internal/sqltext":    {},
	"internal/terminal":   {},
	"internal/tracing":    {},
	"internal/lines":      {},
	"internal/plot":       {},
	"internal/frame":      {},
	"internal/s3client":   {},
	"internal/spool":      {"event", "internal/durable", "internal/frame"},
	"internal/resp":       {"internal/address"},
	"examples/plugin":     {},

	"examples/boltsink":   {"event", "sink"},
	"examples/dirsource":  {"event", "source"},
	"examples/ratemodule": {"script"},

	// Suites and servers for tests.
	"source/sourcetest":             {"event", "source"},
	"script/scripttest":             {"event", "script"},
	"sink/sinktest":                 {"event", "internal/testseed", "internal/testsize", "sink"},
	"sink/internal/sqlsink/sqltest": {"event", "internal/testseed", "sink", "sink/internal/positions", "sink/internal/sqlsink", "sink/sinktest"},
	"internal/leaktest":             {},
	"internal/testserver":           {},
	"internal/testseed":             {},
	"internal/testsize":             {},
	"internal/powercut":             {},

	"internal/luajit/torture":     {"nodedb"},
	"internal/luajit/torture/run": {"event", "internal/luajit", "internal/luajit/torture", "nodedb", "nodedb/lua"},

	// Programs that run the engine as its users do.
	"internal/e2e":         {"source/generate", "internal/testserver", "internal/resp", "internal/audit"},
	"internal/e2e/hostile": {"internal/e2e"},
	"internal/chaos":       {"pipeline", "pipeline/deadletter", "internal/testserver", "internal/resp", "internal/e2e"},
}

// mayCgo lists the packages that may use cgo. A build without cgo leaves them out. The table
// functions of logscan and segment must fill DuckDB's vectors without a call for each value.
var mayCgo = []string{"eventstore/internal/duckdb", "eventstore/internal/logscan", "eventstore/internal/segment", "eventstore/internal/sqlworker", "internal/document", "internal/luajit", "nodedb", "nodedb/lua", "nodedb/internal/coretest"}

func TestImports(t *testing.T) {
	for _, file := range goFiles(t) {
		pkg := path.Dir(file.name)
		allowed, known := may[pkg]
		if !known {
			t.Errorf("%s: package %s has no row in the import table; add one", file.name, pkg)
			continue
		}
		for _, imported := range file.imports {
			if imported == "C" && !slices.Contains(mayCgo, pkg) {
				t.Errorf("%s: only %v may use cgo", file.name, mayCgo)
			}
			ours, found := strings.CutPrefix(imported, module)
			if found && ours != pkg && !slices.Contains(allowed, ours) {
				t.Errorf("%s: the import table does not let %s import %s", file.name, pkg, ours)
			}
		}
	}
}

// TestEveryAllowedImportIsUsed fails on an allowed import that no file uses.
func TestEveryAllowedImportIsUsed(t *testing.T) {
	used := map[string]map[string]bool{}
	for _, file := range goFiles(t) {
		pkg := path.Dir(file.name)
		if used[pkg] == nil {
			used[pkg] = map[string]bool{}
		}
		for _, imported := range file.imports {
			used[pkg][strings.TrimPrefix(imported, module)] = true
		}
	}
	for pkg, allowed := range may {
		for _, imported := range allowed {
			if !used[pkg][imported] {
				t.Errorf("the import table lets %s import %s, but no file does; delete the entry", pkg, imported)
			}
		}
	}
}

func TestEveryRowHasItsPackage(t *testing.T) {
	present := map[string]bool{}
	for _, file := range goFiles(t) {
		present[path.Dir(file.name)] = true
	}
	for pkg := range may {
		if !present[pkg] {
			t.Errorf("the import table has a row for %s, which does not exist; delete the row", pkg)
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string]int{}
	for _, file := range goFiles(t) {
		pkg := path.Dir(file.name)
		comments[pkg] += 0
		if file.documented {
			comments[pkg]++
		}
	}
	for pkg, n := range comments {
		if n != 1 {
			t.Errorf("package %s has %d package comments; it needs one that says what the package is, what it guarantees and whether it is safe for concurrent use", pkg, n)
		}
	}
}

// makesServer finds what makes an HTTP server or serves by itself.
var makesServer = regexp.MustCompile(`[^.\w](http\.Server\{|new\(http\.Server\)|http\.(Listen|Serve)\w*\(|httptest\.)`)

// TestServersAreMadeInOnePlace: every server refuses web pages of other sites and bounds its
// connections, because internal/httpserver makes it.
func TestServersAreMadeInOnePlace(t *testing.T) {
	for _, file := range goFiles(t) {
		text, err := os.ReadFile(filepath.Join(root, file.name))
		if err != nil {
			t.Fatal(err)
		}
		found := makesServer.FindSubmatch(text)
		if made := path.Dir(file.name) == "internal/httpserver"; found != nil && !made {
			t.Errorf("%s has %s; let httpserver.New make the server", file.name, found[1])
		}
	}
}

// TestStorageIsSmall keeps the packages of the storage half to a size that one reads at once,
// and free of what serves or prints results.
func TestStorageIsSmall(t *testing.T) {
	const filesMax = 25
	files := map[string]int{}
	for _, file := range goFiles(t) {
		pkg := path.Dir(file.name)
		if pkg != "nodedb" && pkg != "eventstore" && !strings.HasPrefix(pkg, "eventstore/") {
			continue
		}
		files[pkg]++
		for _, imported := range file.imports {
			prints := imported == "net/http" || strings.Contains(imported, "go-pretty")
			if prints && (pkg == "nodedb" || pkg == "eventstore" || strings.HasPrefix(pkg, "eventstore/internal/")) {
				t.Errorf("%s imports %s; storage neither serves nor prints results", file.name, imported)
			}
		}
	}
	for pkg, n := range files {
		if n > filesMax {
			t.Errorf("package %s has %d files, more than %d; split it by concern", pkg, n, filesMax)
		}
	}
}

// TestNothingLarge keeps generated files out of the repository.
func TestNothingLarge(t *testing.T) {
	const bytesMax = 256 << 10
	walk(t, func(name string, entry fs.DirEntry) {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > bytesMax {
			t.Errorf("%s has %d bytes, more than %d; generate it or leave it out", name, info.Size(), bytesMax)
		}
	})
}

type goFile struct {
	name       string
	imports    []string
	documented bool
}

// goFiles parses every Go file that is not a test or a fixture.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	walk(t, func(name string, _ fs.DirEntry) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, goFile{name: name, imports: importsOf(t, parsed), documented: parsed.Doc != nil})
	})
	return files
}

func importsOf(t *testing.T, file *ast.File) []string {
	t.Helper()
	var imports []string
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imports = append(imports, name)
	}
	return imports
}

// walk visits the files of the repository, with their path relative to its root. It skips
// build results and modules of their own.
func walk(t *testing.T, visit func(name string, entry fs.DirEntry)) {
	t.Helper()
	skip := []string{".git", ".build", "bin", "bench", "perigee-data", "dist", "versions"}
	err := filepath.WalkDir(root, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(full, root), string(os.PathSeparator)))
		if entry.IsDir() {
			if slices.Contains(skip, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		visit(name, entry)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
