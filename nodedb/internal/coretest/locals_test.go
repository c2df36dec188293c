//go:build cgo && lmdb

package coretest

import (
	"strings"
	"testing"
)

// TestLocalsOfOneName restores trees in memory by name: at a rollback, at a restart, and in an
// inner transaction.
func TestLocalsOfOneName(t *testing.T) {
	store, err := openCoreStore(t.TempDir(), coreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	s, err := store.session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	key := func(name string, subscripts ...coreScalar) []byte {
		key, err := coreEncode(name, subscripts)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	one, seven := num(1), num(7)
	nodes := map[string][]byte{
		"a": key("a"), "a(7)": key("a", seven), "ab": key("ab"), "b": key("b"), "A": key("A"), "fresh": key("fresh"), "^a": key("^a"),
	}
	set := func(value float64) {
		t.Helper()
		for _, name := range []string{"a", "a(7)", "ab", "b", "A", "^a"} {
			v := num(value)
			if got := s.do(coreCall{what: doSet, key: nodes[name], a: &v}); strings.HasPrefix(got, "NDB_E") {
				t.Fatal(name, got)
			}
		}
	}
	restore := func(name, want string) {
		t.Helper()
		if got := s.do(coreCall{what: doRestoreLocal, key: []byte(name)}); got != want && !(want == "" && !strings.HasPrefix(got, "NDB_")) {
			t.Errorf("restore %q: %q, want %q", name, got, want)
		}
	}
	begin := func() { s.do(coreCall{what: doBegin}) }
	check := func(when string, want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got := s.do(coreCall{what: doGet, key: nodes[name]}); got != value {
				t.Errorf("%s, %s is %s, want %s", when, name, got, value)
			}
		}
	}
	text := func(x float64) string {
		v := num(x)
		if got := s.do(coreCall{what: doSet, key: key("spelled"), a: &v}); strings.HasPrefix(got, "NDB_E") {
			t.Fatal(got)
		}
		return s.do(coreCall{what: doGet, key: key("spelled")})
	}
	first, second := text(1), text(2)
	restore("a", "NDB_E_LEVEL")
	set(1)

	begin()
	restore("^a", "NDB_E_ARGUMENT")
	restore(strings.Repeat("n", 32), "NDB_E_ARGUMENT")
	restore(strings.Repeat("n", 31), "")
	restore("a", "")
	restore("fresh", "")
	set(2)
	s.do(coreCall{what: doSet, key: nodes["fresh"], a: &one})
	s.do(coreCall{what: doRollback})
	check("rolled back", map[string]string{"a": first, "a(7)": first, "ab": second, "b": second, "A": second, "^a": first, "fresh": "NDB_NONE"})

	set(1)
	begin()
	restore("ab", "")
	set(2)
	s.do(coreCall{what: doKill, key: nodes["b"]})
	s.do(coreCall{what: doRestart})
	check("restarted", map[string]string{"a": second, "ab": first, "b": "NDB_NONE", "^a": first})
	s.do(coreCall{what: doRollback})

	set(1)
	begin()
	restore("b", "")
	begin()
	restore("a", "")
	set(2)
	s.do(coreCall{what: doRollback})
	check("the inner one rolled back", map[string]string{"a": first, "a(7)": first, "ab": second, "b": second, "^a": first})
	s.do(coreCall{what: doCommit})
	check("committed", map[string]string{"a": first, "ab": second, "b": second, "^a": first})
}
