//go:build cgo && luajit

package luajit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// trimmed is the event of the write-up, from which a script removes ten fields.
func trimmed(i int) string {
	return fmt.Sprintf(`{"id":"%08d","key1":"value1","key2":"value2","key3":"value3","key4":"value4","key5":"value5",`+
		`"key6":"v6","key7":"v7","key8":"v8","key9":"v9","key10":"v10","city":"Singapore","name":"yonghao hu"}`, i)
}

// row is one of 17 fields.
func row(i int) string {
	return fmt.Sprintf(`{"id":%d,"city":"Singapore","amount":%d.25,"a":"alpha","b":"bravo","c":"charlie","d":1,"e":2.5,"f":true,`+
		`"g":null,"h":"hotel","i":"india","j":100,"k":"kilo","l":"lima","m":"mike","n":-1}`, i, i%1000)
}

func long(i int) string {
	s := row(i)
	for n := range 60 {
		s = s[:len(s)-1] + fmt.Sprintf(`,"field%d":"%s %d"}`, n, "the quick brown fox jumps over the lazy dog", n)
	}
	return s
}

func escaped(i int) string {
	return fmt.Sprintf(`{"id":%d,"text":"line\n\"quoted\"\\path\u00e9\tend","more":"\u4e16\u754c\n\n\n","key1":1}`, i)
}

func nested(i int) string {
	return fmt.Sprintf(`{"id":%d,"user":{"name":"ann","address":{"city":"Berlin","zip":"10115"}},"tags":["a","b","c"]}`, i)
}

const trim = `
local keys = {"key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9", "key10"}
function main(data)
  for _, key in ipairs(keys) do data[key] = nil end
  return data
end`

var jobs = []struct {
	name, script string
	doc          func(int) string
}{
	{"trim", trim, trimmed},
	{"trim-literal", `function main(e) e.key1 = nil e.key2 = nil e.key3 = nil e.key4 = nil e.key5 = nil
e.key6 = nil e.key7 = nil e.key8 = nil e.key9 = nil e.key10 = nil return e end`, trimmed},
	{"row17", `function main(row) row.label = row.city .. ":" .. tostring(row.amount * 1.07) return row end`, row},
	{"row17-value", `function main(row) return {label = row.city .. ":" .. tostring(row.amount * 1.07)} end`, row},
	{"touch", `function main(e) e.city = e.city .. "!" return e end`, trimmed},
	{"pass", `function main(e) return e end`, trimmed},
	{"drop", `function main(e) if e.city == "Singapore" then return nil end return e end`, trimmed},
	{"fanout", `function main(e) return {e, {id = e.id}, {city = e.city}} end`, trimmed},
	{"nested", `function main(e) e.user.address.city = "Hamburg" return e end`, nested},
	{"escaped", `function main(e) e.text = e.text .. "\n" e.key1 = nil return e end`, escaped},
	{"4KB", `function main(e) e.city = e.city .. "!" e.field30 = nil return e end`, long},
}

// BenchmarkRun reports the time of one event.
func BenchmarkRun(b *testing.B) {
	for _, job := range jobs {
		for _, size := range []int{1, 256} {
			for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
				b.Run(fmt.Sprintf("%s/%d/%s", job.name, size, lang.Name), func(b *testing.B) {
					benchmark(b, lang, job.script, job.doc, size, nil)
				})
			}
		}
	}
}

func BenchmarkColumns(b *testing.B) {
	spec := []event.Column{
		{Name: "id", Path: []string{"id"}, Type: event.Int64},
		{Name: "city", Path: []string{"city"}, Type: event.String},
		{Name: "amount", Path: []string{"amount"}, Type: event.Float64},
	}
	benchmark(b, luajit.Language, passThrough, row, 256, spec)
}

const passThrough = `function main(e) return e end`

func benchmark(b *testing.B, lang script.Language, text string, doc func(int) string, size int, spec []event.Column) {
	benchmarkWith(b, lang, text, doc, size, script.Options{Sinks: []script.Sink{{Columns: spec}}})
}

func benchmarkWith(b *testing.B, lang script.Language, text string, doc func(int) string, size int, opts script.Options) {
	s, err := lang.Load(b.Context(), script.Code{Name: "bench.lua", Text: []byte(text)}, opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	in, res := &event.Batch{}, &event.Result{Outputs: make([]event.Output, 1)}
	for i := range size {
		in.Append([]byte(doc(i)))
	}
	in.Range.Count = uint64(size)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(context.Background(), in, res); err != nil {
			b.Fatal(err)
		}
	}
	if len(res.Dead) > 0 {
		b.Fatal(res.Dead[0].Error)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/event")
}

// BenchmarkNative is the trim job as Go does it.
func BenchmarkNative(b *testing.B) {
	doc := []byte(trimmed(1))
	keys := []string{"key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9", "key10"}
	b.ReportAllocs()
	for b.Loop() {
		var row map[string]string
		if err := json.Unmarshal(doc, &row); err != nil {
			b.Fatal(err)
		}
		for _, key := range keys {
			delete(row, key)
		}
		if _, err := json.Marshal(row); err != nil {
			b.Fatal(err)
		}
	}
}
