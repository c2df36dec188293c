// Command mutants measures what the test suite notices. It puts random faults into the Go
// and C code, one at a time in a copy of the tree, runs the tests of that package and of
// its nearest users, and lists the faults that no test noticed:
//
//	go run ./tools/mutants -seed 7 -n 100
//
// A seed names the same faults as long as the code does not change. A fault that does not
// compile, or that swaps two statements of which neither sees what the other does, is replaced
// by the next one. It ends with the line "figure
// mutants_killed_percent".
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 1, "the faults to choose")
	n := flag.Int("n", 100, "how many faults to put in")
	only := flag.String("only", "", "only files whose path begins with this")
	skip := flag.String("skip", "", "no files whose path begins with one of these, with commas between")
	users := flag.Int("users", 4, "how many packages that import the faulty one are tested after it")
	timeout := flag.Duration("timeout", 3*time.Minute, "a package whose tests take longer has noticed the fault")
	list := flag.Bool("list", false, "print the faults, do not run tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seed, *n, *only, *skip, *users, *timeout, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, n int, only, skip string, users int, timeout time.Duration, list bool) error {
	faults, err := findFaults(".", only, skip)
	if err != nil {
		return err
	}
	if len(faults) == 0 {
		return fmt.Errorf("no place for a fault in %q", only)
	}
	choose(faults, rand.New(rand.NewPCG(seed, seed)))
	if list {
		for _, f := range faults[:min(n, len(faults))] {
			fmt.Println(f)
		}
		return nil
	}
	tree, err := copyTree(ctx, ".")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree.folder) }()
	tree.users, tree.timeout = users, timeout
	var survivors []fault
	tested, began := 0, time.Now()
	for _, f := range faults {
		if tested == n || ctx.Err() != nil {
			break
		}
		verdict, err := tree.test(ctx, f)
		if err != nil {
			return err
		}
		if verdict.invalid != "" {
			fmt.Printf("  skip  %s: %s\n", f, verdict.invalid)
			continue
		}
		tested++
		if verdict.killedBy == "" {
			survivors = append(survivors, f)
			fmt.Printf("%3d LIVES %s (%s)\n", tested, f, verdict.took.Round(time.Second))
			continue
		}
		fmt.Printf("%3d       %s: %s (%s)\n", tested, f, verdict.killedBy, verdict.took.Round(time.Second))
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

// choose orders faults at random such that each kind comes equally often: operators are a
// hundred times as frequent as syncs, and the rare faults are the ones that lose data.
func choose(faults []fault, random *rand.Rand) {
	random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	byKind := map[string][]fault{}
	var kinds []string
	for _, f := range faults {
		if byKind[f.kind] == nil {
			kinds = append(kinds, f.kind)
		}
		byKind[f.kind] = append(byKind[f.kind], f)
	}
	for at := 0; at < len(faults); {
		random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, kind := range kinds {
			if left := byKind[kind]; len(left) > 0 {
				faults[at], byKind[kind] = left[0], left[1:]
				at++
			}
		}
	}
}

// findFaults lists all places of top where a fault can be put in: product code, not tests.
func findFaults(top, only, skip string) ([]fault, error) {
	files, err := trackedFiles(top)
	if err != nil {
		return nil, err
	}
	var faults []fault
	for _, path := range files {
		if !strings.HasPrefix(path, only) || !isProductCode(path) || hasPrefix(path, skip) {
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

// isProductCode leaves out tests, suites, benchmarks, examples and tools.
func isProductCode(path string) bool {
	if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata/") {
		return false
	}
	for _, prefix := range []string{"bench/", "examples/", "tools/", "internal/e2e/", "internal/chaos/", "internal/testserver/", "internal/audit/", "internal/luajit/torture/"} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	return !strings.HasSuffix(filepath.Dir(path), "test")
}
