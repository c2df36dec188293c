// Command mutants measures what the test suite notices. It puts random faults into the Go
// and C code, each into a copy of the tree, runs the tests of that package and those of
// its nearest users that run the faulty line, and lists the faults that no test noticed:
//
//	go run ./tools/mutants -seed 7 -n 100
//
// Which tests run a line is measured first, once for each state of the product's code, in about
// ten minutes.
//
// A seed names the same faults, except where the code itself has changed: a run can be made in
// pieces, and one of another day says whether the tests have become better:
//
//	go run ./tools/mutants -seed 7 -among 100 -only pipeline/,admin/
//
// It ends with the line "figure mutants_killed_percent". Not counted are faults that no test
// could notice or that are not in the product: a fault that does not compile, or that swaps two
// independent statements, is replaced by the next one; files that
// this machine's build leaves out, such as those for other systems or without cgo, have none;
// nor have tests and what only tests import. Files that guard SQL, the sandbox, isolation and
// fencing have none either: two locks on such a door are wanted, and no test notices a fault in
// one of them while the other holds. The result is a report to read, not a bar to reach.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// guards are the files with guards that imply each other.
const guards = "event/ledger/," +
	"eventstore/internal/sqlworker/confine,eventstore/internal/sqlworker/predicate.go,eventstore/internal/statement/," +
	"internal/child/,internal/datafolder/," +
	"internal/luajit/caller.c,internal/luajit/route.c,internal/luajit/sandbox," +
	"nodedb/lease.c," +
	"script/gopherlua/sandbox.go,script/isolate/," +
	"sink/changelog/partition.go,sink/changelog/unit.go," +
	"sink/internal/positions/," +
	"sink/internal/sqlsink/lease.go,sink/internal/sqlsink/position.go,sink/internal/sqlsink/store.go,sink/internal/sqlsink/unit.go," +
	"sink/redis/lease.go,sink/redis/partition.go,sink/redis/unit.go"

func main() {
	seed := flag.Uint64("seed", 1, "the faults to choose")
	n := flag.Int("n", 100, "how many faults to put in")
	among := flag.Int("among", 0, "only the first so many faults of the seed (0: all): with -only, the part of a longer run")
	only := flag.String("only", "", "only files whose path begins with one of these, with commas between")
	skip := flag.String("skip", "", "no files whose path begins with one of these, with commas between")
	users := flag.Int("users", 6, "how many packages that import the faulty one are tested after it")
	jobs := flag.Int("jobs", runtime.NumCPU()+1, "how many faults are tried at a time: tests wait much")
	list := flag.Bool("list", false, "print the faults, do not run tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seed, *n, *among, *only, *skip, *users, *jobs, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, n, among int, only, skip string, users, jobs int, list bool) error {
	faults, err := findFaults(".")
	if err != nil {
		return err
	}
	choose(faults, seed)
	if among > 0 {
		faults = faults[:min(among, len(faults))]
	}
	faults = slices.DeleteFunc(faults, func(f fault) bool {
		return only != "" && !hasPrefix(f.file, only) || hasPrefix(f.file, skip) || hasPrefix(f.file, guards)
	})
	if len(faults) == 0 {
		return fmt.Errorf("no place for a fault in %q", only)
	}
	if list {
		for _, f := range faults[:min(n, len(faults))] {
			fmt.Println(f)
		}
		return nil
	}
	trees := make([]*tree, jobs)
	for i := range trees {
		if trees[i], err = copyTree(ctx, "."); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(trees[i].folder) }()
		trees[i].users = users
	}
	covered, err := loadCoverage(ctx, ".build/mutants-coverage.json", trees)
	if err != nil {
		return err
	}
	var survivors []fault
	tested, began := 0, time.Now()
	err = tryFaults(ctx, jobs, faults, n, func(job int, f fault) (verdict, error) {
		return trees[job].test(ctx, f, covered)
	}, func(f fault, v verdict) {
		if v.invalid != "" {
			fmt.Printf("  skip  %s: %s\n", f, v.invalid)
			return
		}
		tested++
		if v.killedBy == "" {
			survivors = append(survivors, f)
			fmt.Printf("%3d LIVES %s (%s)\n", tested, f, v.took.Round(time.Second))
			return
		}
		fmt.Printf("%3d       %s: %s (%s)\n", tested, f, v.killedBy, v.took.Round(time.Second))
	})
	if err != nil {
		return err
	}
	if tested == 0 {
		return fmt.Errorf("no fault was tested")
	}
	fmt.Printf("\n%d faults from seed %d in %s; %d not noticed\n", tested, seed, time.Since(began).Round(time.Second), len(survivors))
	for _, f := range survivors {
		fmt.Printf("  %s\n", f)
	}
	fmt.Printf("figure mutants %d\n", tested)
	fmt.Printf("figure mutants_killed_percent %.0f\n", 100*float64(tested-len(survivors))/float64(tested))
	return nil
}

// tryFaults tries the first n faults that count, in several jobs at a time, and reports what became of each.
func tryFaults(ctx context.Context, jobs int, faults []fault, n int, try func(job int, f fault) (verdict, error), report func(fault, verdict)) error {
	var mu sync.Mutex
	wake := sync.NewCond(&mu)
	counted, trying := 0, 0
	take := func() (fault, bool) {
		for counted+trying >= n && trying > 0 {
			wake.Wait() // one under way may not count
		}
		if counted >= n || len(faults) == 0 || ctx.Err() != nil {
			return fault{}, false
		}
		f := faults[0]
		faults = faults[1:]
		trying++
		return f, true
	}
	var group errgroup.Group
	for job := range jobs {
		group.Go(func() error {
			mu.Lock()
			defer mu.Unlock()
			defer wake.Broadcast()
			for {
				f, ok := take()
				if !ok {
					return nil
				}
				mu.Unlock()
				v, err := try(job, f)
				mu.Lock()
				trying--
				if err != nil {
					faults = nil
					return err
				}
				if v.invalid == "" {
					counted++
				}
				report(f, v)
				wake.Broadcast()
			}
		})
	}
	return group.Wait()
}

// choose orders faults at random such that each kind comes equally often: operators are a
// hundred times as frequent as syncs, and the rare faults are the ones that lose data. The
// place of a fault depends on the seed and its line, so that it stays when other lines change.
func choose(faults []fault, seed uint64) {
	random := func(parts ...any) string {
		sum := sha256.Sum256(fmt.Append(nil, seed, "\n", fmt.Sprintf("%q", parts)))
		return string(sum[:])
	}
	byKind := map[string][]fault{}
	places := map[fault]string{}
	twins := map[fault]int{} // equal faults in equal lines of a file
	for _, f := range faults {
		same := fault{file: f.file, kind: f.kind, source: f.source, before: f.before, after: f.after}
		places[f] = random(same.file, same.kind, same.source, same.before, same.after, twins[same])
		twins[same]++
		byKind[f.kind] = append(byKind[f.kind], f)
	}
	for _, of := range byKind {
		slices.SortFunc(of, func(a, b fault) int { return cmp.Compare(places[a], places[b]) })
	}
	faults = faults[:0]
	for round := 0; len(byKind) > 0; round++ {
		kinds := slices.SortedFunc(maps.Keys(byKind), func(a, b string) int {
			return cmp.Compare(random(round, a), random(round, b))
		})
		for _, kind := range kinds {
			left := byKind[kind]
			faults = append(faults, left[0])
			if byKind[kind] = left[1:]; len(left) == 1 {
				delete(byKind, kind)
			}
		}
	}
}

// findFaults lists all places of top where a fault can be put in: product code, not tests.
func findFaults(top string) ([]fault, error) {
	files, err := trackedFiles(top)
	if err != nil {
		return nil, err
	}
	unbuilt, err := unbuiltFiles(top)
	if err != nil {
		return nil, err
	}
	var faults []fault
	for _, path := range files {
		if !isProductCode(path) || unbuilt[path] {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			return nil, err
		}
		switch filepath.Ext(path) {
		case ".go":
			found, err := goFaults(path, text)
			if err != nil {
				return nil, err
			}
			faults = append(faults, found...)
		case ".c":
			faults = append(faults, cFaults(path, text)...)
		}
	}
	return faults, nil
}

// hasPrefix tells whether a path begins with one of several prefixes.
func hasPrefix(path, prefixes string) bool {
	for prefix := range strings.SplitSeq(prefixes, ",") {
		if prefix != "" && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// unbuiltFiles returns the files that build constraints leave out: no test compiles them.
func unbuiltFiles(top string) (map[string]bool, error) {
	const format = `{{range .IgnoredGoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredOtherFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`
	cmd := exec.Command("tools/go.sh", "list", "-f", format, "./...")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	top, err = filepath.Abs(top)
	if err != nil {
		return nil, err
	}
	unbuilt := map[string]bool{}
	for _, file := range strings.Fields(string(out)) {
		path, err := filepath.Rel(top, file)
		if err != nil {
			return nil, err
		}
		unbuilt[path] = true
	}
	return unbuilt, nil
}

// isProductCode leaves out tests and what only they import, suites, benchmarks, examples and tools.
func isProductCode(path string) bool {
	if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata/") {
		return false
	}
	for _, prefix := range []string{"bench/", "examples/", "tools/", "internal/e2e/", "internal/chaos/", "internal/testserver/", "internal/testseed/", "internal/audit/", "internal/powercut/", "internal/luajit/torture/"} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	return !strings.HasSuffix(filepath.Dir(path), "test")
}
