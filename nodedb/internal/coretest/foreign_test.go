//go:build cgo && lmdb

package coretest

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestConflictsOfOtherProcesses commits from another process while a transaction runs: it runs
// again only if nodes that it has read have other values.
func TestConflictsOfOtherProcesses(t *testing.T) {
	folder := t.TempDir()
	store, err := openCoreStore(folder, coreOptions{flushMs: 1, noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	s, err := store.session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	child := startChild(t, "model", folder, 1)
	other := func(ops ...modelOp) {
		t.Helper()
		for _, op := range append(ops, modelOp{Kind: "sync"}) {
			line, err := json.Marshal(op)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(child.input, string(line))
			if got := child.read(t); got != `""` {
				t.Fatalf("%v in the other process: %s", op, got)
			}
		}
	}
	do := func(what int, key, value string) string {
		call := coreCall{what: what, key: mustKey(t, key)}
		if value != "" {
			v := parsedScalar(value)
			call.a = &v
		}
		return s.do(call)
	}
	set := func(key, value string) modelOp { return modelOp{What: doSet, Key: key, A: value} }
	walk := coreCall{what: doWalk, key: mustKey(t, "^a"), flags: walkValues}
	for i, test := range []struct {
		read  func()
		other []modelOp
		want  string // of the commit
	}{
		{func() { do(doGet, "^a(1)", "") }, []modelOp{set("^b(1)", "2")}, ""},
		{func() { do(doGet, "^a(1)", "") }, []modelOp{set("^a(1)", "2")}, "NDB_E_CONFLICT"},
		{func() { do(doGet, "^a(1)", "") }, []modelOp{set("^a(1)", "2"), set("^a(1)", "1")}, ""}, // the same value again
		{func() { do(doGet, "^a(1)", "") }, []modelOp{{What: doKillValue, Key: "^a(1)"}}, "NDB_E_CONFLICT"},
		{func() { do(doGet, "^a(9)", "") }, []modelOp{set("^a(9)", "2")}, "NDB_E_CONFLICT"},
		{func() { do(doGet, "^a(1)", "") }, []modelOp{{What: doExpire, Key: "^a(1)", N: 1e7}}, "NDB_E_CONFLICT"},
		{func() { do(doData, "^a(1)", "") }, []modelOp{set("^a(1,1)", "2")}, "NDB_E_CONFLICT"},
		{func() { do(doData, "^a(1)", "") }, []modelOp{set("^a(2,1)", "2")}, ""},
		{func() { s.do(walk) }, []modelOp{set("^b(1)", "2")}, ""},
		{func() { s.do(walk) }, []modelOp{set("^a(3)", "9")}, "NDB_E_CONFLICT"},
		{func() { s.do(walk) }, []modelOp{set("^a(7)", "9")}, "NDB_E_CONFLICT"},
		{func() { s.do(walk) }, []modelOp{{What: doKill, Key: "^a(5)"}}, "NDB_E_CONFLICT"},
		{func() { do(doIncrement, "^a(2)", "1") }, []modelOp{set("^a(3)", "9")}, ""},
		{func() { do(doIncrement, "^a(2)", "1") }, []modelOp{set("^a(2)", "9")}, "NDB_E_CONFLICT"},
		{func() {}, []modelOp{set("^a(3)", "9")}, ""},
	} {
		other(modelOp{What: doKill, Key: "^a"})
		for n := range 5 {
			other(set(fmt.Sprintf("^a(%d)", n+1), "1"))
		}
		s.do(coreCall{what: doBegin})
		test.read()
		other(test.other...)
		do(doSet, "^written", "1")
		if got := s.do(coreCall{what: doCommit}); got != test.want && !(test.want == "" && got[:1] != "N") {
			t.Errorf("case %d: the commit gave %q, want %q", i, got, test.want)
		}
		s.do(coreCall{what: doRollback})
		if err := store.sync(); err != nil {
			t.Fatal(err)
		}
	}
}
