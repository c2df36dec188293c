//go:build cgo && luajit

package luajit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb/lua"
)

// nodePrelude extends programPrelude for programs on the node database. It replaces values that the
// database rejects, since compiled code may give a NaN another sign, and thus an error another
// text.
const nodePrelude = `local nodedb, ydb = require "nodedb", require "yottadb"
local root, memory, text = nodedb.node("^r"), nodedb.node("m"), ydb.node("^r")
local function val(v)
  if type(v) == "number" and (v ~= v or v - v ~= 0) then return 1 end
  if type(v) == "table" or type(v) == "function" or v == nil then return "t" end
  return v
end
local function sub(v)
  v = val(v)
  if type(v) == "boolean" then return "b" end
  if type(v) == "number" then return int(v) % 7 end
  if type(v) == "string" then return "k" .. v:sub(1, 3) end
  return v
end
`

// nodeProgram returns the script on the node database for a seed.
func nodeProgram(seed uint64) string {
	p := &programmer{Rand: rand.New(rand.NewPCG(seed, 2)), vars: map[byte]int{}, nodes: true}
	p.out.WriteString(strings.Replace(programPrelude, "steps > 6000", "steps > 150", 1))
	p.out.WriteString(nodePrelude)
	return p.program()
}

func (p *programmer) node() string {
	of := p.pick("root", "root", "memory", "text")
	for range 1 + p.IntN(2) {
		of += "[sub(" + p.pick(p.text(), p.number(), p.any(), "event.big") + ")]"
	}
	return of
}

func (p *programmer) value() string {
	return "val(" + p.pick(p.text(), p.text(), p.number(), p.any(), "event.big", "('v'):rep(int("+p.number()+") % 90 + 20)") + ")"
}

func (p *programmer) nodeStatement() {
	bounds := func() string {
		return p.pick("", "true", "{from = sub("+p.text()+")}", "{from = sub("+p.text()+"), to = sub("+p.text()+")}",
			"{to = 'k' .. int("+p.number()+") % 9, limit = 3}", "{reverse = true, from = sub("+p.any()+")}")
	}
	switch p.IntN(14) {
	case 0, 1:
		p.line("note(pcall(%s.set, %s, %s))", p.node(), p.node(), p.value())
	case 2:
		p.line("%s = %s.__", p.variable('a'), p.node())
	case 3:
		p.line("note(%s:incr(num(tonumber(%s))))", p.node(), p.text())
	case 4, 5:
		p.line("for s, v in %s:%s(%s) do", p.pick("root", "memory", "text", p.node()), p.pick("subscripts", "values"), bounds())
		p.line("  tick()")
		p.line("  note(s, v)")
		if p.depth < 5 {
			p.block(1)
		}
		p.line("end")
	case 6:
		p.line("note(nodedb.str2zwr(%s), nodedb.zwr2str(nodedb.str2zwr(%s)))", p.value(), p.value())
	case 7:
		p.line("note(%s:compare_and_set(%s, %s))", p.node(), p.pick("event.big", p.value(), "nil"), p.pick("event.big", p.value()))
	case 8:
		p.line("note(pcall(nodedb.set, '^r', sub(%s), sub(%s), %s))", p.text(), p.any(), p.value())
	case 9:
		p.line("note(pcall(nodedb.get, '^r', sub(%s), sub(%s)))", p.text(), p.any())
	case 10:
		p.line("note(pcall(nodedb.tp, %s, function()", p.pick("{}", "{'m'}", "{'^m'}", "{'*'}", "{5}", "'BATCH'"))
		p.block(2)
		p.line("  %s", p.pick("", "", "nodedb.trollback()", "error(str("+p.any()+"))", "return -101", "return -102", "tick() nodedb.trestart()"))
		p.line("end))")
	case 11:
		p.line("note(nodedb.load(nodedb.dump(%s, 20)))", p.pick("'^r'", "root", "memory"))
	case 12:
		p.line("%s:settree({[sub(%s)] = %s, x = {__ = %s}})", p.pick("root", "memory"), p.text(), p.value(), p.value())
		p.line("note(root:gettree(2))")
	case 13:
		p.line("note(nodedb.subscript_next('^r', sub(%s)), nodedb.subscript_previous('^r', sub(%s)), %s:data(), tostring(%s))",
			p.text(), p.any(), p.node(), p.node())
	}
}

// TestCollectingPrograms runs random programs on the node database with a full garbage collection
// before each of its calls, compiled and interpreted. Their notes, results and errors must be the
// same as without. PERIGEE_NODE_PROGRAMS is the number of programs.
func TestCollectingPrograms(t *testing.T) {
	programs := testsize.Count(12, 30)
	if testing.Short() {
		programs = 6
	}
	if text := os.Getenv("PERIGEE_NODE_PROGRAMS"); text != "" {
		var err error
		if programs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := NewWatchdog()
	defer w.Close()
	escaped, compared := 0, 0
	for seed := range uint64(programs) {
		text := nodeProgram(seed)
		run := func(settings string, collect bool) (string, bool) {
			return runProgramWith(t, w, text, settings, Setup{Extension: lua.NewExtension(nodeStore(t)), CollectBeforeCalls: collect})
		}
		want, limit := run("", false)
		if limit {
			continue
		}
		for _, settings := range []string{"", compilerSettings[seed%uint64(len(compilerSettings))]} {
			got, limit := run(settings, true)
			if limit {
				continue
			}
			compared++
			if got != want {
				escaped++
				t.Errorf("seed %d, compiled with %q, collecting:\n%s\nwithout:\n%s\nprogram:\n%s", seed, settings,
					differing(got, want), differing(want, got), text)
			}
		}
	}
	if compared == 0 {
		t.Error("no program was compared")
	}
	t.Logf("%d runs compared", compared)
	fmt.Printf("figure torture_collected %d\nfigure torture_escaped %d\n", compared, escaped)
}
