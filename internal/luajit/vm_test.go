//go:build cgo && luajit

package luajit

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func defaults() Options {
	return Options{EventTime: 100 * time.Millisecond, BatchTime: 2 * time.Second, Memory: 16 << 20}
}

func open(t *testing.T, opts Options) *VM {
	t.Helper()
	w := NewWatchdog()
	vm, err := Open(w, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vm.Close(); w.Close() })
	return vm
}

func load(t *testing.T, code string) *VM {
	t.Helper()
	vm := open(t, defaults())
	if err := vm.Load("email.lua", []byte(code)); err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestFaults(t *testing.T) {
	tests := []struct {
		name, code string
		want       Error
	}{
		{"compiles not", "local x = \nlocal = 3", Error{Kind: Syntax, Line: 2, Message: "unexpected symbol near 'local'"}},
		{"bytecode", "\x1bLJ\x02", Error{Kind: Syntax, Message: "attempt to load chunk with wrong mode"}},
		{"error", "\nerror('boom')", Error{Kind: Runtime, Line: 2, Message: "boom", Traceback: "  email.lua:2: in main chunk"}},
		{"nil call", "local x\nx()", Error{Kind: Runtime, Line: 2, Message: "attempt to call local 'x' (a nil value)", Traceback: "  email.lua:2: in main chunk"}},
		{"error object", "error({})", Error{Kind: Runtime, Line: 1, Message: "(error object is a table)", Traceback: "  email.lua:1: in main chunk"}},
		{"nested", "local function f() error('deep', 0) end\nlocal function g() f() end\ng()",
			Error{Kind: Runtime, Line: 1, Message: "deep", Traceback: "  email.lua:1: in f\n  email.lua:2: in g\n  email.lua:3: in main chunk"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var f *Error
			if err := open(t, defaults()).Load("email.lua", []byte(test.code)); !errors.As(err, &f) {
				t.Fatalf("got %v, want a fault", err)
			}
			if *f != test.want {
				t.Errorf("got  %+v\nwant %+v", *f, test.want)
			}
		})
	}
}

func TestPrintReachesTheLog(t *testing.T) {
	vm := load(t, "print('a', 1, nil) print()")
	var got []string
	vm.ReadLog(func(level slog.Level, text, place string) { got = append(got, level.String()+" "+text+" "+place) })
	if want := "INFO a\t1\tnil email.lua:1,INFO  email.lua:1"; strings.Join(got, ",") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	vm.ReadLog(func(_ slog.Level, text, _ string) { t.Errorf("%q came twice", text) })
}

func TestVMGoesOnAfterAnError(t *testing.T) {
	vm := load(t, "local n = 0 function main() n = n + 1 if n < 3 then error('no') end end")
	for want := range []string{"error", "error", ""} {
		if err := vm.Call("main"); (err == nil) != (want == 2) {
			t.Fatalf("call %d: %v", want, err)
		}
	}
	if vm.Broken() != OK {
		t.Errorf("broken by %v", vm.Broken())
	}
}
