package gopherlua_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
)

// Compute one value from one row, without cgo.
func ExampleHandler() {
	handler, err := gopherlua.Handler().Load(`function main(row) return require("json").encode({id = row.id}) end`)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = handler.(io.Closer).Close() }()
	fmt.Println(handler.Value(map[string]any{"id": 7, "name": "ann"}))
	// Output: {"id":7} <nil>
}

// Run a batch through a script that calls a function of Go.
func ExampleLanguage() {
	known := script.Module{Name: "known", Pure: map[string]script.Func{
		"name": func(_ context.Context, args []any) ([]any, error) {
			if args[0] != 1.0 {
				return nil, errors.New("nobody has this id")
			}
			return []any{"ann"}, nil
		},
	}}
	code := script.Code{Name: "name.lua", Text: []byte(`
local known = require "known"
function main(event)
  event.name = known.name(event.id)
  return event
end`)}
	s, err := gopherlua.Language().Load(context.Background(), code, script.Options{
		Sinks: []script.Sink{{}}, Modules: []script.Module{known},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	in := &event.Batch{Range: event.Range{Count: 2}}
	in.Append([]byte(`{"id":1}`))
	in.Append([]byte(`{"id":2}`))
	res := &event.Result{Outputs: make([]event.Output, 1)}
	if err := s.Run(context.Background(), in, res); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", res.Outputs[0].Doc(0))
	fmt.Println(res.Dead[0].Error)
	// Output:
	// {"id":1,"name":"ann"}
	// name.lua:4: known.name: nobody has this id
}
