package main

import (
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/bench/rounds"
)

// eventCount exceeds what branch predictors remember.
const eventCount = 4096

func events(event func(i int) string) [][]byte {
	made := make([][]byte, eventCount)
	for i := range made {
		made[i] = []byte(event(i))
	}
	return made
}

func perEvent(name string, events [][]byte, handle func(doc []byte)) rounds.Contestant {
	return rounds.Contestant{Name: name, Run: func(n int) {
		for i := range n {
			handle(events[i%len(events)])
		}
	}}
}

func trimContestants() []rounds.Contestant {
	docs := events(trimEvent)
	pooled, straight := newGopherLua(trimLua), newGopherLua(trimLua)
	var out []byte
	return append([]rounds.Contestant{
		perEvent(native, docs, func(doc []byte) { nativeTrim(doc) }),
		perEvent("sonic", docs, func(doc []byte) { sonicTrim(doc) }),
		perEvent("gopher-lua, through encoding/json", docs, func(doc []byte) { pooled.throughMap(doc) }),
		perEvent("gopher-lua, direct", docs, func(doc []byte) { out = straight.direct(doc, out[:0]) }),
	}, ours(trimLua, docs)...)
}

func rowContestants() []rounds.Contestant {
	docs := events(rowEvent)
	return append([]rounds.Contestant{
		perEvent(native, docs, func(doc []byte) { nativeRow(doc) }),
	}, values(rowLua, docs)...)
}

const rowLua = `function main(row) return row.city .. ":" .. tostring(row.amount * 1.07) end`

// otherJobs are measured only on our engines.
var otherJobs = []struct {
	title, script string
	event         func(i int) string
}{
	{"touch one field", `function main(event) event.city = event.city .. "!" return event end`, trimEvent},
	{"pass through", `function main(event) return event end`, trimEvent},
	{"fan out to three", `function main(event) return { event, { id = event.id }, { city = event.city } } end`, trimEvent},
	{"write into a nested object", `function main(event) event.user.address.city = "Hamburg" return event end`, nestedEvent},
	{"many escapes", `function main(event) event.text = event.text .. "\n" return event end`, escapedEvent},
	{"document of 4 KB", `function main(event) event.city = event.city .. "!" return event end`, longEvent},
}

func nestedEvent(i int) string {
	return fmt.Sprintf(`{"id":%d,"user":{"name":"ann","address":{"city":"Berlin","zip":"10115"}},"tags":["a","b","c"]}`, i)
}

func escapedEvent(i int) string {
	return fmt.Sprintf(`{"id":%d,"text":"line\n\"quoted\"\\path\u00e9\tend","more":"\u4e16\u754c\n\n\n"}`, i)
}

func longEvent(i int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `{"id":%d,"city":"Singapore"`, i)
	for n := range 60 {
		fmt.Fprintf(&s, `,"field%d":"%s %d"`, n, "the quick brown fox jumps over the lazy dog", n)
	}
	s.WriteByte('}')
	return s.String()
}
