package publishing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// TestRunEnded ends a committer that has published one of three tables. The store must learn of
// that table, and why the others were not published.
func TestRunEnded(t *testing.T) {
	order := &lake.Order{Tables: []lake.TableOrder{{Settings: lake.Settings{Table: "a.done"}}, {Settings: lake.Settings{Table: "a.hangs"}}, {Settings: lake.Settings{Table: "a.unheard"}}}}
	ended := fmt.Sprintf(`{"tables":[{"table":"a.done","covered":1},{"table":"a.hangs","error":"%v"}]}`, lake.ErrEnded)
	tooLong := errors.New("it took too long")
	for _, test := range []struct {
		name, says string
		want       []string // errors of tables
		err        error
	}{
		{"it reports", ended, []string{"", "it took too long: " + lake.ErrEnded.Error(), "the committer's report omits the table"}, nil},
		{"its report is torn", ended[:40], nil, tooLong},
		{"it says nothing", "", nil, tooLong},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv("PATH", folder+":/usr/bin:/bin")
			script := "#!/bin/sh\ntrap 'echo '\\''" + test.says + "'\\''; kill $!; exit' TERM\nsleep 60 >&- 2>&- &\ntouch " + folder + "/begun\nwait\n"
			if err := os.WriteFile(filepath.Join(folder, program), []byte(script), 0o700); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(folder + "/begun"); err == nil {
						cancel(tooLong)
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			report, err := Run(ctx, order)
			if !errors.Is(err, test.err) || (report == nil) != (test.err != nil) {
				t.Fatalf("got %+v and the error %v, want the error %v", report, err, test.err)
			}
			for i, want := range test.want {
				if r := report.Tables[i]; r.Table != order.Tables[i].Table || r.Error != want || (r.Covered == 1) != (want == "") {
					t.Errorf("table %s: got %+v, want the error %q", order.Tables[i].Table, r, want)
				}
			}
			if report != nil && len(report.Tables) != len(test.want) {
				t.Errorf("got %d tables, want %d", len(report.Tables), len(test.want))
			}
		})
	}
}
