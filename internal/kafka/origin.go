package kafka

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
)

// The headers of records that a pipeline writes in the order of its source. A pipeline with a state
// that reads them drops repeats: see event.Origin.
const (
	originHeader   = "perigee-origin"   // pipeline/partition
	positionHeader = "perigee-position" // position.number
)

// OriginHeaders returns the headers of a record. name is that of the origin.
func OriginHeaders(name []byte, o event.Origin) []kgo.RecordHeader {
	position := strconv.AppendUint(nil, o.Position, 10)
	position = strconv.AppendUint(append(position, '.'), uint64(o.Number), 10)
	return []kgo.RecordHeader{{Key: originHeader, Value: name}, {Key: positionHeader, Value: position}}
}

// OriginOf returns the origin that the headers of a record name; the zero Origin if they name none.
func OriginOf(headers []kgo.RecordHeader) (o event.Origin) {
	name, position := "", ""
	for _, h := range headers {
		switch h.Key {
		case originHeader:
			name = string(h.Value)
		case positionHeader:
			position = string(h.Value)
		}
	}
	at, number, ok := strings.Cut(position, ".")
	p, err := strconv.ParseUint(at, 10, 64)
	n, err2 := strconv.ParseUint(number, 10, 32)
	if name == "" || !ok || err != nil || err2 != nil {
		return o
	}
	return event.Origin{Name: name, Position: p, Number: uint32(n)}
}
