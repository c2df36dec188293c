//go:build cgo && luajit

package luajit_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

// Compute one value from one row.
func ExampleHandler() {
	label, err := luajit.Handler().Load(`function main(row) return row.city .. ": " .. row.amount * 2 end`)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = label.(io.Closer).Close() }()
	value, err := label.Value(map[string]any{"city": "Singapore", "amount": 21})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(value)
	// Output: Singapore: 42
}

// Transform a batch of events in one crossing.
func ExampleLoad() {
	code := script.Code{Name: "email.lua", Text: []byte(`
function main(event)
  if event.spam then return nil end
  event.domain = event.email:match("@(.+)$")
  return event
end`)}
	s, err := luajit.Load(context.Background(), code, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	in := &event.Batch{Range: event.Range{Count: 3}}
	in.Append([]byte(`{"email":"ann@example.org"}`))
	in.Append([]byte(`{"email":"bob@example.com","spam":true}`))
	in.Append([]byte(`{"email":42}`))
	res := &event.Result{Outputs: make([]event.Output, 1)}
	if err := s.Run(context.Background(), in, res); err != nil {
		log.Fatal(err)
	}
	for i := range res.Outputs[0].Len() {
		fmt.Printf("out: %s\n", res.Outputs[0].Doc(i))
	}
	for _, dead := range res.Dead {
		fmt.Printf("dead: event %d: %s\n", dead.Position, dead.Error)
	}
	fmt.Println("dropped:", res.Dropped)
	// Output:
	// out: {"email":"ann@example.org","domain":"example.org"}
	// dead: event 2: email.lua:4: attempt to index field 'email' (a number value)
	// dropped: 1
}

// Register a function of Go for scripts. It may wait: the time is not counted as
// the script's, and no thread is held.
func ExampleLoad_module() {
	countries := script.Module{Name: "countries", Functions: map[string]script.Func{
		"lookup": func(ctx context.Context, args []any) ([]any, error) {
			code, ok := args[0].(string)
			if !ok {
				return nil, fmt.Errorf("want a code, not %v", args[0])
			}
			select {
			case <-time.After(time.Millisecond): // a database answers
				return []any{strings.ToUpper(code), map[string]any{"calling": 65}}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}}
	handler := script.NewHandler(luajit.Language, script.Options{Modules: []script.Module{countries}})
	phone, err := handler.Load(`
local countries = require "countries"
function main(row)
  local name, more = countries.lookup(row.country)
  return name .. " +" .. more.calling
end`)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = phone.(io.Closer).Close() }()
	fmt.Println(phone.Value(map[string]any{"country": "sg"}))
	// Output: SG +65 <nil>
}

// Set limits that hold whatever the script does.
func ExampleLoad_limits() {
	handler := script.NewHandler(luajit.Language, script.Options{Limits: script.Limits{
		EventTime: 20 * time.Millisecond,
		Memory:    2 << 20,
	}})
	for _, body := range []string{
		`while true do end`,
		`while true do pcall(function() while true do end end) end`,
		`local s = "x" while true do s = s .. s end`,
	} {
		hostile, err := handler.Load("function main(row) " + body + " end")
		if err != nil {
			log.Fatal(err)
		}
		_, err = hostile.Value(nil)
		fmt.Println(err)
		_ = hostile.(io.Closer).Close()
	}
	// Output:
	// code:1: time limit for one event exceeded
	// code:1: time limit for one event exceeded
	// code:1: memory limit exceeded
}

// Call single functions of a script, compiled once, from any number of goroutines.
func ExampleCallableScript_Invoke() {
	code := script.Code{Name: "prices.lua", Text: []byte(`
local rates = require "rates"
function price(net, country)
  local rate, err = rates.of(country)
  if not rate then error("no rate: " .. err) end
  return net * (1 + rate), rate
end`)}
	rates := script.Module{Name: "rates", Functions: map[string]script.Func{
		"of": func(ctx context.Context, args []any) ([]any, error) {
			time.Sleep(time.Millisecond) // a service answers; meanwhile others have the VM
			if args[0] == "de" {
				return []any{0.19}, nil
			}
			return []any{nil, fmt.Sprintf("country %v is unknown", args[0])}, nil
		},
	}}
	prices, err := luajit.LoadCallable(context.Background(), code, script.Options{
		Modules: []script.Module{rates},
		Limits:  script.Limits{EventTime: 50 * time.Millisecond, Memory: 16 << 20},
		Pool:    pool.New(pool.Settings{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = prices.Close() }()

	results, err := prices.Invoke(context.Background(), "price", 100, "de")
	fmt.Println(results, err)
	_, err = prices.Invoke(context.Background(), "price", 100, "xx")
	fmt.Println(err)
	// Output:
	// [119 0.19] <nil>
	// prices.lua:5: no rate: country xx is unknown
}

// Call a function without allocating.
func ExampleFunction_InvokeInto() {
	code := script.Code{Name: "add.lua", Text: []byte(`function add(a, b) return a + b, "done" end`)}
	functions, err := luajit.LoadCallable(context.Background(), code, script.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = functions.Close() }()
	add, err := functions.Function("add")
	if err != nil {
		log.Fatal(err)
	}
	var args, results luajit.Values
	for i := range 3 {
		args.Reset()
		args.AddNumber(float64(i))
		args.AddNumber(40)
		if err := add.InvokeInto(context.Background(), &args, &results); err != nil {
			log.Fatal(err)
		}
		sum, _ := results.Number(0)
		word, _ := results.Bytes(1)
		fmt.Printf("%g %s\n", sum, word)
	}
	// Output:
	// 40 done
	// 41 done
	// 42 done
}
