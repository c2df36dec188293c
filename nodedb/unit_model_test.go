package nodedb_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/nodedb"
)

// A unitModel is what a unit should contain. A key is a name of one letter and subscripts of one
// digit each, so keys are ordered as nodes are, and a descendant's key begins with its ancestor's.
type unitModel map[string]modelNode

type modelNode struct {
	value  nodedb.Value
	expiry int64 // ms since 1970; 0: never
}

func modelPath(key string) nodedb.Path {
	p := nodedb.Name("^" + key[:1])
	for _, digit := range key[1:] {
		p = p.At(int(digit - '0'))
	}
	return p
}

// get returns the value of a node at a time.
func (m unitModel) get(key string, now int64) (modelNode, bool) {
	n, ok := m[key]
	return n, ok && (n.expiry == 0 || n.expiry > now)
}

// dump returns the nodes that exist at a time, a line each.
func (m unitModel) dump(now int64, reverse bool) string {
	keys := slices.Sorted(maps.Keys(m))
	if reverse {
		slices.Reverse(keys)
	}
	var b strings.Builder
	for _, key := range keys {
		if n, ok := m.get(key, now); ok {
			fmt.Fprintf(&b, "%v=%v\n", modelPath(key), n.value)
		}
	}
	return b.String()
}

// dumpTx returns the nodes of a transaction as unitModel.dump does.
func dumpTx(tx *nodedb.Tx, reverse bool) (string, error) {
	var b strings.Builder
	for node, err := range tx.Walk(ctx, nodedb.Path{}, nodedb.Range{Reverse: reverse}) {
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%v=%v\n", node.Path, node.Value)
	}
	return b.String(), nil
}

// A change is a random operation on a node.
type change struct {
	kind, key string
	number    int
}

var changeKinds = []string{"set", "set", "set text", "increment", "increment", "kill", "kill value", "expire", "persist", "merge", "kill range"}

func (c change) String() string { return fmt.Sprintf("%s %s %d", c.kind, c.key, c.number) }

// applyToModel makes the change in a model. It returns the sum of an increment, and whether the node
// had a value before.
func (c change) applyToModel(m unitModel, now int64) (sum int64, exists bool) {
	old, exists := m.get(c.key, now)
	set := func(v any, expiry int64) {
		value, _ := nodedb.ValueOf(v)
		m[c.key] = modelNode{value, expiry}
	}
	switch c.kind {
	case "set":
		set(c.number, 0)
	case "set text":
		set(strings.Repeat("t", c.number), 0)
	case "increment":
		var expiry int64
		if exists {
			expiry = old.expiry
			sum, _ = old.value.Int()
		}
		sum += int64(c.number)
		set(sum, expiry)
	case "kill":
		maps.DeleteFunc(m, func(key string, _ modelNode) bool { return strings.HasPrefix(key, c.key) })
	case "kill value":
		delete(m, c.key)
	case "kill range":
		maps.DeleteFunc(m, func(key string, _ modelNode) bool {
			return strings.HasPrefix(key, c.key) && len(key) > len(c.key) && key[len(c.key)] >= '1' && key[len(c.key)] <= '2'
		})
	case "merge":
		for key, n := range maps.Clone(m) {
			if rest, ok := strings.CutPrefix(key, c.key); ok && (n.expiry == 0 || n.expiry > now) {
				m[c.target()+rest] = n
			}
		}
	case "expire", "persist":
		if exists {
			m[c.key] = modelNode{old.value, c.expiry(now)}
		}
	}
	return sum, exists
}

// target is the node that a merge copies to.
func (c change) target() string { return string('a'+(c.key[0]-'a'+1)%3) + c.key[1:] }

// expiry is when an "expire" makes the node expire.
func (c change) expiry(now int64) int64 {
	if c.kind == "persist" {
		return 0
	}
	return now + int64(c.number)
}

// apply makes the change in both, and compares what it returns.
func (c change) apply(tx *nodedb.Tx, m unitModel, now int64) error {
	p := modelPath(c.key)
	want, exists := c.applyToModel(m, now)
	found, err := exists, error(nil)
	switch c.kind {
	case "set":
		return tx.Set(p, c.number)
	case "set text":
		return tx.Set(p, strings.Repeat("t", c.number))
	case "increment":
		sum, err := tx.Increment(p, c.number)
		if got, _ := sum.Int(); err == nil && got != want {
			err = fmt.Errorf("%v: the sum is %v, want %d", c, sum, want)
		}
		return err
	case "kill":
		return tx.Kill(p)
	case "kill value":
		return tx.KillValue(p)
	case "kill range":
		return tx.KillRange(ctx, p, 1, 2)
	case "merge":
		return tx.Merge(ctx, modelPath(c.target()), p)
	case "expire":
		found, err = tx.ExpireAt(p, time.UnixMilli(c.expiry(now)))
	case "persist":
		found, err = tx.Persist(p)
	}
	if err == nil && found != exists {
		err = fmt.Errorf("%v: found %t, want %t", c, found, exists)
	}
	return err
}

// compareTx compares all nodes of a transaction with a model, in both directions, and some by get.
func compareTx(tx *nodedb.Tx, m unitModel, now int64, keys ...string) error {
	for _, reverse := range []bool{false, true} {
		got, err := dumpTx(tx, reverse)
		if err != nil {
			return err
		}
		if expected := m.dump(now, reverse); got != expected {
			return fmt.Errorf("reverse %t: the nodes are\n%swant\n%s", reverse, got, expected)
		}
	}
	for _, key := range keys {
		expected, exists := m.get(key, now)
		got, err := tx.Get(modelPath(key))
		if err != nil {
			return err
		}
		if got.Exists() != exists || exists && got != expected.value {
			return fmt.Errorf("%s is %v, want %v", key, got, expected.value)
		}
		below := false
		for other := range m {
			_, ok := m.get(other, now)
			below = below || ok && strings.HasPrefix(other, key) && other != key
		}
		value, descendants, err := tx.Data(modelPath(key))
		if err != nil || value != exists || descendants != below {
			return fmt.Errorf("%s has a value %t and descendants %t, want %t and %t (%v)", key, value, descendants, exists, below, err)
		}
	}
	return nil
}

// A modelDelta is a delta in flight.
type modelDelta struct {
	delta *nodedb.Delta
	nodes unitModel // after it
	now   int64
}

// TestUnitModel runs random operations on a unit, with deltas in flight and a committer that
// writes small slices, always or when asked, and compares it with a model, and with a copy that applies encoded deltas.
func TestUnitModel(t *testing.T) {
	openUnit(t, t.TempDir(), lazy) // skips the test in a build without the database
	var folders int
	top := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		folders++
		folder := filepath.Join(top, fmt.Sprint(folders))
		age := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Hour}).Draw(t, "flush age")
		options := nodedb.UnitOptions{NoSync: true, FlushAge: age}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		opened := func(folder string) *nodedb.Unit {
			u, err := nodedb.OpenUnitInSlices(folder, options, 3)
			must(err)
			return u
		}
		u, copied := opened(folder), opened(folder+"copy")
		defer func() {
			must(errors.Join(u.Close(), copied.Close()))
			must(errors.Join(os.RemoveAll(folder), os.RemoveAll(folder+"copy")))
		}()
		committed, clock := unitModel{}, int64(0)
		var flight []*modelDelta
		now := start.UnixMilli()
		open := func() *modelDelta {
			if n := len(flight); n > 0 && flight[n-1].delta.Session() != nil {
				return flight[n-1]
			}
			t.Skip("no delta is open")
			return nil
		}
		key := rapid.StringMatching(`[abc][1-4]{0,3}`)
		changes := rapid.Custom(func(t *rapid.T) change {
			return change{rapid.SampledFrom(changeKinds).Draw(t, "kind"), key.Draw(t, "key"), rapid.IntRange(1, 40).Draw(t, "number")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if n := len(flight); n == 16 || n > 0 && flight[n-1].delta.Session() != nil {
					t.Skip("no delta may begin")
				}
				now += int64(rapid.IntRange(0, 10).Draw(t, "ms"))
				d, err := u.Begin(time.UnixMilli(now))
				must(err)
				before := committed
				if n := len(flight); n > 0 {
					before = flight[n-1].nodes
				}
				flight = append(flight, &modelDelta{d, maps.Clone(before), now})
			},
			"change": func(t *rapid.T) {
				d := open()
				for _, c := range rapid.SliceOfN(changes, 1, 10).Draw(t, "changes") {
					must(c.apply(d.delta.Tx(), d.nodes, d.now))
				}
			},
			"nested": func(t *rapid.T) {
				d := open()
				before := maps.Clone(d.nodes)
				failed := errors.New("failed")
				err := d.delta.Tx().Update(ctx, func(tx *nodedb.Tx) error {
					for _, c := range rapid.SliceOfN(changes, 1, 10).Draw(t, "changes") {
						must(c.apply(tx, d.nodes, d.now))
					}
					if rapid.Bool().Draw(t, "fails") {
						return failed
					}
					return nil
				})
				if err == failed {
					d.nodes = before
				} else {
					must(err)
				}
			},
			"freeze": func(t *rapid.T) { must(open().delta.Freeze()) },
			"commit": func(t *rapid.T) {
				if len(flight) == 0 || flight[0].delta.Session() != nil {
					t.Skip("no delta is frozen")
				}
				d, number := flight[0], u.Last()+1
				encoded, err := d.delta.AppendTo(nil)
				must(err)
				must(u.Commit(d.delta, number, 0))
				must(copied.Apply(number, 0, encoded))
				committed, clock, flight = d.nodes, d.now, flight[1:]
			},
			"drop": func(t *rapid.T) {
				u.Drop()
				flight = nil
				now = max(clock, start.UnixMilli())
			},
			"sync": func(t *rapid.T) { must(u.Sync(ctx)) },
			"reopen": func(t *rapid.T) {
				number := u.Last()
				must(errors.Join(u.Close(), copied.Close()))
				u, copied, flight = opened(folder), opened(folder+"copy"), nil
				now = max(clock, start.UnixMilli())
				if applied, begun, _ := u.Positions(); applied != number || begun != number {
					t.Fatalf("positions %d and %d after a reopen, want %d", applied, begun, number)
				}
			},
			"": func(t *rapid.T) {
				one := key.Draw(t, "key")
				if n := len(flight); n > 0 && flight[n-1].delta.Session() != nil {
					d := flight[n-1]
					must(compareTx(d.delta.Tx(), d.nodes, d.now, one))
				}
				for _, unit := range []*nodedb.Unit{u, copied} {
					must(unit.View(ctx, func(tx *nodedb.Tx) error { return compareTx(tx, committed, clock, one) }))
				}
			},
		})
	})
}

// changesOf returns the changes of a delta in the crash test, which depend only on its number.
func changesOf(number uint64) (changes []change, now int64) {
	r := rand.New(rand.NewPCG(number, 7))
	for range 1 + r.IntN(600) {
		key := string(rune('a' + r.IntN(3)))
		for range r.IntN(5) {
			key += string(rune('0' + r.IntN(10)))
		}
		changes = append(changes, change{changeKinds[r.IntN(len(changeKinds))], key, 1 + r.IntN(40)})
	}
	return changes, start.UnixMilli() + int64(number)
}

// crashOptions write small slices of crashSlice changes all the time.
var crashOptions = nodedb.UnitOptions{FlushAge: time.Millisecond, NoSync: true}

const crashSlice = 5

// appendNote makes the delta with a number, appends it to a file in place of a pipeline's home, and
// commits it.
func appendNote(u *nodedb.Unit, notes io.Writer, m unitModel, number uint64) error {
	changes, now := changesOf(number)
	d, err := u.Begin(time.UnixMilli(now))
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := c.apply(d.Tx(), m, now); err != nil {
			return err
		}
	}
	if err := d.Freeze(); err != nil {
		return err
	}
	encoded, err := d.AppendTo(make([]byte, 4))
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(encoded, uint32(len(encoded)-4))
	if _, err := notes.Write(encoded); err != nil {
		return err
	}
	return u.Commit(d, number, 0)
}

// readNotes returns the complete notes in a file, and removes one that was cut off.
func readNotes(file string) (notes [][]byte, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	at := 0
	for len(data)-at >= 4 {
		n := int(binary.LittleEndian.Uint32(data[at:]))
		if n > len(data)-at-4 {
			break
		}
		notes = append(notes, data[at+4:at+4+n])
		at += 4 + n
	}
	return notes, os.Truncate(file, int64(at))
}

// TestUnitAfterKill kills a process that commits deltas, at random moments, and applies the deltas
// that the file lacks. The unit then has what a model has.
func TestUnitAfterKill(t *testing.T) {
	const variable = "PERIGEE_TEST_UNIT"
	if folder := os.Getenv(variable); folder != "" {
		fmt.Println(writeUntilKilled(folder))
		os.Exit(1)
	}
	openUnit(t, t.TempDir(), lazy) // skips the test in a build without the database
	folder := t.TempDir()
	file := filepath.Join(folder, "notes")
	check(t, os.WriteFile(file, nil, 0o600))
	r := testseed.New(t)
	model, modelled, replayed, cut := unitModel{}, uint64(0), 0, 0
	for round := 0; round < 8 || round < 40 && cut < 3; round++ {
		writer := exec.Command(os.Args[0], "-test.run=^TestUnitAfterKill$")
		writer.Env = append(os.Environ(), variable+"="+folder)
		out, err := writer.StdoutPipe()
		check(t, err)
		check(t, writer.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != "started\n" {
			t.Fatalf("the writer says %q (%v)", line, err)
		}
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		check(t, writer.Process.Kill())
		_ = writer.Wait() // it was killed

		notes, err := readNotes(file)
		check(t, err)
		u := openUnitInSlices(t, filepath.Join(folder, "unit"), crashOptions, crashSlice)
		applied, begun, _ := u.Positions()
		if begun > uint64(len(notes)) {
			t.Fatalf("the file has parts of delta %d, but only %d were written", begun, len(notes))
		}
		if begun > applied {
			cut++
			_, err := u.Begin(start)
			wantError(t, err, nodedb.ErrIncomplete)
		}
		for number := applied + 1; number <= uint64(len(notes)); number++ {
			check(t, u.Apply(number, 0, notes[number-1]))
			replayed++
		}
		for ; modelled < uint64(len(notes)); modelled++ {
			model.replay(modelled + 1)
		}
		_, now := changesOf(modelled)
		check(t, u.View(ctx, func(tx *nodedb.Tx) error { return compareTx(tx, model, now) }))
		check(t, u.Close())
		store := openFolder(t, filepath.Join(folder, "unit"), nodedb.Options{ReadOnly: true})
		if faults, err := store.Check(func(fault string) { t.Error(fault) }); faults != 0 || err != nil {
			t.Fatalf("%d faults (%v)", faults, err)
		}
		check(t, store.Close())
	}
	t.Logf("%d deltas, %d of them applied again; %d writes were cut off", modelled, replayed, cut)
	if modelled == 0 || replayed == 0 {
		t.Error("the writer was always killed before its first delta, or after its last write")
	}
}

// replay applies the changes of the delta with a number to the model.
func (m unitModel) replay(number uint64) {
	changes, now := changesOf(number)
	for _, c := range changes {
		c.applyToModel(m, now)
	}
}

// writeUntilKilled applies the notes that the unit lacks, and commits deltas for ever.
func writeUntilKilled(folder string) error {
	file := filepath.Join(folder, "notes")
	notes, err := readNotes(file)
	if err != nil {
		return err
	}
	u, err := nodedb.OpenUnitInSlices(filepath.Join(folder, "unit"), crashOptions, crashSlice)
	if err != nil {
		return err
	}
	m := unitModel{}
	for number := uint64(1); number <= uint64(len(notes)); number++ {
		if number > u.Last() {
			if err := u.Apply(number, 0, notes[number-1]); err != nil {
				return err
			}
		}
		m.replay(number)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	fmt.Println("started")
	for number := uint64(len(notes)) + 1; ; number++ {
		if err := appendNote(u, out, m, number); err != nil {
			return err
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumDelta returns an encoded delta with another body.
func sumDelta(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, castagnoli))
}

// FuzzApply applies bytes with a valid checksum. Whatever they are, the unit stays usable: what it
// refuses changes nothing, and what it takes can be encoded again.
func FuzzApply(f *testing.F) {
	u := openUnitInSlices(f, f.TempDir(), nodedb.UnitOptions{NoSync: true, FlushAge: time.Millisecond}, 10)
	d := freeze(f, u, start, func(tx *nodedb.Tx) {
		for i, v := range []any{"text", 1, -1.5, true, must(nodedb.ValueOf("123456789.123456789"))} {
			check(f, tx.Set(nodedb.Name("^p").At(i, "sub"), v))
		}
		check(f, tx.Kill(nodedb.Name("^gone").At(1)))
		check(f, tx.Kill(nodedb.Name("^gone").At(1.5)))
		check(f, tx.KillValue(nodedb.Name("^p")))
		must(tx.Expire(nodedb.Name("^p").At(0, "sub"), time.Minute))
	})
	encoded := must(d.AppendTo(nil))
	commit(f, u, d)
	f.Add(encoded[:len(encoded)-4])
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		number := u.Last() + 1
		before := must(u.Stats()).WaitingNodes
		if err := u.Apply(number, 0, sumDelta(body)); err != nil {
			wantError(t, err, nodedb.ErrCorrupt)
			if u.Last() != number-1 || must(u.Stats()).WaitingNodes > before {
				t.Error("a delta that was refused has changed the unit")
			}
			return
		}
		check(t, u.View(ctx, func(tx *nodedb.Tx) error {
			_, err := dumpTx(tx, false)
			return err
		}))
		empty := freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Kill(nodedb.Name("^p"))) })
		if _, err := empty.AppendTo(nil); err != nil {
			t.Error(err)
		}
		check(t, u.Commit(empty, number+1, 0))
	})
}
