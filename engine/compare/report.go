package compare

import (
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A Report says how the results of two versions differ.
type Report struct {
	Events    uint64     `json:"events"`
	Different uint64     `json:"different"` // events with other results
	Versions  [2]Version `json:"versions"`  // old and new
	// Groups are the kinds of differences, lost events first, then by their number of events. An
	// event may be in several.
	Groups  []Group `json:"groups"`
	Omitted uint64  `json:"omitted,omitempty"` // events with differences of further kinds
}

// A Version is what one of the versions did.
type Version struct {
	Name    string  `json:"name"`
	Rows    uint64  `json:"rows"` // of all sinks
	Dropped uint64  `json:"dropped"`
	Dead    uint64  `json:"dead"`    // dead letters
	Seconds float64 `json:"seconds"` // of its runs
	Memory  int     `json:"memory"`  // greatest number of bytes of its VMs; 0 if unknown
}

func (v *Version) add(res *event.Result) {
	for i := range res.Outputs {
		v.Rows += uint64(res.Outputs[i].Len())
	}
	v.Dropped += uint64(res.Dropped)
	v.Dead += uint64(len(res.Dead))
}

// A Group is differences of one kind.
type Group struct {
	Kind  Kind   `json:"kind"`
	Field string `json:"field,omitempty"` // path of the field, or name of the column
	// Detail is the message of the first dead letter, or the types of a field.
	Detail   string    `json:"detail,omitempty"`
	Sinks    []string  `json:"sinks,omitempty"`    // whose rows differ
	Unstored bool      `json:"unstored,omitempty"` // what the sinks store is the same
	Events   uint64    `json:"events"`
	Examples []Example `json:"examples"`

	AllSinks bool `json:"all_sinks,omitempty"` // the difference is in all sinks
}

// An Example is an event of a group, with the value of each version; empty for none.
type Example struct {
	Event uint64 `json:"event"` // number of the event, from 1
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// A Kind is what differs.
type Kind string

// The kinds of differences.
const (
	NowDead              Kind = "now dead"
	DeadForAnotherReason Kind = "dead for another reason"
	NowDropped           Kind = "now dropped"
	FewerRows            Kind = "fewer rows"
	Removed              Kind = "removed"
	TypeChanged          Kind = "type changed"
	Changed              Kind = "changed"
	Added                Kind = "added"
	NewRows              Kind = "new rows"
	NoLongerDropped      Kind = "no longer dropped"
	NoLongerDead         Kind = "no longer dead"
)

// rank sorts what loses events before the rest.
func (k Kind) rank() int {
	switch k {
	case NowDead, NowDropped, FewerRows:
		return 0
	}
	return 1
}

// Title returns what the group is of, in one line.
func (g *Group) Title() string {
	var b strings.Builder
	switch {
	case g.Kind == TypeChanged:
		fmt.Fprintf(&b, "`%s` type changed (%s)", g.Field, g.Detail)
	case g.Field != "":
		fmt.Fprintf(&b, "`%s` %s", g.Field, g.Kind)
	case g.Kind == Changed:
		b.WriteString("row changed")
	case g.Detail != "":
		fmt.Fprintf(&b, "%s: `%s`", g.Kind, g.Detail)
	default:
		b.WriteString(string(g.Kind))
	}
	if !g.AllSinks {
		fmt.Fprintf(&b, " in %s", strings.Join(g.Sinks, ", "))
	}
	if g.Unstored {
		b.WriteString(", stored as before")
	}
	return b.String()
}

// Same reports whether no event differs.
func (r *Report) Same() bool { return r.Different == 0 }
