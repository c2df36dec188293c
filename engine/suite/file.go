package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/script"
)

// A testFile is a test file that was read.
type testFile struct {
	path     string
	settings FileSettings
	cases    []*testCase
}

// A testCase is one case of a file.
type testCase struct {
	at       config.Any
	settings CaseSettings
	events   []input                // of each
	steps    []step                 // unless it has each or a call
	with     map[string]script.Func // by name, such as "geo.lookup"
	expect   expectation            // after bind
}

// An input is one event.
type input struct {
	doc  []byte
	line int // in the test file, or in the file with events
}

// A step is events, or a wait if it has none.
type step struct {
	events []input
	wait   time.Duration
}

// read reads a test file and all that it says without its pipeline.
func read(path string) (*testFile, error) {
	text, err := readText(path)
	if err != nil {
		return nil, fmt.Errorf("read tests: %w", err)
	}
	f := &testFile{path: path}
	err = config.Decode(path, string(text), "the test file", example, &f.settings)
	faults := []error{err}
	items, isList := f.settings.Cases.List()
	switch {
	case err != nil:
	case !isList:
		faults = append(faults, f.settings.Cases.Unexpected("cases", "a list", "write at least:\n"+example))
	case len(items) == 0:
		faults = append(faults, f.settings.Cases.At(errors.New("the test file has no case"), "write at least:\n"+example))
	}
	for i, at := range items {
		c := &testCase{at: at}
		faults = append(faults, c.read(i, filepath.Dir(path), f.cases))
		f.cases = append(f.cases, c)
	}
	if err := config.Join(faults...); err != nil {
		return nil, err
	}
	return f, nil
}

// read reads case i of a file. before are the cases before it.
func (c *testCase) read(i int, folder string, before []*testCase) error {
	if c.at.IsNull() {
		return c.at.At(fmt.Errorf("case %d is empty", i+1), "write at least:\n"+example)
	}
	if err := c.at.Decode(&c.settings, fmt.Sprintf("case %d", i+1)); err != nil {
		return err
	}
	s := &c.settings
	faults := []error{c.checkName(before), c.checkInput(), c.readEvents(folder), c.readFunctions()}
	if s.Dropped != nil && *s.Dropped < 0 {
		faults = append(faults, c.at.Get("dropped").At(errors.New("dropped must not be negative"), ""))
	}
	return config.Join(faults...)
}

func (c *testCase) checkName(before []*testCase) error {
	if strings.TrimSpace(c.settings.Name) == "" {
		return c.at.Get("name").At(errors.New("the name is empty"), "say what the case holds")
	}
	for _, other := range before {
		if other.settings.Name == c.settings.Name {
			return c.at.Get("name").At(fmt.Errorf("two cases are called %q, the first on line %d", c.settings.Name, other.at.Line()), "give each case a name of its own: --run selects cases by name")
		}
		if s := c.settings.Snapshot; s != "" && s == other.settings.Snapshot {
			return c.at.Get("snapshot").At(fmt.Errorf("two cases have the snapshot %s, the first on line %d", s, other.at.Line()), "give each case a file of its own")
		}
	}
	return nil
}

// eventKeys are the expectations of a case with events.
var eventKeys = []string{"rows", "documents", "dropped", "dead", "routes", "snapshot"}

// checkInput checks that a case has one input and an expectation.
func (c *testCase) checkInput() error {
	var inputs []string
	for _, key := range []string{"events", "steps", "each", "call"} {
		if c.at.Get(key).IsSet() {
			inputs = append(inputs, key)
		}
	}
	expected := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return c.at.Get(key).IsSet() })
	}
	switch {
	case len(inputs) == 0:
		return c.at.At(fmt.Errorf("case %q has no events", c.settings.Name), "write events: [{…}], steps: [{events: [{…}]}, {wait: 30s}], each: [{…}], or call: {function: NAME}")
	case len(inputs) > 1:
		return c.at.Get(inputs[1]).At(fmt.Errorf("case %q has both %s and %s", c.settings.Name, inputs[0], inputs[1]), "make two cases of it")
	case c.settings.Call != nil:
		return c.checkCall()
	case !expected(append([]string{"log", "state"}, eventKeys...)...):
		return c.at.At(fmt.Errorf("case %q expects nothing", c.settings.Name), "say what must come out: rows, documents, dropped, dead, log, routes, state or snapshot")
	case c.settings.Each.IsSet() && c.settings.Snapshot != "":
		return c.at.Get("snapshot").At(errors.New("a snapshot records the events of one run, and each runs many times"), "use events")
	}
	return nil
}

func (c *testCase) checkCall() error {
	call := c.at.Get("call")
	for _, key := range eventKeys {
		if value := c.at.Get(key); value.IsSet() {
			return value.At(fmt.Errorf("%s needs events, and case %q has a call", key, c.settings.Name), "write returns or error below call")
		}
	}
	if arguments := c.settings.Call.Arguments; arguments.IsSet() {
		if _, ok := arguments.List(); !ok {
			return arguments.Unexpected("arguments", "a list", "write arguments: [VALUE]")
		}
	}
	if returns, raises := call.Get("returns").IsSet(), c.settings.Call.Error != nil; returns == raises && !c.at.Get("log").IsSet() && !c.at.Get("state").IsSet() {
		if returns {
			return call.Get("error").At(errors.New("a call has either returns or error"), "")
		}
		return call.At(errors.New("the call expects nothing"), "write returns: VALUE or error: PATTERN")
	}
	return nil
}

// readEvents reads the events of the case.
func (c *testCase) readEvents(folder string) (err error) {
	switch s := &c.settings; {
	case s.Events.IsSet():
		c.steps = make([]step, 1)
		c.steps[0].events, err = c.readInputs(s.Events, "events", folder)
	case s.Steps.IsSet():
		err = c.readSteps(folder)
	case s.Each.IsSet():
		c.events, err = c.readInputs(s.Each, "each", folder)
	}
	return err
}

func (c *testCase) readSteps(folder string) error {
	const hint = "write steps: [{events: [{…}]}, {wait: 30s}]"
	items, ok := c.settings.Steps.List()
	if !ok {
		return c.settings.Steps.Unexpected("steps", "a list", hint)
	}
	if len(items) == 0 {
		return c.settings.Steps.At(fmt.Errorf("case %q has no step", c.settings.Name), hint)
	}
	var faults []error
	for i, item := range items {
		one, err := c.readStep(item, fmt.Sprintf("step %d", i+1), folder)
		c.steps, faults = append(c.steps, one), append(faults, err)
	}
	return config.Join(faults...)
}

// readStep reads a step, which what names.
func (c *testCase) readStep(of config.Any, what, folder string) (one step, err error) {
	var s StepSettings
	if _, ok := of.Mapping(); !ok {
		return one, of.Unexpected(what, "a mapping", "write {events: [{…}]} or {wait: 30s}")
	}
	if err := of.Decode(&s, what); err != nil {
		return one, err
	}
	wait := of.Get("wait")
	switch {
	case s.Events.IsSet() == wait.IsSet():
		return one, of.At(fmt.Errorf("%s must have either events or wait", what), "make a step of each: steps: [{events: [{…}]}, {wait: 30s}]")
	case s.Wait < 0:
		return one, wait.At(errors.New("wait must not be negative"), "the clock moves on only")
	case wait.IsSet():
		one.wait = s.Wait
		return one, nil
	}
	one.events, err = c.readInputs(s.Events, "events", folder)
	return one, err
}

// readInputs reads a list of events, or the file that a key of the case names.
func (c *testCase) readInputs(of config.Any, key, folder string) (events []input, err error) {
	if items, ok := of.List(); ok {
		for _, item := range items {
			one := input{line: item.Line()}
			if text, _ := item.Text(); item.IsText() {
				one.doc = []byte(text)
			} else if one.doc, err = item.JSON(); err != nil {
				return nil, err
			}
			events = append(events, one)
		}
	} else if name, ok := of.Text(); ok {
		events, err = readEventFile(folder, name)
		if err != nil {
			return nil, of.At(fmt.Errorf("%s of case %q: %w", key, c.settings.Name, err), suggestFile(folder, name))
		}
	} else {
		return nil, of.Unexpected(key, "a list of events, or the path of a file", "write "+key+": [{…}]")
	}
	if len(events) == 0 {
		return nil, of.At(fmt.Errorf("%s of case %q has no event", key, c.settings.Name), "")
	}
	return events, nil
}

// readEventFile reads the events of a file.
func readEventFile(folder, name string) (events []input, err error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, name)
	}
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".json") {
		var docs []json.RawMessage
		if err := json.Unmarshal(text, &docs); err != nil {
			return nil, fmt.Errorf("%s is not a JSON array: %w", name, err)
		}
		for _, doc := range docs {
			events = append(events, input{doc: doc})
		}
		return events, nil
	}
	line := 0
	for one := range bytes.Lines(text) {
		line++
		if one = bytes.TrimSpace(one); len(one) > 0 {
			events = append(events, input{one, line})
		}
	}
	return events, nil
}

// readFunctions reads what the case replaces.
func (c *testCase) readFunctions() error {
	c.with = make(map[string]script.Func)
	err := c.eachFunction(func(name string, at config.Entry, fails bool) error {
		if c.with[name] != nil {
			return at.At(fmt.Errorf("%s is replaced twice", name), "")
		}
		if fails {
			message, _ := at.Value.Text()
			if message == "" {
				return at.Value.Unexpected(name, "the message of an error", "")
			}
			c.with[name] = func(context.Context, []any) ([]any, error) { return nil, errors.New(message) }
			return nil
		}
		text, err := at.Value.JSON()
		if err != nil {
			return err
		}
		value, err := decode(text)
		if err != nil {
			return at.Value.At(err, "")
		}
		c.with[name] = func(context.Context, []any) ([]any, error) { return []any{value}, nil }
		return nil
	})
	return err
}

// eachFunction calls f for each function that the case replaces.
func (c *testCase) eachFunction(f func(name string, at config.Entry, fails bool) error) error {
	for _, key := range []string{"with", "fails"} {
		of := c.at.Get(key)
		if !of.IsSet() {
			continue
		}
		entries, ok := of.Mapping()
		if !ok {
			return of.Unexpected(key, "a mapping", "write "+key+": {module.function: VALUE}")
		}
		for _, e := range entries {
			if strings.Contains(e.Key, ".") {
				if err := f(e.Key, e, key == "fails"); err != nil {
					return err
				}
				continue
			}
			functions, ok := e.Value.Mapping()
			if !ok {
				return e.At(fmt.Errorf("%s of %s names no function", e.Key, key), fmt.Sprintf("write %s.FUNCTION: VALUE, or %s: {FUNCTION: VALUE}", e.Key, e.Key))
			}
			for _, one := range functions {
				if err := f(e.Key+"."+one.Key, one, key == "fails"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// replacedFunctions returns the names of the functions that any case replaces.
func (f *testFile) replacedFunctions() (names []string) {
	for _, c := range f.cases {
		for name := range c.with {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkReplaced checks the names of replaced functions. A module that this program does not
// have may have any.
func (f *testFile) checkReplaced(own []script.Module) error {
	known := trial.FunctionNames(own)
	var faults []error
	for _, c := range f.cases {
		faults = append(faults, c.eachFunction(func(name string, at config.Entry, _ bool) error {
			module, _, _ := strings.Cut(name, ".")
			switch has := func(k string) bool { return strings.HasPrefix(k, module+".") }; {
			case !trial.IsReplaceable(module):
				return at.At(fmt.Errorf("the functions of %s cannot be replaced: the engine implements them", module), "")
			case slices.ContainsFunc(known, has) && !slices.Contains(known, name):
				return at.At(fmt.Errorf("module %s has no function %s", module, strings.TrimPrefix(name, module+".")), config.SuggestNear(name, known))
			}
			return nil
		}))
	}
	return config.Join(faults...)
}

// decode decodes JSON and keeps numbers as they are spelled.
func decode(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}
