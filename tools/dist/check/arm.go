package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// armTests are the packages whose tests run for arm64, and which of them. TestStateAgainstModel
// allows an event 60 ms, and the emulator sometimes takes longer.
var armTests = []struct{ name, pkg, tests, skip string }{
	{"event", "./event/...", ".", ""},
	{"scripts in LuaJIT", "./script/luajit", ".", "^TestStateAgainstModel$"},
	{"pipeline", "./pipeline", ".", ""},
	{"perigee eval", "./cmd/perigee", "Eval", ""},
}

// checkARM runs tests that are compiled for arm64, from the clone that the binary was built from.
func (c *checker) checkARM() {
	unregister, err := c.registerEmulator()
	if err != nil {
		c.check("an emulator of arm64", err)
		return
	}
	defer unregister()
	source := c.path(".build/dist/source-arm64")
	env := []string{"CGO_ENABLED=1", "GOOS=linux", "GOARCH=arm64", "CC=aarch64-linux-gnu-gcc", "QEMU_LD_PREFIX=" + emulator[2]}
	flags := "-extldflags '-Wl,--exclude-libs,ALL -static-libgcc -L" + filepath.Join(source, ".build/static") + "'"
	for _, test := range armTests {
		out, err := c.run(source, env, "tools/go.sh", "test", "-short", "-vet=off", "-p=1", "-count=1", "-timeout", "15m", "-ldflags", flags, "-run", test.tests, "-skip", test.skip, test.pkg)
		if err == nil && !strings.Contains(out, "ok  \t") {
			err = errors.New("no test ran:\n" + out)
		}
		c.check("tests for arm64: "+test.name, err)
	}
}

// registerEmulator has the kernel run programs for arm64 with the emulator, which tests need that
// start themselves once more. It returns what ends that.
func (c *checker) registerEmulator() (unregister func(), err error) {
	const folder, name = "/proc/sys/fs/binfmt_misc", "perigee-aarch64"
	if _, err := os.Stat(filepath.Join(folder, "register")); err != nil {
		if _, err := c.run("/", nil, "mount", "-t", "binfmt_misc", "binfmt_misc", folder); err != nil {
			return nil, err
		}
	}
	unregister = func() { _ = os.WriteFile(filepath.Join(folder, name), []byte("-1"), 0) }
	unregister() // of a check that was killed
	const program = `\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00`
	const mask = `\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`
	return unregister, os.WriteFile(filepath.Join(folder, "register"), []byte(":"+name+":M::"+program+":"+mask+":/usr/bin/qemu-aarch64:"), 0)
}
