//go:build cgo && luajit

package luajit

import (
	"fmt"
	"time"
)

// Probe finds out by experiment whether scripts may run compiled on this
// machine: whether LuaJIT may make executable memory, and whether a compiled
// loop can be stopped. When it returns an error, open VMs with NoJIT: they are
// slower, and their limits hold all the same.
func Probe(w *Watchdog) error {
	if err := probeCompiler(w); err != nil {
		return err
	}
	return probeHook(w)
}

// probeLimits are short, for a probe delays the start: a loop is compiled long
// before the watchdog first looks.
var probeLimits = Options{EventTime: time.Millisecond, BatchTime: time.Second, Memory: 8 << 20}

func probeCompiler(w *Watchdog) error {
	vm, err := Open(w, probeLimits)
	if err != nil {
		return err
	}
	defer vm.Close()
	err = vm.runTrusted(`
		assert(jit.status(), "the compiler is switched off")
		local loops = function() local x = 0 for i = 1, 1000 do x = x + i end return x end
		for i = 1, 100 do loops() end
		assert(require("jit.util").traceinfo(1), "no executable memory")`)
	if err != nil {
		return fmt.Errorf("compile Lua: %w", err)
	}
	return nil
}

// probeHook runs an endless loop whose hook is armed while it is compiled. The
// loop has an end of its own, should the hook not be seen.
func probeHook(w *Watchdog) error {
	vm, err := Open(w, probeLimits)
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := vm.Load("probe", []byte("function main() for i = 1, 1e9 do end end")); err != nil {
		return err
	}
	if vm.Call("main") == nil {
		return fmt.Errorf("stop a compiled loop: LuaJIT was built without LUAJIT_ENABLE_CHECKHOOK; build it with tools/luajit/build.sh")
	}
	return nil
}
