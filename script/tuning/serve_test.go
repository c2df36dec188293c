package tuning

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/script/pool"
)

// closingScript counts in closed that it was closed.
type closingScript struct {
	script.Script
	closed *int
}

func (s closingScript) Close() error {
	*s.closed++
	return s.Script.Close()
}

// serve runs a child's whole life in this process.
func serve(t *testing.T, j job, rounds int) ([]Reading, error) {
	t.Helper()
	j.Sample = filepath.Join(t.TempDir(), "sample.ndjson")
	if err := os.WriteFile(j.Sample, []byte("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	in := string(line) + "\n" + strings.Repeat("\n", rounds)
	language := gopherlua.Language()
	load, closed := language.Load, 0
	language.Load = func(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
		loaded, err := load(ctx, code, opts)
		return closingScript{loaded, &closed}, err
	}
	if err := Serve(context.Background(), language, strings.NewReader(in), &out); err != nil {
		return nil, err
	}
	if closed != 1 {
		t.Errorf("the script was closed %d times, want 1", closed)
	}
	answers := json.NewDecoder(&out)
	var readings []Reading
	for range rounds {
		var ready string
		var r Reading
		if err := answers.Decode(&ready); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(&r); err != nil {
			t.Fatal(err)
		}
		readings = append(readings, r)
	}
	return readings, nil
}

// TestChildEndsAtOnce starts processes that end without reading their job, or without an answer.
func TestChildEndsAtOnce(t *testing.T) {
	for script, want := range map[string]string{
		`exec 0<&-; sleep 0.3; echo oh no >&2`: "measuring process failed: oh no",
		`exec 0<&-`:                            "broken pipe",
		`head -n 1 >/dev/null`:                 "measuring process failed: EOF",
	} {
		r := trialRun{Trial: &Trial{
			Program: Program{Text: bytes.Repeat([]byte("--\n"), 1<<20)}, // which fits no pipe
			Child: func(ctx context.Context) (*exec.Cmd, error) {
				return exec.CommandContext(ctx, "sh", "-c", script), nil
			},
		}}
		if _, err := r.startChild(t.Context(), Setup{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", script, err, want)
		}
	}
}

func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t)
	j := job{
		Program: Program{
			Name: "s.lua", Sinks: []string{"audit"}, Waits: map[string]time.Duration{"geo.find": time.Microsecond},
			Text: []byte(`local geo = require "geo"
				function main(event) if event.n == 3 then error("three") end return to("audit", event), {x = geo.find(event.n)} end`),
		},
		Settings: pool.Settings{Core: 1, Max: 1}, Setup: Setup{Goroutines: 4, Batch: 3}, Slice: 5 * time.Millisecond,
	}
	readings, err := serve(t, j, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readings {
		if r.Runs < 1 || r.Events != 3*r.Runs || r.Failed != r.Runs {
			t.Errorf("%d runs with %d events, %d of them failed", r.Runs, r.Events, r.Failed)
		}
		if r.VMs != 1 || r.Took < j.Slice || r.Peak == 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max {
			t.Errorf("%+v", r)
		}
	}
	j.Program.Text = []byte("function main(")
	if _, err := serve(t, j, 1); err == nil {
		t.Error("a script with a fault is measured")
	}
}
