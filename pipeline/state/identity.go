package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// This file is about what a state is made for, and how its home knows it. The home keeps units by
// name:
//
//	users/events              unit events of version 1
//	users@2/events            unit events of version 2
//	users@2 scope=partition   marks: version 2 is valid, and has this scope
//	users@2 keys=events:4     the partitions that share the keys of events
//	users@2 dropped           the state was given up
//
// A mark is a unit without notes. Units of version 1 are valid without one, since perigee has not
// always written marks. Those of a later version are valid once it is marked: a migration does so
// at its end.

// A Home is a place that can keep the notes of a pipeline's state.
type Home struct {
	Name  string
	Units sink.UnitStore
}

// kept is what a home has of a state in one version.
type kept struct {
	version int
	scope   string         // "" if no mark says it
	keySets map[string]int // number of partitions by key set
	dropped bool
	units   []string // sorted
}

// ErrUnreadable is the error of a home that does not tell its units.
var ErrUnreadable = errors.New("units of states")

// keptName matches the names at a home.
var keptName = regexp.MustCompile(`^([a-z0-9_][a-z0-9_-]*)(?:@([1-9][0-9]{0,8}))?(?:/|( ))`)

// readKept sorts what a home has by the names of states and by version.
func readKept(ctx context.Context, home Home) (map[string]map[int]*kept, error) {
	all, err := home.Units.Units(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask sink %s for the %w: %w", home.Name, ErrUnreadable, err)
	}
	states := map[string]map[int]*kept{}
	for _, full := range slices.Sorted(maps.Keys(all)) {
		match := keptName.FindStringSubmatch(full)
		if match == nil {
			continue
		}
		version := 1
		if match[2] != "" {
			version, _ = strconv.Atoi(match[2]) // the expression matches few digits
		}
		if states[match[1]] == nil {
			states[match[1]] = map[int]*kept{}
		}
		k := states[match[1]][version]
		if k == nil {
			k = &kept{version: version, keySets: map[string]int{}}
			states[match[1]][version] = k
		}
		if rest := full[len(match[0]):]; match[3] == "" {
			k.units = append(k.units, rest)
		} else {
			k.readMark(rest)
		}
	}
	return states, nil
}

// readMark reads a mark. It ignores those that a later version of perigee may write.
func (k *kept) readMark(mark string) {
	if mark == droppedMark {
		k.dropped = true
		return
	}
	if scope, ok := strings.CutPrefix(mark, "scope="); ok {
		k.scope = scope
	}
	if set, ok := strings.CutPrefix(mark, "keys="); ok {
		at := strings.LastIndex(set, ":")
		if n, err := strconv.Atoi(set[at+1:]); err == nil && at > 0 {
			k.keySets[set[:at]] = max(n, k.keySets[set[:at]])
		}
	}
}

const droppedMark = "dropped"

// isValid reports whether the version is one that a pipeline has used.
func (k *kept) isValid() bool {
	return k.scope != "" || k.dropped || k.version == 1 && len(k.units) > 0
}

// scopeOr returns the scope, as far as the names of units tell it, or that of c.
func (k *kept) scopeOr(c *Config) string {
	switch {
	case k.scope != "":
		return k.scope
	case len(k.units) == 0, c.Shared && slices.Equal(k.units, []string{sharedUnit}):
		return c.scope()
	case slices.Equal(k.units, []string{sharedUnit}):
		return scopePipeline
	}
	return scopePartition
}

const (
	scopePartition = "partition"
	scopePipeline  = "pipeline"
)

func (c *Config) scope() string {
	if c.Shared {
		return scopePipeline
	}
	return scopePartition
}

// latest returns the latest valid version; nil if there is none.
func latestKept(versions map[int]*kept) (last *kept) {
	for _, k := range versions {
		if k.isValid() && (last == nil || k.version > last.version) {
			last = k
		}
	}
	return last
}

// mark sets a mark of the version at the home.
func (c *Config) mark(ctx context.Context, mark string) error {
	u, err := c.Home.OpenUnit(ctx, fmt.Sprintf("%s@%d %s", c.Name, c.version(), mark))
	switch {
	case errors.Is(err, sink.ErrFenced): // by another worker that sets the same mark
		return nil
	case err != nil:
		return fmt.Errorf("mark version %d of state %s: %w", c.version(), c.Name, err)
	}
	return u.Close()
}

func (c *Config) markScope(ctx context.Context) error { return c.mark(ctx, "scope="+c.scope()) }

// version is Version of a state whose configuration may name none.
func (c *Config) version() int { return max(c.Version, 1) }

// KeySets counts partitions by their key set. keySet is source.Traits.KeySet, which may be nil.
func KeySets(partitions []string, keySet func(partition string) string) map[string]int {
	sets := map[string]int{}
	for _, partition := range partitions {
		if keySet == nil {
			break
		}
		if set := keySet(partition); set != "" {
			sets[set]++
		}
	}
	return sets
}

// Check compares the state at its home with the configuration of the pipeline, and refuses one
// whose name, version, scope or partitions have changed. It takes over and changes no unit. sets
// are those of KeySets; nil if they are not known. It returns those that the state was made for. An
// error that is not permanent may be transient.
func (c *Config) Check(ctx context.Context, pipeline string, sets map[string]int) (known map[string]int, err error) {
	home := Home{c.HomeName, c.Home}
	if err := CheckRemoved(ctx, pipeline, c, home); err != nil {
		return nil, err
	}
	states, err := readKept(ctx, home)
	if err != nil {
		return nil, err
	}
	last := latestKept(states[c.Name])
	if last == nil || last.dropped && c.version() > last.version {
		return map[string]int{}, nil
	}
	if err := c.checkVersion(last); err != nil {
		return nil, err
	}
	return last.keySets, c.CheckKeySets(last.keySets, sets)
}

// migrateHint says how to convert a state.
func (c *Config) migrateHint(version int) string {
	return fmt.Sprintf("set version: %d, stop the engine, and convert it: perigee state migrate CONFIG %s --script map.lua", version, c.Name)
}

func (c *Config) checkVersion(last *kept) error {
	scope := last.scopeOr(c)
	switch {
	case last.dropped:
		return &event.PermanentError{
			Err:  fmt.Errorf("state %s was given up with perigee state drop, and sink %s still knows it", c.Name, c.HomeName),
			Hint: fmt.Sprintf("begin a new one: state: {name: %s, version: %d}", c.Name, last.version+1),
		}
	case c.version() > last.version:
		return &event.PermanentError{
			Err:  fmt.Errorf("state %s has version %d in sink %s, and version: %d in the configuration", c.Name, last.version, c.HomeName, c.version()),
			Hint: fmt.Sprintf("go back to version: %d, or stop the engine, and convert the state: perigee state migrate CONFIG %s --script map.lua", last.version, c.Name),
		}
	case c.version() < last.version:
		return &event.PermanentError{
			Err:  fmt.Errorf("state %s has version %d in sink %s, and version: %d in the configuration", c.Name, last.version, c.HomeName, c.version()),
			Hint: fmt.Sprintf("set version: %d, to which the state was converted", last.version),
		}
	case scope != c.scope():
		return &event.PermanentError{
			Err:  fmt.Errorf("state %s has scope: %s in sink %s, with %s, and scope: %s in the configuration", c.Name, scope, c.HomeName, describeUnits(last.units), c.scope()),
			Hint: fmt.Sprintf("go back to scope: %s, or %s", scope, c.migrateHint(last.version+1)),
		}
	}
	return nil
}

// CheckKeySets refuses partitions that the state was not made for: the keys of their events were in
// other partitions, whose units remember them.
func (c *Config) CheckKeySets(known, sets map[string]int) error {
	if c.Shared {
		return nil
	}
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		if n, ok := known[set]; ok && n != sets[set] {
			return &event.PermanentError{
				Err: fmt.Errorf("%s has %d partitions, and state %s was made for %d: events of a key are in another partition now, whose unit does not remember the key",
					set, sets[set], c.Name, n),
				Hint: c.migrateHint(c.version() + 1),
			}
		}
	}
	return nil
}

// Mark records at the home what the state is made for, after Check.
func (c *Config) Mark(ctx context.Context, known, sets map[string]int) error {
	states, err := readKept(ctx, Home{c.HomeName, c.Home})
	if err != nil {
		return err
	}
	if k := states[c.Name][c.version()]; k == nil || k.scope == "" {
		if err := c.markScope(ctx); err != nil {
			return err
		}
	}
	for set, n := range sets {
		if _, ok := known[set]; ok || c.Shared {
			continue
		}
		if err := c.mark(ctx, fmt.Sprintf("keys=%s:%d", set, n)); err != nil {
			return err
		}
		known[set] = n
	}
	return nil
}

// CheckRemoved refuses a pipeline that has had a state at a home, and has another one now, or none
// (c is nil), or another home.
func CheckRemoved(ctx context.Context, pipeline string, c *Config, home Home) error {
	states, err := readKept(ctx, home)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		last := latestKept(states[name])
		if last == nil || last.dropped || len(last.units) == 0 || c != nil && c.Name == name && c.HomeName == home.Name {
			continue
		}
		return removedError(pipeline, name, home.Name, c, last)
	}
	return nil
}

func removedError(pipeline, name, home string, c *Config, last *kept) error {
	of := fmt.Sprintf("sink %s has the state %s of pipeline %s, with %s", home, name, pipeline, describeUnits(last.units))
	drop := fmt.Sprintf("give it up for good: perigee state drop CONFIG %s %s", pipeline, name)
	switch {
	case c == nil:
		return &event.PermanentError{Err: errors.New(of + ", and the configuration has no state any more"), Hint: fmt.Sprintf("add state: {name: %s}, or %s", name, drop)}
	case c.Name != name:
		return &event.PermanentError{Err: fmt.Errorf("%s, and the configuration names the state %s", of, c.Name), Hint: fmt.Sprintf("set name: %s, or %s", name, drop)}
	}
	return &event.PermanentError{Err: fmt.Errorf("%s, and its home is sink %s now", of, c.HomeName), Hint: fmt.Sprintf("set home: %s, or %s", home, drop)}
}

// describeUnits names some units.
func describeUnits(units []string) string {
	const maxNames = 3
	if len(units) == 1 {
		return "unit " + units[0]
	}
	text := strings.Join(units[:min(maxNames, len(units))], ", ")
	if len(units) > maxNames {
		text += ", …"
	}
	return fmt.Sprintf("%d units (%s)", len(units), text)
}

// Drop gives up a state of a pipeline at a home: no pipeline uses it any more, and its notes are
// removed but for the last of each unit. It fences the owners of the units.
func Drop(ctx context.Context, name string, home Home) (units []string, err error) {
	states, err := readKept(ctx, home)
	if err != nil {
		return nil, err
	}
	last := latestKept(states[name])
	if last == nil || last.dropped {
		return nil, nil
	}
	c := &Config{Name: name, Home: home.Units, HomeName: home.Name, Version: last.version}
	for _, unit := range last.units {
		if err := c.dropUnit(ctx, unit); err != nil {
			return nil, fmt.Errorf("drop unit %s of state %s: %w", unit, name, err)
		}
	}
	return last.units, c.mark(ctx, droppedMark)
}

func (c *Config) dropUnit(ctx context.Context, name string) error {
	u, err := c.Home.OpenUnit(ctx, c.homeName(name))
	if err != nil {
		return err
	}
	status, err := u.Status(ctx)
	if err == nil {
		err = u.Trim(ctx, status.Last)
	}
	return errors.Join(err, u.Close())
}
