package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
)

//go:embed lua/bench.lua
var luaProgram []byte

// luaSide runs jobs as a Lua program on a store of its own.
type luaSide struct {
	interpreter string // path
	program     string
	store       string // folder
	env         []string
}

// modules says where require finds nodedb.
type modules struct {
	lua    string // folder of the Lua files
	native string // folder of a folder for each version of Lua, which make nodedb-lua fills
}

// An interpreter is a Lua of Debian.
type interpreter struct {
	binary        string
	debianPackage string
	version       string // of Lua, whose modules it loads
}

var (
	luaJIT = interpreter{"luajit", "luajit", "5.1"}
	lua54  = interpreter{"lua5.4", "lua5.4", "5.4"}
)

func newLuaSide(i interpreter, program string, m modules, store string) (*luaSide, error) {
	path, err := testserver.FindBinary(i.binary, i.debianPackage)
	if err != nil {
		return nil, err
	}
	lua, err := filepath.Abs(m.lua)
	if err != nil {
		return nil, err
	}
	native, err := filepath.Abs(filepath.Join(m.native, i.version))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(native, "nodedb", "native.so")); err != nil {
		return nil, fmt.Errorf("the module for %s is missing: run make nodedb-lua: %w", i.binary, err)
	}
	env := append(os.Environ(), "LUA_PATH="+filepath.Join(lua, "?.lua")+";;", "LUA_CPATH="+filepath.Join(native, "?.so")+";;")
	return &luaSide{interpreter: path, program: program, store: store, env: env}, nil
}

// run runs a job of bench.lua in a fresh process. The time is that between its two lines.
func (l *luaSide) run(ctx context.Context, job string, args ...int) (measurement, error) {
	words := []string{l.program, l.store, job}
	for _, arg := range args {
		words = append(words, strconv.Itoa(arg))
	}
	cmd := exec.CommandContext(ctx, l.interpreter, words...)
	cmd.Env = l.env
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.StdoutPipe()
	if err != nil {
		return measurement{}, err
	}
	if err := cmd.Start(); err != nil {
		return measurement{}, err
	}
	result, readErr := readMeasurement(bufio.NewReader(out))
	if err := cmd.Wait(); err != nil {
		return measurement{}, fmt.Errorf("%s %s: %w\n%s", filepath.Base(l.interpreter), strings.Join(words, " "), err, failure.String())
	}
	return result, readErr
}

func readMeasurement(out *bufio.Reader) (measurement, error) {
	line, err := out.ReadString('\n')
	began := time.Now()
	if err != nil || line != "start\n" {
		return measurement{}, fmt.Errorf("unexpected output %q instead of start: %v", line, err)
	}
	line, err = out.ReadString('\n')
	took := time.Since(began)
	if err != nil {
		return measurement{}, fmt.Errorf("unexpected output %q: %w", line, err)
	}
	result := measurement{took: took}
	if _, err := fmt.Sscan(line, &result.operations, &result.found); err != nil {
		return measurement{}, fmt.Errorf("unexpected output %q: %w", line, err)
	}
	return result, nil
}
