//go:build cgo && luajit

package luajit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

// A Compilation is what LuaJIT's compiler made of a script.
type Compilation struct {
	Traces    int // pieces of code that it compiled
	Uncovered []Uncovered
}

// An Uncovered is a line that runs in the interpreter, or for which compiled code is
// left.
type Uncovered struct {
	File        string
	Line        int
	Reason      string // as LuaJIT words it
	Explanation string // for readers that do not know LuaJIT
	Count       int    // of attempts
	Minor       bool   // the compiler goes on elsewhere, and little is lost
}

// Compile passes a batch so many times through the script, in a VM of its own, unless
// that takes too long, and returns what its compiler did. Events that fail do not
// matter.
func Compile(ctx context.Context, code script.Code, opts script.Options, batch *event.Batch, times int, long time.Duration) (Compilation, error) {
	s := new(Script)
	if err := s.prepare(code, opts, false); err != nil {
		return Compilation{}, err
	}
	w := luajit.NewWatchdog()
	defer w.Close()
	e, err := luajit.NewEngine(w, s.limits(), luajit.Setup{
		Output: s.opts.Limits.Output, Sinks: sinks(s.opts.Sinks), Main: code.Func, Host: s.host,
	})
	if err != nil {
		return Compilation{}, err
	}
	defer e.Close()
	l, err := e.RecordTraces()
	if err != nil {
		return Compilation{}, err
	}
	if err := s.loadInto(ctx, e); err != nil {
		return Compilation{}, err
	}
	began := time.Now()
	for n := 0; n < times && ctx.Err() == nil && (n == 0 || time.Since(began) < long) && e.Run(ctx, batch, 0).Limit == luajit.OK; n++ {
		s.readEffects(e)
	}
	if e.VM.Broken() != luajit.OK {
		return Compilation{}, fmt.Errorf("listen to the compiler: %w", s.loadError(e.VM.LastError()))
	}
	heard, err := l.Events()
	return newCompilation(heard), err
}

func newCompilation(heard []luajit.TraceEvent) (c Compilation) {
	for _, one := range heard {
		switch {
		case one.What == luajit.Compiled:
			c.Traces += one.Count
		case one.File == "" || one.What == luajit.Left && one.Subject == "":
		default:
			c.Uncovered = append(c.Uncovered, newUncovered(one))
		}
	}
	slices.SortFunc(c.Uncovered, func(a, b Uncovered) int {
		return cmp.Or(compareWeight(a)-compareWeight(b), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return c
}

// compareWeight is less for what matters more.
func compareWeight(u Uncovered) int {
	if u.Minor {
		return 1
	}
	return 0
}

func newUncovered(e luajit.TraceEvent) Uncovered {
	u := Uncovered{File: e.File, Line: e.Line, Count: e.Count}
	if e.What == luajit.Left {
		u.Reason, u.Minor = "trace stitched at "+e.Subject, true
		u.Explanation = "calls " + functionName(e.Subject) + ", which the interpreter does; compiled code goes on after it"
		return u
	}
	u.Reason = strings.NewReplacer("%d", e.Subject, "%s", e.Subject).Replace(e.Reason)
	u.Explanation, u.Minor = explain(e)
	if e.What == luajit.Inside && !u.Minor {
		u.Explanation = "calls a function of perigee's that is not compiled, such as pcall"
	}
	return u
}

// functionName names a function as scripts know it.
func functionName(name string) string {
	if strings.HasPrefix(name, "coroutine.") {
		return name + " (pcall is built on it)"
	}
	return name
}

// bytecodes says what the script does where LuaJIT does not compile an instruction.
var bytecodes = map[string]string{
	"FNEW":  "makes a function each time it runs; make it once, outside of main",
	"UCLO":  "leaves a block whose local variables a function has kept; make that function once, outside of main",
	"VARG":  "takes a number of values from '...' that is not known beforehand; name the parameters",
	"TSETM": "fills a table from '...' or from all results of a call; name the values",
	"CALLM": "passes on '...' or all results of a call; name the values",
	"CALLT": "returns the result of a call; assign it to a local first",
	"ITERN": "loops over pairs in a way that is not compiled; try ipairs or a numeric for",
}

// reasons say in plain words why code is not compiled, by how LuaJIT words it.
var reasons = map[string]string{
	"error thrown or hook called during recording": "raised an error while it was looked at",
	"trace too long":                          "is too long for one piece of compiled code; split the function",
	"trace too deep":                          "calls too deep for the compiler",
	"too many snapshots":                      "has too many branches; split the function",
	"blacklisted":                             "runs code that was given up before",
	"bad argument type":                       "passes an argument of a type that the function is not compiled for",
	"JIT compilation disabled for function":   "calls a function that is never compiled",
	"call unroll limit reached":               "recurses too often in one piece of compiled code",
	"NYI: unsupported variant of FastFunc %s": "calls the function with arguments for which it is not compiled",
	"NYI: return to lower frame":              "returns to a function that was entered before",
	"store with nil or NaN key":               "stores below a key that is nil or not a number",
	"missing metamethod":                      "uses a value that has no such operation; it fails",
	"looping index lookup":                    "looks a key up through a circle of tables",
	"NYI: mixed sparse/dense table":           "grows a table that is partly an array and partly not",
	"NYI: unsupported C type conversion":      "uses a value of the event in a way that is not compiled",
	"NYI: unsupported C function type":        "uses the event in a way that is not compiled",
	"persistent type instability":             "keeps values of changing types in one variable",
	"failed to allocate mcode memory":         "found no memory for compiled code",
	"machine code too long":                   "is too long for one piece of compiled code; split the function",
	"too many spill slots":                    "uses too many local variables at once",
	"too many PHIs":                           "changes too many variables in a loop",
	"NYI: cannot assemble IR instruction %d":  "needs an operation that this processor's compiler lacks",
	"NYI: register coalescing too complex":    "uses too many local variables at once",
	"NYI: PHI shuffling too complex":          "changes too many variables in a loop",
}

// transientReasons are reasons after which the compiler tries elsewhere and mostly succeeds.
var transientReasons = map[string]string{
	"leaving loop in root trace": "the loop ended while it was looked at; tried again later",
	"inner loop in root trace":   "there is a loop inside, which is compiled first",
	"loop unroll limit reached":  "the loop is compiled by itself",
	"retry recording":            "tried again at once",
	"down-recursion, restarting": "tried again from where it returns",
	"trace too short":            "too short to be worth it",
	"hit mcode limit (retrying)": "tried again at once",
	"guard would always fail":    "tried again later",
	"symbol not in cache":        "tried again later",
}

func explain(e luajit.TraceEvent) (words string, minor bool) {
	if words, minor = transientReasons[e.Reason]; minor {
		return words, true
	}
	if strings.HasPrefix(e.Reason, "NYI: bytecode") {
		if words = bytecodes[e.Subject]; words == "" {
			words = "uses an instruction that is not compiled"
		}
		return words, false
	}
	if words = reasons[e.Reason]; words == "" {
		words = "is not compiled"
	}
	return words, false
}
