package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
)

func TestOrigin(t *testing.T) {
	want := event.Origin{Name: "visits/events@1", Position: 1<<63 + 7, Number: 3}
	if got := OriginOf(OriginHeaders([]byte(want.Name), want)); got != want {
		t.Errorf("the origin is %+v, want %+v", got, want)
	}
	headers := func(position string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: "trace", Value: []byte("x")}, {Key: originHeader, Value: []byte("a")}, {Key: positionHeader, Value: []byte(position)}}
	}
	for _, position := range []string{"", "1", "1.", ".1", "-1.0", "1.x", "1.99999999999", "99999999999999999999.0"} {
		if got := OriginOf(headers(position)); got != (event.Origin{}) {
			t.Errorf("position %q: the origin is %+v, want none", position, got)
		}
	}
	if got := OriginOf(headers("7.1")); got != (event.Origin{Name: "a", Position: 7, Number: 1}) {
		t.Errorf("the origin beside other headers is %+v", got)
	}
}
