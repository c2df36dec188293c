package script

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// A refusing script makes a dead letter of each event but those that begin with "good".
type refusing struct{ ran []string }

func (s *refusing) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	for i := range in.Len() {
		doc := string(in.Doc(i))
		s.ran = append(s.ran, doc)
		if !strings.HasPrefix(doc, "good") {
			res.Dead = append(res.Dead, event.DeadLetter{Position: in.Range.First + uint64(i), Stage: "script", Error: "no", Original: []byte(doc)})
		}
	}
	return nil
}

func (*refusing) String() string { return "s.lua@v1" }
func (*refusing) Close() error   { return nil }

// TestMaxEvent: only what is larger than the limit is kept from the script, and what the script says of
// the other events stays.
func TestMaxEvent(t *testing.T) {
	for limit, want := range map[int]struct{ ran, dead string }{
		0: {"good bad long-bad long-good", "script:bad script:long-bad script:long-good"},
		5: {"good bad  ", "script:bad parse:long-bad parse:long-good"},
		8: {"good bad long-bad ", "script:bad script:long-bad parse:long-good"},
		9: {"good bad long-bad long-good", "script:bad script:long-bad script:long-good"},
	} {
		s, res := &refusing{}, &event.Result{}
		m := &MaxEvent{Bytes: limit}
		if err := m.Run(t.Context(), s, batchOf("good", "bad", "long-bad", "long-good"), res); err != nil {
			t.Fatal(err)
		}
		var dead []string
		for _, d := range res.Dead {
			dead = append(dead, d.Stage+":"+string(d.Original))
			if tooLarge := strings.Contains(d.Error, "more than max_event"); tooLarge != (d.Stage == "parse") {
				t.Errorf("limit %d: %s of stage %s", limit, d.Error, d.Stage)
			}
		}
		if got := strings.Join(s.ran, " "); got != want.ran || !slices.Equal(dead, strings.Fields(want.dead)) {
			t.Errorf("limit %d: %q ran, %q died, want %+v", limit, got, dead, want)
		}
	}
}
