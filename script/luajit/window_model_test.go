//go:build cgo && luajit

package luajit

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/script"
)

// A windowModel is what the module window must do with events whose times are not in order.
type windowModel struct {
	present int
	windows map[string][]*modelWindow // tumbling and session windows, by kind
	ids     map[string][]int          // times of the first events with an id
	values  []*joined
}

type modelWindow struct {
	key                  string
	from, to, end        int // end is when the window is complete, without the lateness
	count, sum, min, max int
	first, last          int // values, and their times
	firstTime, lastTime  int
}

type joined struct {
	side, key   string
	value, time int
	matched     bool
}

const modelLength, modelLate = 10, 7

func (w *modelWindow) add(value, t int) {
	if w.count++; w.count == 1 {
		*w = modelWindow{w.key, w.from, w.to, w.end, 1, value, value, value, value, value, t, t}
		return
	}
	w.sum, w.min, w.max = w.sum+value, min(w.min, value), max(w.max, value)
	if t < w.firstTime {
		w.first, w.firstTime = value, t
	}
	if t >= w.lastTime {
		w.last, w.lastTime = value, t
	}
}

func (m *windowModel) tumble(key string, value, t, now int) bool {
	from := t / modelLength * modelLength
	if from+modelLength+modelLate <= now {
		return false
	}
	all := m.windows["tumbling"]
	i := slices.IndexFunc(all, func(w *modelWindow) bool { return w.key == key && w.from == from })
	if i < 0 {
		i = len(all)
		all = append(all, &modelWindow{key: key, from: from, to: from + modelLength, end: from + modelLength})
	}
	all[i].add(value, t)
	m.windows["tumbling"] = all
	return true
}

func (m *windowModel) session(key string, value, t, now int) bool {
	merged := &modelWindow{key: key, from: t, to: t}
	var others, touched []*modelWindow
	for _, w := range m.windows["session"] {
		if w.key == key && w.from-modelLength < t && t < w.to+modelLength {
			touched = append(touched, w)
			merged.from, merged.to = min(merged.from, w.from), max(merged.to, w.to)
		} else {
			others = append(others, w)
		}
	}
	if merged.to+modelLength+modelLate <= now {
		return false
	}
	for _, w := range touched {
		if merged.count == 0 {
			count := *w
			count.from, count.to = merged.from, merged.to
			*merged = count
			continue
		}
		merged.count, merged.sum, merged.min, merged.max = merged.count+w.count, merged.sum+w.sum, min(merged.min, w.min), max(merged.max, w.max)
		if w.firstTime < merged.firstTime {
			merged.first, merged.firstTime = w.first, w.firstTime
		}
		if w.lastTime >= merged.lastTime {
			merged.last, merged.lastTime = w.last, w.lastTime
		}
	}
	merged.add(value, t)
	merged.end = merged.to + modelLength
	m.windows["session"] = append(others, merged)
	return true
}

// completed returns and removes the windows of a kind that are complete.
func (m *windowModel) completed(kind string) []any {
	rows, left := []any{}, []*modelWindow(nil)
	slices.SortFunc(m.windows[kind], func(a, b *modelWindow) int {
		return slices.Compare([]string{fmt.Sprintf("%09d", a.end), a.key}, []string{fmt.Sprintf("%09d", b.end), b.key})
	})
	for _, w := range m.windows[kind] {
		if w.end+modelLate > m.present {
			left = append(left, w)
			continue
		}
		rows = append(rows, map[string]any{"key": w.key, "from": w.from, "to": w.to, "count": w.count, "sum": w.sum,
			"min": w.min, "max": w.max, "first": w.first, "last": w.last})
	}
	m.windows[kind] = left
	return rows
}

// isFirst returns nil for an event that is too late to tell.
func (m *windowModel) isFirst(id string, t, now int) any {
	if t+modelLength < now {
		return nil
	}
	for _, other := range m.ids[id] {
		if t-modelLength < other && other < t+modelLength {
			return false
		}
	}
	m.ids[id] = append(m.ids[id], t)
	return true
}

// join returns the values that match, in the order of their times and arrivals.
func (m *windowModel) join(side, key string, value, t, now int) any {
	if t+modelLate < now {
		return nil
	}
	one, found := &joined{side: side, key: key, value: value, time: t}, []any{}
	slices.SortStableFunc(m.values, func(a, b *joined) int { return a.time - b.time })
	for _, other := range m.values {
		if other.side != side && other.key == key && t-modelLength <= other.time && other.time <= t+modelLength {
			found = append(found, other.value)
			other.matched, one.matched = true, true
		}
	}
	m.values = append(m.values, one)
	return found
}

// alone counts and removes the values that found no match.
func (m *windowModel) alone() (count int) {
	m.values = slices.DeleteFunc(m.values, func(v *joined) bool {
		if v.time+modelLength+modelLate > m.present {
			return false
		}
		if !v.matched {
			count++
		}
		return true
	})
	return count
}

func TestWindowsAgainstModel(t *testing.T) {
	code := fmt.Sprintf(`
		local window, json = require "window", require "json"
		local tumbling = window.tumbling("^tumbling", {seconds = %[1]d, late = %[2]d, time = "event"})
		local session = window.session("^session", {gap = %[1]d, late = %[2]d, time = "event"})
		local join = window.join("^join", {seconds = %[1]d, late = %[2]d, time = "event"})
		local dedupe = window.dedupe("^dedupe", {seconds = %[1]d, time = "event"})
		function main(e)
			local first, matches = dedupe:first(e.key, e.t), join:add(e.side, e.key, e.value, e.t)
			if first == nil then first = json.null end
			local row = {
				tumbling = tumbling:add(e.key, e.value, e.t), session = session:add(e.key, e.value, e.t), first = first,
				matches = matches and json.array(matches) or json.null, alone = #join:completed(),
				tumbled = json.array(tumbling:completed()), sessions = json.array(session:completed()),
			}
			if e.fail then error "undone" end
			return row
		end`, modelLength, modelLate)
	inBothModes(t, func(t *testing.T, interpreted bool) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{}, code)
		m := windowModel{windows: map[string][]*modelWindow{}, ids: map[string][]int{}}
		at, late := 100, 0
		for batch := range 150 {
			var docs, want []string
			for range 1 + r.IntN(8) {
				at += r.IntN(4)
				if r.IntN(40) == 0 {
					at += 60
				}
				when, key, value, side := max(at-r.IntN(1+r.IntN(40)), 0), string(rune('a'+r.IntN(3))), r.IntN(100), []string{"left", "right"}[r.IntN(2)]
				event := map[string]any{"key": key, "value": value, "t": when, "side": side}
				if r.IntN(10) == 0 {
					event["fail"] = true
				}
				doc, err := json.Marshal(event)
				if err != nil {
					t.Fatal(err)
				}
				docs = append(docs, string(doc))
				if event["fail"] != nil {
					want = append(want, "E")
					continue
				}
				// An object's present is the time of the latest event that was not late for it, and
				// the latest event is late for none.
				m.present = max(m.present, when)
				row := map[string]any{"first": m.isFirst(key, when, m.present), "matches": m.join(side, key, value, when, m.present)}
				row["tumbling"], row["session"] = m.tumble(key, value, when, m.present), m.session(key, value, when, m.present)
				row["alone"], row["tumbled"], row["sessions"] = m.alone(), m.completed("tumbling"), m.completed("session")
				if row["tumbling"] == false {
					late++
				}
				text, err := json.Marshal(row)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, sortedFields(string(text)))
			}
			for i, got := range s.run(sc, docs...) {
				if want[i] == "E" && got[:2] == "E:" {
					continue
				}
				if got := sortedFields(got); got != want[i] {
					t.Fatalf("seed %d, batch %d: %s:\n got %s\nwant %s", seed, batch, docs[i], got, want[i])
				}
			}
			s.next(false)
		}
		if late == 0 {
			t.Error("no event was late")
		}
		for range 40 { // what has ended is removed
			s.run(sc, fmt.Sprintf(`{"key":"z","value":1,"t":%d,"side":"left"}`, at+1000))
			at += 1000
		}
		for _, name := range []string{"^tumbling", "^session", "^join", "^dedupe"} {
			if n := len(s.dump(name)); n > 400 {
				t.Errorf("%s has kept %d bytes: %.600s", name, n, s.dump(name))
			}
		}
	})
}
