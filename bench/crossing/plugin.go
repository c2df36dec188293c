package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/goplugin"
)

// buildPlugin compiles the example plugin so that this program can open it.
func buildPlugin() (path string, remove func()) {
	folder, err := os.MkdirTemp("", "perigee-crossing-")
	must(err)
	path = filepath.Join(folder, "trim.so")
	must(goplugin.Build(context.Background(), "../examples/plugin", path))
	return path, func() { os.RemoveAll(folder) }
}

// keyFilter is function Data of the example plugin, called directly.
func keyFilter(row map[string]any) (any, error) {
	for _, key := range []string{"key1", "key2", "key3", "key4", "key5"} {
		delete(row, key)
	}
	return json.Marshal(row)
}

// wideRow returns a row of 19 fields, none nested.
func wideRow() map[string]any {
	row := map[string]any{
		"event": "booking.created", "time": int64(1684202583), "city": "Singapore", "amount": 12.25, "qty": int64(3),
		"currency": "SGD", "country": "SG", "driver": "d-00017", "passenger": "p-00042", "vehicle": "car", "state": "open",
		"paid": false, "lat": 1.3521, "lon": 103.8198,
	}
	for i := range 5 {
		row[fmt.Sprintf("key%d", i+1)] = fmt.Sprintf("val%d", i+1)
	}
	return row
}

// copyRow copies a row deeply, as the handler does.
func copyRow(row map[string]any) map[string]any {
	copied := maps.Clone(row)
	for key, value := range copied {
		if nested, ok := value.(map[string]any); ok {
			copied[key] = copyRow(nested)
		}
	}
	return copied
}

// keyFilterContestants return contestants that get a fresh row for each call. The handler
// copies the row because the caller keeps it, with everything nested in it. Of the direct
// calls one makes the same copy, and one relies on flat rows.
func keyFilterContestants(plugin string) []rounds.Contestant {
	handler, err := goplugin.Handler("Data").Load(plugin)
	must(err)
	row := wideRow()
	repeat := func(call func() (any, error)) func(n int) {
		return func(n int) {
			for range n {
				_, err := call()
				must(err)
			}
		}
	}
	return []rounds.Contestant{
		{Name: direct, Run: repeat(func() (any, error) { return keyFilter(copyRow(row)) })},
		{Name: throughHandler, Run: repeat(func() (any, error) { return handler.Value(row) })},
		{Name: directFlat, Run: repeat(func() (any, error) { return keyFilter(maps.Clone(row)) })},
	}
}

// pluginContestants return contestants that pass events to the example plugin by row and by
// batch.
func pluginContestants(plugin string) []rounds.Contestant {
	doc, err := json.Marshal(wideRow())
	must(err)
	docs := events(func(int) string { return string(doc) })
	var contestants []rounds.Contestant
	for _, shape := range []struct{ name, symbol string }{{"plugin, by row", "Main"}, {"plugin, by batch", "Batch"}} {
		language := goplugin.Language()
		load := language.Load
		language.Load = func(ctx context.Context, _ script.Code, opts script.Options) (script.Script, error) {
			return load(ctx, script.Code{Name: plugin, Func: shape.symbol}, opts)
		}
		contestants = append(contestants, contestant(engine{shape.name, language, 256}, "", docs, false))
	}
	return append(contestants, contestant(engine{batched, engines[0].language, 256}, fiveLua, docs, false))
}

const fiveLua = `
local keys = { "key1", "key2", "key3", "key4", "key5" }
function main(event)
  for _, key in ipairs(keys) do event[key] = nil end
  return event
end`
