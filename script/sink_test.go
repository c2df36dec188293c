package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// output has a document for each of the texts, for the sinks in to.
func output(to []uint64, texts ...string) *event.Output {
	out := &event.Output{}
	for i, text := range texts {
		out.Data = append(out.Data, text...)
		End(out, i, to[i])
	}
	return out
}

func texts(out *event.Output) string {
	all := make([]string, out.Len())
	for i := range all {
		all[i] = fmt.Sprintf("%d%s", out.From[i], out.Doc(i))
	}
	return strings.Join(all, " ")
}

var three = Options{Sinks: []Sink{{Name: "a"}, {Name: "b"}, {Name: "c", Routed: true}}}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		to   []uint64
		want []string
	}{
		{[]uint64{0, 0, 0}, []string{"0x 1yy 2z", "0x 1yy 2z", ""}},
		{[]uint64{1, 0, 0}, []string{"0x 1yy 2z", "1yy 2z", ""}},
		{[]uint64{0, 4, 0}, []string{"0x 2z", "0x 2z", "1yy"}},
		{[]uint64{7, 2, 5}, []string{"0x 2z", "0x 1yy", "0x 2z"}},
	} {
		outputs := make([]event.Output, 3)
		var want []string
		for i := range 2 { // the second time it adds to what is there
			three.Share(output(c.to, "x", "yy", "z"), outputs)
			for s := range outputs {
				if i == 0 {
					want = append(want, c.want[s])
				} else {
					want[s] = strings.TrimSpace(want[s] + " " + c.want[s])
				}
				if got := texts(&outputs[s]); got != want[s] || len(outputs[s].To) > 0 {
					t.Errorf("to %v: sink %d has %q, want %q", c.to, s, got, want[s])
				}
			}
		}
	}
}

// TestShareTogether: one output, in which the sinks of each row stand when one is routed.
func TestShareTogether(t *testing.T) {
	o := three
	o.Together = true
	out := make([]event.Output, o.Outputs())
	for _, step := range []struct {
		to   []uint64
		want []uint64
	}{
		{[]uint64{0, 0}, nil},
		{[]uint64{0, 4}, []uint64{0, 0, 0, 4}},
		{[]uint64{0, 0}, []uint64{0, 0, 0, 4, 0, 0}},
	} {
		o.Share(output(step.to, "x", "y"), out)
		if diff := cmp.Diff(step.want, out[0].To); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", step.to, diff)
		}
	}
	Cut(&out[0], 2, 2)
	if texts(&out[0]) != "0x 1y" || len(out[0].To) != 2 {
		t.Errorf("left are %q for %v", texts(&out[0]), out[0].To)
	}
}

func TestDirect(t *testing.T) {
	for want, o := range map[bool]Options{
		true:  {Sinks: []Sink{{Name: "a"}}},
		false: {Sinks: []Sink{{Name: "a", Routed: true}}},
	} {
		if got := o.Direct(); got != want {
			t.Errorf("direct is %v for %+v", got, o.Sinks)
		}
	}
	if three.Direct() {
		t.Error("three sinks are one")
	}
}

func TestRoute(t *testing.T) {
	if to, err := three.Route("c", "a", "c"); to != 5 || err != nil {
		t.Errorf("the set is %b, error %v", to, err)
	}
	for name, want := range map[string]string{"C": `did you mean "c"?`, "elsewhere": "known: a, b, c"} {
		if _, err := three.Route("a", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

func TestSort(t *testing.T) {
	dead := []event.Dead{{Position: 2}, {Position: 1, Sink: "b"}, {Position: 1, Sink: "a", Number: 2}, {Position: 1, Sink: "a", Number: 1}, {Position: 1}}
	Sort(dead)
	want := []event.Dead{{Position: 1}, {Position: 1, Sink: "a", Number: 1}, {Position: 1, Sink: "a", Number: 2}, {Position: 1, Sink: "b"}, {Position: 2}}
	if diff := cmp.Diff(want, dead); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
