//go:build cgo && lmdb

package coretest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
)

// The model test compares a store with a plain sorted map. A list of random operations of several
// sessions, in one or two processes, runs on both; every result must be the same. A failing list is
// reduced to a few operations and printed with its seed.

// A modelOp is one operation. Nodes and values are in ZWRITE format.
type modelOp struct {
	Session int
	Kind    string `json:",omitempty"` // one of kindNames, or "" for a call of What
	What    int
	Key     string `json:",omitempty"`
	Other   string `json:",omitempty"` // the target of a merge
	A, B    string `json:",omitempty"` // a value and the value that it replaces; the bounds of a walk
	N       uint64 `json:",omitempty"`
	Flags   int    `json:",omitempty"`
}

var callNames = map[int]string{
	doGet: "get", doSet: "set", doSetNew: "set new", doCAS: "compare and set", doData: "data", doIncrement: "increment",
	doKillValue: "kill value", doKill: "kill", doExpire: "expire", doTTL: "ttl", doNext: "next", doPrevious: "previous",
	doNextNode: "next node", doPreviousNode: "previous node", doWalk: "walk", doCount: "count", doMerge: "merge", doBegin: "begin",
	doCommit: "commit", doRollback: "rollback", doRestart: "restart", doMark: "mark", doUndo: "undo", doRestoreLocal: "restore local",
	doExpireAt: "expire at", doExpireTree: "expire tree", doKillRange: "kill range", doSetAll: "set all",
}

func (op modelOp) String() string {
	name := op.Kind
	if name == "" {
		name = callNames[op.What]
	}
	text := fmt.Sprintf("session %d: %s", op.Session, name)
	for _, part := range []string{op.Key, op.Other, op.A, op.B} {
		if part != "" {
			text += " " + shown(part)
		}
	}
	if op.N != 0 || op.Flags != 0 {
		text += fmt.Sprintf(" (n %d, flags %d)", op.N, op.Flags)
	}
	return text
}

// shown truncates long values.
func shown(text string) string {
	for _, long := range []string{"long", "v", "w"} {
		text = regexp.MustCompile("("+long+"){5,}").ReplaceAllString(text, long+"…")
	}
	return text
}

// ---- the model ----

type modelValue struct {
	text    string
	expires bool // one hour later
}

// A modelTree maps encoded keys to values.
type modelTree map[string]modelValue

func within(key, top string) bool {
	return len(key) > len(top) && strings.HasPrefix(key, top) && (top == "" || key[len(top)] != 0xFF)
}

// descendants returns the keys below top in order.
func (t modelTree) descendants(top string) (keys []string) {
	for key := range t {
		if within(key, top) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// children returns the keys of the children of top in order, including those without a value.
func (t modelTree) children(top string) (keys []string) {
	for key := range t {
		if !within(key, top) {
			continue
		}
		if top == "" {
			keys = append(keys, key[:strings.IndexByte(key, 0)+1])
		} else {
			keys = append(keys, key[:len(top)+coreSubscriptLen([]byte(key), len(top))])
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (t modelTree) kill(top string) {
	delete(t, top)
	for _, key := range t.descendants(top) {
		delete(t, key)
	}
}

// A modelSession is the view of one session.
type modelSession struct {
	number     int
	local      modelTree
	level      int
	stored     modelTree // inside a transaction
	levels     []modelSaved
	marks      []modelMark // those of the innermost level are last
	steps      []modelStep
	writes     int // number of writes not undone
	begun      int // number of commits of the store before its begin
	conflicts  int
	localSaves []modelLocalSave
	iterator   *modelIterator
}

type modelSaved struct {
	stored        modelTree
	writes, marks int
}

type modelMark struct {
	number uint64
	saved  modelSaved
}

type modelLocalSave struct {
	level int
	tree  modelTree
}

// A modelStep is an operation of a transaction with its result, which the commit repeats.
type modelStep struct {
	op       modelOp
	result   string
	local    modelTree     // for a merge
	iterator modelIterator // for a step of an iterator: before it
}

type modelIterator struct {
	top, last string
	flags     int
	started   bool
}

// A model is the whole store.
type model struct {
	committed modelTree
	commits   int
	sessions  []*modelSession
}

func newModel(sessions int) *model {
	m := &model{committed: modelTree{}}
	for i := range sessions {
		m.sessions = append(m.sessions, &modelSession{number: i, local: modelTree{}})
	}
	return m
}

func isStored(key string) bool { return key == "" || key[0] == '^' }

// textOfKey and textOfSubscript format a key and its last subscript.
func textOfKey(key string) string {
	text, _, err := coreZwriteKey([]byte(key), 40_000)
	if err != nil {
		panic(err)
	}
	return text
}

func textOfSubscript(key string) string {
	name, subscripts, err := coreDecode([]byte(key))
	if err != nil {
		panic(err)
	}
	last := str(name)
	if len(subscripts) > 0 {
		last = subscripts[len(subscripts)-1]
	}
	text, _, err := coreZwriteScalar(last, 40_000)
	if err != nil {
		panic(err)
	}
	return text
}

func encodedKey(text string) string {
	if text == "" {
		return ""
	}
	key, at, err := coreParseKey(text)
	if err != nil || at != len(text) {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return string(key)
}

func parsedScalar(text string) coreScalar {
	value, at, err := coreParseScalar(text)
	if err != nil || at != len(text) {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return value
}

// node runs an operation on nodes; wrote reports whether the operation changes nodes.
func (op modelOp) node(stored, local modelTree) (result string, wrote bool) {
	key := encodedKey(op.Key)
	tree := local
	if isStored(key) {
		tree = stored
	}
	value, exists := tree[key]
	const none = "NDB_NONE"
	switch op.What {
	case doGet:
		if !exists {
			return none, false
		}
		return value.text, false
	case doSet:
		tree[key] = modelValue{text: op.A}
		return "", true
	case doSetNew:
		if exists {
			return none, false
		}
		tree[key] = modelValue{text: op.A}
		return "", true
	case doCAS:
		if !exists || value.text != op.B {
			return none, false
		}
		tree[key] = modelValue{text: op.A}
		return "", true
	case doData:
		data := 0
		if exists {
			data = 1
		}
		if len(tree.descendants(key)) > 0 {
			data += 10
		}
		return strconv.Itoa(data), false
	case doIncrement:
		present := coreScalar{}
		if exists {
			present = parsedScalar(value.text)
		}
		sum, err := coreNumberAdd(present, parsedScalar(op.A))
		if err != nil {
			code, _, _ := strings.Cut(err.Error(), ":")
			return code, false
		}
		value.text, _, _ = coreZwriteScalar(sum, 500)
		tree[key] = value
		return value.text, true
	case doKillValue:
		delete(tree, key)
		return "", true
	case doKill:
		tree.kill(key)
		return "", true
	case doExpire:
		if !exists {
			return none, false
		}
		if op.N <= modelSoon {
			delete(tree, key)
		} else {
			tree[key] = modelValue{value.text, true}
		}
		return "", true
	case doExpireAt:
		if !exists {
			return none, false
		}
		op.expireAt(tree, key)
		return "", true
	case doExpireTree:
		nodes := tree.descendants(key)
		if exists {
			nodes = append(nodes, key)
		}
		wrote := false
		for _, node := range nodes {
			wrote = wrote || op.N > 0 || tree[node].expires
			op.expireAt(tree, node)
		}
		return "", wrote
	case doKillRange:
		return "", op.killRange(tree, key)
	case doSetAll:
		tree[key] = modelValue{text: op.A}
		other := encodedKey(op.Other)
		if tree = local; isStored(other) {
			tree = stored
		}
		tree[other] = modelValue{text: op.B}
		return "", true
	case doTTL:
		if !exists || !value.expires {
			return none, false
		}
		return "", false
	case doNext, doPrevious:
		siblings := tree.children(key[:coreKeyParent([]byte(key))])
		at, found := slices.BinarySearch(siblings, key)
		if op.What == doPrevious {
			at--
		} else if found {
			at++
		}
		if at < 0 || at >= len(siblings) {
			return none, false
		}
		return textOfSubscript(siblings[at]), false
	case doNextNode, doPreviousNode:
		name := key[:strings.IndexByte(key, 0)+1]
		nodes := tree.descendants(name)
		at, found := slices.BinarySearch(nodes, key)
		if op.What == doPreviousNode {
			at--
		} else if found {
			at++
		}
		if _, hasName := tree[name]; at == -1 && hasName && key != name {
			return textOfKey(name), false
		}
		if at < 0 || at >= len(nodes) {
			return none, false
		}
		return textOfKey(nodes[at]), false
	case doWalk:
		return op.walk(tree, key), false
	case doCount:
		count := len(tree.descendants(key))
		if exists {
			count++
		}
		return strconv.Itoa(count), false
	case doMerge:
		return op.merge(tree, key, stored, local)
	}
	panic(op.String())
}

// expireAt makes a node expire in the past, in an hour, or never.
func (op modelOp) expireAt(tree modelTree, key string) {
	if op.N == modelSoon {
		delete(tree, key)
	} else {
		tree[key] = modelValue{tree[key].text, op.N > 0}
	}
}

func (op modelOp) killRange(tree modelTree, key string) (wrote bool) {
	bound := func(subscript string) string {
		if subscript == "" {
			return ""
		}
		return encodedKey(childText(op.Key, subscript))
	}
	from, to := bound(op.A), bound(op.B)
	for _, child := range tree.children(key) {
		if from != "" && child < from || to != "" && child > to {
			continue
		}
		tree.kill(child)
		wrote = true
	}
	return wrote
}

// modelSoon is a short time to live; the test waits until it is over.
const modelSoon = 1

func (op modelOp) walk(tree modelTree, top string) string {
	var keys []string
	var from, to string
	if op.Flags&walkDescendants != 0 {
		keys = tree.descendants(top)
		if _, exists := tree[top]; exists && op.Flags&walkSelf != 0 {
			keys = slices.Insert(keys, 0, top)
		}
		from, to = encodedKey(op.A), encodedKey(op.B)
	} else {
		keys = tree.children(top)
		if op.A != "" {
			from = encodedKey(childText(op.Key, op.A))
		}
		if op.B != "" {
			to = encodedKey(childText(op.Key, op.B))
		}
	}
	if op.Flags&walkReverse != 0 {
		slices.Reverse(keys)
		from, to = to, from
	}
	var items []string
	for _, key := range keys {
		if from != "" && key < from || to != "" && key > to {
			continue
		}
		if op.N > 0 && uint64(len(items)) == op.N {
			break
		}
		items = append(items, walkItem(tree, key, op.Flags))
	}
	if len(items) > 0 {
		items = append(items, "") // the core puts a blank before it finds the end
	}
	return strings.Join(items, " ")
}

func childText(parent, subscript string) string {
	if open, found := strings.CutSuffix(parent, ")"); found {
		return open + "," + subscript + ")"
	}
	return parent + "(" + subscript + ")"
}

func walkItem(tree modelTree, key string, flags int) string {
	item := ""
	if flags&walkDescendants != 0 {
		item = textOfKey(key)
	} else {
		item = textOfSubscript(key)
	}
	if flags&walkValues != 0 {
		value := "-"
		if v, exists := tree[key]; exists {
			value = v.text
		}
		item += "=" + value
	}
	return item
}

func (op modelOp) merge(source modelTree, from string, stored, local modelTree) (string, bool) {
	to := encodedKey(op.Other)
	target := local
	if isStored(to) {
		target = stored
	}
	if to == from {
		return "", false
	}
	if within(to, from) || within(from, to) {
		return "NDB_E_MERGE", false
	}
	nodes := source.descendants(from)
	if _, exists := source[from]; exists {
		nodes = append(nodes, from)
	}
	for _, key := range nodes {
		target[to+key[len(from):]] = source[key]
	}
	return "", len(nodes) > 0
}

func (s *modelSession) save() modelSaved {
	return modelSaved{maps.Clone(s.stored), s.writes, len(s.marks)}
}

func (s *modelSession) restore(saved modelSaved) {
	s.stored, s.writes, s.marks = maps.Clone(saved.stored), saved.writes, s.marks[:saved.marks]
}

func (s *modelSession) restoreLocals(level int) {
	for n := len(s.localSaves); n > 0 && s.localSaves[n-1].level >= level; n = len(s.localSaves) {
		s.local = s.localSaves[n-1].tree
		s.localSaves = s.localSaves[:n-1]
	}
}

func (s *modelSession) keepLocals(level int) {
	if level == 1 {
		s.localSaves = nil
	}
	for i := range s.localSaves {
		s.localSaves[i].level = min(s.localSaves[i].level, level-1)
	}
}

// start begins a transaction of the session on the current state of the store.
func (m *model) start(s *modelSession) {
	s.level, s.stored, s.levels, s.marks, s.steps, s.writes, s.begun = 1, maps.Clone(m.committed), nil, nil, nil, 0, m.commits
}

func (s *modelSession) leave() {
	s.level, s.stored, s.levels, s.marks, s.steps = 0, nil, nil, nil, nil
}

// control runs begin, commit and similar operations in a transaction, or when it is repeated. It
// does not handle the outermost begin and end.
func (s *modelSession) control(op modelOp, got string) string {
	switch op.What {
	case doBegin:
		s.levels = append(s.levels, s.save())
		s.level++
	case doCommit:
		s.marks = s.marks[:s.levels[len(s.levels)-1].marks]
		s.keepLocals(s.level)
		s.levels = s.levels[:len(s.levels)-1]
		s.level--
	case doRollback:
		s.restore(s.levels[len(s.levels)-1])
		s.levels = s.levels[:len(s.levels)-1]
		s.restoreLocals(s.level)
		s.level--
	case doMark:
		number, err := strconv.ParseUint(got, 10, 64)
		if err != nil {
			return "a number"
		}
		s.marks = append(s.marks, modelMark{number, s.save()})
		return got
	case doUndo:
		i := slices.IndexFunc(s.marks, func(m modelMark) bool { return m.number == op.N })
		saved := s.marks[i].saved
		saved.marks = i
		for saved.marks < len(s.marks) && s.marks[saved.marks].number == op.N {
			saved.marks++
		}
		s.restore(saved)
	}
	return ""
}

// expect runs the operation on the model and returns the expected result. got is the store's
// result: the store may report a conflict that the model cannot predict.
func (m *model) expect(op modelOp, got string) string {
	s := m.sessions[op.Session]
	switch op.Kind {
	case "sync", "check":
		return ""
	case "iterate":
		s.iterator = &modelIterator{top: encodedKey(op.Key), flags: op.Flags}
		return ""
	case "step":
		return m.step(s)
	}
	switch op.What {
	case doBegin, doCommit, doRollback, doRestart, doMark, doUndo, doRestoreLocal:
		return m.transaction(s, op, got)
	}
	if s.level == 0 {
		result, wrote := op.node(m.committed, s.local)
		if wrote {
			m.commits++
		}
		return result
	}
	step := modelStep{op: op}
	if op.What == doMerge {
		step.local = maps.Clone(s.local)
	}
	result, wrote := op.node(s.stored, s.local)
	both := op.What == doMerge || op.What == doSetAll
	if isStored(op.Key) || both && isStored(op.Other) {
		step.result = result
		s.steps = append(s.steps, step)
		changed := isStored(op.Key)
		if both {
			changed = isStored(op.Other) || op.What == doSetAll && changed
		}
		if wrote && changed {
			s.writes++
		}
	}
	return result
}

func (m *model) transaction(s *modelSession, op modelOp, got string) string {
	switch {
	case op.What == doBegin && s.level == 0:
		m.start(s)
		return ""
	case s.level == 0:
		return "NDB_E_LEVEL"
	case op.What == doRestart:
		s.restoreLocals(1)
		m.start(s)
		return ""
	case op.What == doRollback && s.level == 1:
		s.restoreLocals(1)
		s.leave()
		s.conflicts = 0
		return ""
	case op.What == doCommit && s.level == 1:
		return m.commit(s, got)
	case op.What == doRestoreLocal:
		s.localSaves = append(s.localSaves, modelLocalSave{s.level, maps.Clone(s.local)})
		return ""
	}
	s.steps = append(s.steps, modelStep{op: op, result: got})
	return s.control(op, got)
}

// commit repeats the transaction on the current state: each of its reads must give the same result.
func (m *model) commit(s *modelSession, got string) string {
	if got == "NDB_E_CONFLICT" {
		if m.commits == s.begun {
			return "a commit: nothing has changed since begin"
		}
		s.restoreLocals(1)
		m.start(s)
		s.conflicts++
		return got
	}
	if s.writes > 0 {
		again := &modelSession{level: 1, stored: maps.Clone(m.committed), local: modelTree{}}
		for i, step := range s.steps {
			var result string
			switch step.op.What {
			case doBegin, doCommit, doRollback, doMark, doUndo:
				again.control(step.op, step.result)
				continue
			}
			if step.op.Kind == "step" {
				result = step.iterator.next(again.stored)
			} else {
				local := modelTree{}
				if step.local != nil {
					local = step.local
				}
				result, _ = step.op.node(again.stored, local)
			}
			if result != step.result {
				return fmt.Sprintf("a conflict: step %d of the transaction (%v) gave %q, and would now give %q", i, step.op, shown(step.result), shown(result))
			}
		}
		m.committed = again.stored
		m.commits++
	}
	s.keepLocals(1)
	s.leave()
	s.conflicts = 0
	return ""
}

// step advances the open iterator of a session on the current nodes.
func (m *model) step(s *modelSession) string {
	it := s.iterator
	if it == nil {
		return ""
	}
	tree := s.local
	if isStored(it.top) {
		tree = m.committed
		if s.level > 0 {
			tree = s.stored
		}
	}
	before := *it
	result := it.next(tree)
	if s.level > 0 && isStored(it.top) {
		s.steps = append(s.steps, modelStep{op: modelOp{Session: s.number, Kind: "step"}, result: result, iterator: before})
	}
	if result == "NDB_NONE" {
		s.iterator = nil
	}
	return result
}

// next moves past the last item that the iterator returned.
func (it *modelIterator) next(tree modelTree) string {
	var keys []string
	if it.flags&walkDescendants != 0 {
		keys = tree.descendants(it.top)
	} else {
		keys = tree.children(it.top)
	}
	if it.flags&walkReverse != 0 {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		if it.started && (it.flags&walkReverse == 0 && key <= it.last || it.flags&walkReverse != 0 && key >= it.last) {
			continue
		}
		it.started, it.last = true, key
		return walkItem(tree, key, it.flags)
	}
	return "NDB_NONE"
}

// ---- the store ----

// A modelRunner runs the sessions of one process.
type modelRunner struct {
	folder    string
	options   coreOptions
	store     coreStore
	sessions  []coreSession
	iterators []coreIterator
}

func newRunner(folder string, options coreOptions, sessions int) (*modelRunner, error) {
	r := &modelRunner{folder: folder, options: options, sessions: make([]coreSession, sessions), iterators: make([]coreIterator, sessions)}
	return r, r.open()
}

func (r *modelRunner) open() (err error) {
	if r.store, err = openCoreStore(r.folder, r.options); err != nil {
		return err
	}
	for i := range r.sessions {
		if r.sessions[i], err = r.store.session(); err != nil {
			return err
		}
	}
	return nil
}

func (r *modelRunner) close() error {
	for i := range r.sessions {
		r.closeIterator(i)
		r.sessions[i].close()
	}
	return r.store.close()
}

func (r *modelRunner) closeIterator(i int) {
	if r.iterators[i].iter != nil {
		r.iterators[i].close()
		r.iterators[i] = coreIterator{}
	}
}

func resultOf(err error) string {
	if err == nil {
		return ""
	}
	code, _, _ := strings.Cut(err.Error(), ":")
	return code
}

// do runs the operation in session i of this process.
func (r *modelRunner) do(i int, op modelOp) string {
	switch op.Kind {
	case "sync":
		return resultOf(r.store.sync())
	case "check":
		faults, err := r.store.check()
		return faults + resultOf(err)
	case "reopen":
		err := r.close()
		if err == nil {
			err = r.open()
		}
		return resultOf(err)
	case "iterate":
		r.closeIterator(i)
		it, err := r.sessions[i].iterate([]byte(encodedKey(op.Key)), op.Flags)
		r.iterators[i] = it
		return resultOf(err)
	case "step":
		if r.iterators[i].iter == nil {
			return ""
		}
		result := r.iterators[i].next()
		if result == "NDB_NONE" {
			r.closeIterator(i)
		}
		return result
	}
	call := coreCall{what: op.What, key: []byte(encodedKey(op.Key)), other: []byte(encodedKey(op.Other)), n: op.N, flags: op.Flags}
	toScalar := func(text string) *coreScalar {
		if text == "" {
			return nil
		}
		value := coreScalar{}
		if op.What == doWalk && op.Flags&walkDescendants != 0 {
			value = str(encodedKey(text))
		} else {
			value = parsedScalar(text)
		}
		return &value
	}
	call.a, call.b = toScalar(op.A), toScalar(op.B)
	if (op.What == doExpireAt || op.What == doExpireTree) && op.N > modelSoon {
		call.n += uint64(time.Now().UnixMilli())
	}
	result := r.sessions[i].do(call)
	if op.What == doExpire && op.N == modelSoon {
		time.Sleep(3 * time.Millisecond)
	}
	return result
}

func init() {
	// model FOLDER OPTIONS: runs the operations in its input, one per line.
	childWork["model"] = func(arguments []string) error {
		var flushMs int
		if _, err := fmt.Sscan(arguments[1], &flushMs); err != nil {
			return err
		}
		r, err := newRunner(arguments[0], coreOptions{flushMs: flushMs, noSync: true}, 1)
		if err != nil {
			return err
		}
		input := json.NewDecoder(bufio.NewReader(os.Stdin))
		for {
			var op modelOp
			if err := input.Decode(&op); err != nil {
				return r.close()
			}
			fmt.Println(strconv.Quote(r.do(0, op)))
		}
	}
}

// A modelSetup describes where a list of operations runs.
type modelSetup struct {
	sessions int // of this process
	child    bool
	options  coreOptions
}

// runModel runs the operations on a new store and on the model. It returns the index of the first
// difference and its description, or len(ops) and "".
func runModel(t *testing.T, setup modelSetup, ops []modelOp) (failed int, fault string) {
	folder, err := os.MkdirTemp(t.TempDir(), "store")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	runner, err := newRunner(folder, setup.options, setup.sessions)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := runner.close(); err != nil && fault == "" {
			failed, fault = len(ops), fmt.Sprintf("close: %v", err)
		}
	}()
	m := newModel(setup.sessions + 1)
	var child *testChild
	startModelChild := func() { child = startChild(t, "model", folder, setup.options.flushMs) }
	if setup.child {
		startModelChild()
		defer func() { child.kill() }()
	}
	// do runs the operation in the process of its session.
	do := func(op modelOp) string {
		if op.Session < setup.sessions {
			return runner.do(op.Session, op)
		}
		line, _ := json.Marshal(op)
		child.input.Write(append(line, '\n'))
		text, err := child.output.ReadString('\n')
		if err != nil {
			return "the child has died: " + err.Error()
		}
		result, _ := strconv.Unquote(strings.TrimSpace(text))
		return result
	}
	history := []modelTree{maps.Clone(m.committed)} // states since the child's last sync
	lastProcess := 0
	for i, op := range ops {
		process := 0
		if op.Session == setup.sessions {
			process = 1
		}
		if process == 1 && !setup.child {
			continue
		}
		if process != lastProcess { // a process sees the changes of the other once they are durable
			if result := do(modelOp{Kind: "sync", Session: lastProcess * setup.sessions}); result != "" {
				return i, "sync: " + result
			}
			history = []modelTree{maps.Clone(m.committed)}
			lastProcess = process
		}
		switch op.Kind {
		case "kill":
			if process == 0 {
				continue
			}
			child.kill()
			startModelChild()
			m.sessions[op.Session] = &modelSession{local: modelTree{}}
			lastProcess = 0
			if result := stateAfterKill(m, runner, history); result != "" {
				return i, result
			}
			history = []modelTree{maps.Clone(m.committed)}
			continue
		case "reopen":
			if result := do(op); result != "" {
				return i, "reopen: " + result
			}
			for s := range m.sessions {
				if (s == setup.sessions) == (process == 1) {
					m.sessions[s] = &modelSession{local: modelTree{}}
				}
			}
			continue
		}
		s := m.sessions[op.Session]
		if op.What == doUndo && op.Kind == "" {
			least := 0
			if len(s.levels) > 0 {
				least = s.levels[len(s.levels)-1].marks
			}
			if len(s.marks) <= least {
				continue
			}
			op.N = s.marks[least+int(op.N)%(len(s.marks)-least)].number
		}
		if op.What == doExpire && op.Kind == "" && op.N == modelSoon && s.level > 0 {
			op.N = 0 // expiry times do not pass inside a transaction
		}
		got := do(op)
		if want := m.expect(op, got); got != want {
			return i, fmt.Sprintf("%v: got %q, want %q", op, shown(got), shown(want))
		}
		if process == 1 && !maps.Equal(history[len(history)-1], m.committed) {
			history = append(history, maps.Clone(m.committed))
		}
		if s.conflicts == 2 { // the next attempt would run alone, and the other sessions are in this goroutine
			if got := do(modelOp{Session: op.Session, What: doRollback}); got != "" {
				return i, "rollback after conflicts: " + got
			}
			s.leave()
			s.conflicts = 0
		}
	}
	if setup.child {
		if result := do(modelOp{Kind: "sync", Session: setup.sessions}); result != "" {
			return len(ops), "sync: " + result
		}
	}
	for _, again := range []string{"", "reopen"} {
		if again != "" {
			if result := runner.do(0, modelOp{Kind: again}); result != "" {
				return len(ops), result
			}
		}
		if result := compareAll(m.committed, runner); result != "" {
			return len(ops), again + " " + result
		}
	}
	return len(ops), ""
}

// dump reads all nodes in a session of its own.
func (r *modelRunner) dump() (modelTree, error) {
	s, err := r.store.session()
	if err != nil {
		return nil, err
	}
	defer s.close()
	tree := modelTree{}
	for _, name := range []string{"^a", "^b", "^c"} {
		it, err := s.iterate([]byte(encodedKey(name)), walkDescendants|walkSelf|walkValues)
		if err != nil {
			return nil, err
		}
		for {
			item := it.next()
			if item == "NDB_NONE" {
				break
			}
			key, at, err := coreParseKey(item)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", item, err)
			}
			expires := s.do(coreCall{what: doTTL, key: key}) == ""
			tree[string(key)] = modelValue{text: item[at+1:], expires: expires}
		}
		it.close()
	}
	return tree, nil
}

func compareAll(want modelTree, r *modelRunner) string {
	got, err := r.dump()
	if err != nil {
		return err.Error()
	}
	if !maps.Equal(got, want) {
		var text strings.Builder
		text.WriteString("at the end the store differs:")
		for key, value := range got {
			if want[key] != value {
				fmt.Fprintf(&text, " %s=%+v, want %+v;", textOfKey(key), value, want[key])
			}
		}
		for key, value := range want {
			if _, exists := got[key]; !exists {
				fmt.Fprintf(&text, " %s=%s is missing;", textOfKey(key), value.text)
			}
		}
		return shown(text.String())
	}
	if faults, err := r.store.check(); faults != "" || err != nil {
		return fmt.Sprintf("check: %s%v", faults, err)
	}
	return ""
}

// stateAfterKill finds the state, of those since its last sync, that the killed child left.
func stateAfterKill(m *model, r *modelRunner, history []modelTree) string {
	got, err := r.dump()
	if err != nil {
		return err.Error()
	}
	for _, state := range slices.Backward(history) {
		if maps.Equal(state, got) {
			m.committed = maps.Clone(state)
			m.commits++
			return ""
		}
	}
	return fmt.Sprintf("after the kill of the child: none of the %d states since its last sync", len(history))
}

// ---- random operations ----

var modelSubscripts = []string{`1`, `2`, `10`, `.5`, `-1`, `""`, `"x"`, `"xy"`, `$C(0)`, `"` + repeat("long", 60) + `"`}

var modelValues = []string{`1`, `-.5`, `"abc"`, `"3 apples"`, `""`, `"5"`, `true`, `false`, `123456789012345678`, `.1`, `"` + repeat("v", 300) + `"`, `"` + repeat("w", 9000) + `"`}

func randomKey(r *rand.Rand, stored bool) string {
	name := []string{"^a", "^b", "^c", "local", "^a"}[r.IntN(5)]
	if stored && name == "local" {
		name = "^a"
	}
	text := name
	for range r.IntN(4) {
		subscripts := modelSubscripts
		if r.IntN(3) > 0 {
			subscripts = subscripts[:4] // makes equal paths frequent
		}
		text = childText(text, subscripts[r.IntN(len(subscripts))])
	}
	return text
}

func randomOp(r *rand.Rand, setup modelSetup) modelOp {
	sessions := setup.sessions
	if setup.child {
		sessions++
	}
	op := modelOp{Session: r.IntN(sessions), Key: randomKey(r, false)}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	switch n := r.IntN(1000); {
	case n < 200:
		op.What, op.A = doSet, pick(modelValues)
	case n < 260:
		op.What, op.A = doIncrement, pick([]string{"1", "1", ".1", "-5", `"2 pears"`})
	case n < 280:
		op.What, op.A = doSetNew, pick(modelValues)
	case n < 310:
		op.What, op.A, op.B = doCAS, pick(modelValues), pick(modelValues[:3])
	case n < 350:
		op.What = doKill
	case n < 380:
		op.What = doKillValue
	case n < 400:
		op.What, op.N, op.Key = doExpire, []uint64{modelSoon, 3_600_000, 0}[r.IntN(3)], randomKey(r, true)
	case n < 420:
		op.What, op.Key = doTTL, randomKey(r, true)
	case n < 430:
		op.What, op.N, op.Key = doExpireAt, []uint64{modelSoon, 3_600_000, 0}[r.IntN(3)], randomKey(r, true)
	case n < 440:
		op.What, op.N, op.Flags, op.Key = doExpireTree, []uint64{modelSoon, 3_600_000, 0}[r.IntN(3)], r.IntN(4), randomKey(r, true)
	case n < 455:
		op.What, op.N = doKillRange, uint64(r.IntN(4))
		if r.IntN(3) > 0 {
			op.A = pick(modelSubscripts)
		}
		if r.IntN(3) > 0 {
			op.B = pick(modelSubscripts)
		}
	case n < 465:
		op.What, op.Other, op.A, op.B = doSetAll, randomKey(r, false), pick(modelValues), pick(modelValues)
	case n < 500:
		op.What = doGet
	case n < 540:
		op.What = doData
	case n < 600:
		op.What = []int{doNext, doPrevious, doNextNode, doPreviousNode}[r.IntN(4)]
		if op.What == doNext || op.What == doPrevious {
			op.Key = childText(op.Key, pick(modelSubscripts))
			if strings.Count(op.Key, ",") > 8 {
				op.Key = "^a(1)"
			}
		}
	case n < 680:
		op.What, op.Flags = doWalk, r.IntN(2)*walkReverse|r.IntN(2)*walkValues
		if r.IntN(2) == 0 {
			op.Flags |= walkDescendants | r.IntN(2)*walkSelf
			if r.IntN(3) == 0 {
				op.A = childText(op.Key, pick(modelSubscripts))
			}
			if r.IntN(3) == 0 {
				op.B = childText(op.Key, pick(modelSubscripts))
			}
		} else {
			if r.IntN(3) == 0 {
				op.A = pick(modelSubscripts)
			}
			if r.IntN(3) == 0 {
				op.B = pick(modelSubscripts)
			}
			if r.IntN(10) == 0 {
				op.Key, op.A, op.B = "", "", ""
			}
		}
		op.N = uint64(max(0, r.IntN(8)-4))
	case n < 700:
		op.What, op.N = doCount, uint64(r.IntN(4))
	case n < 740:
		op.What, op.Other, op.N = doMerge, randomKey(r, false), 0
	case n < 780:
		op.Kind, op.Flags = "iterate", r.IntN(2)*walkDescendants|r.IntN(2)*walkReverse|r.IntN(2)*walkValues
	case n < 850:
		op.Kind, op.Key = "step", ""
	case n < 985:
		op.Key = ""
		op.What = []int{doBegin, doBegin, doBegin, doCommit, doCommit, doCommit, doRollback, doMark, doMark, doUndo, doRestart, doRestoreLocal}[r.IntN(12)]
		if op.What == doUndo {
			op.N = uint64(r.IntN(5))
		}
	default:
		op.Key = ""
		op.Kind = []string{"sync", "sync", "check", "reopen", "kill", "sync"}[r.IntN(6)]
	}
	return op
}

// shrinkOps removes operations that the failure does not need.
func shrinkOps(t *testing.T, setup modelSetup, ops []modelOp) ([]modelOp, string) {
	end := time.Now().Add(40 * time.Second)
	_, fault := runModel(t, setup, ops)
	for size := len(ops) / 2; size > 0 && time.Now().Before(end); {
		shorter := false
		for from := 0; from < len(ops) && time.Now().Before(end); {
			without := slices.Concat(ops[:from], ops[min(from+size, len(ops)):])
			if failed, other := runModel(t, setup, without); other != "" {
				ops, fault, shorter = without[:min(failed+1, len(without))], other, true
			} else {
				from += size
			}
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return ops, fault
}

func testModel(t *testing.T, setup modelSetup, rounds, length int) {
	r := testseed.New(t)
	for range rounds {
		setup.options.flushMs = []int{1, 10, 1000}[r.IntN(3)]
		ops := make([]modelOp, length)
		for i := range ops {
			ops[i] = randomOp(r, setup)
		}
		failed, fault := runModel(t, setup, ops)
		if fault == "" {
			continue
		}
		ops, fault = shrinkOps(t, setup, ops[:min(failed+1, len(ops))])
		var list strings.Builder
		for _, op := range ops {
			fmt.Fprintln(&list, "   ", op)
		}
		t.Fatalf("flush after %d ms; after\n%s%s", setup.options.flushMs, list.String(), fault)
	}
	t.Logf("%d lists of %d operations", rounds, length)
}

func modelRounds(t *testing.T, rounds int) int {
	if text := os.Getenv("MODEL_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return max(1, rounds/10)
	}
	return rounds
}

func TestModel(t *testing.T) {
	testModel(t, modelSetup{sessions: 1, options: coreOptions{noSync: true}}, modelRounds(t, 20), 1000)
}

func TestModelSessions(t *testing.T) {
	testModel(t, modelSetup{sessions: 3, options: coreOptions{noSync: true}}, modelRounds(t, 20), 1500)
}

func TestModelProcesses(t *testing.T) {
	testModel(t, modelSetup{sessions: 2, child: true, options: coreOptions{noSync: true}}, modelRounds(t, 10), 800)
}
