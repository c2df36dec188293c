package script

import (
	"strings"
	"testing"
)

var three = Options{Sinks: threeSinks}

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
	for name, want := range map[string]string{"C": `did you mean "c"?`, "elsewhere": "known sinks: a, b, c"} {
		if _, err := three.Route("a", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
