//go:build cgo && luajit && !asan

package luajit_test

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

// TestInvokeDoesNotAllocate calls with and without values, through Go and not. The
// address sanitizer makes Go allocate what it passes to C.
func TestInvokeDoesNotAllocate(t *testing.T) {
	f := loadFunctions(t, script.Limits{}, pool.Settings{})
	many, err := f.Function("many")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	var args, results luajit.Values
	per := testing.AllocsPerRun(1000, func() {
		args.Reset()
		args.AddNumber(1.5)
		args.AddString("text")
		if err := many.InvokeInto(ctx, &args, &results); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Invoke(ctx, "helloLua"); err != nil {
			t.Fatal(err)
		}
	})
	if per > 0 {
		t.Errorf("%v allocations for two calls", per)
	}
}
