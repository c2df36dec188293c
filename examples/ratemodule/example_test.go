package ratemodule_test

import (
	"context"
	"fmt"
	"log"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/examples/ratemodule"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
)

// A fixed table stands for a service with rates.
func rates(_ context.Context, currency string) (float64, error) {
	rate, ok := map[string]float64{"EUR": 1, "USD": 0.92}[currency]
	if !ok {
		return 0, fmt.Errorf("no rate of %s", currency)
	}
	return rate, nil
}

// A script runs over batches without an engine. It calls functions in Go.
func Example() {
	ctx := context.Background()
	code := script.Code{Name: "price.lua", Text: []byte(`
		local rates = require "rates"
		function main(event)
			local rate, err = rates.rate(event.currency)
			if not rate then error(err) end
			event.euro = rates.round(event.amount * rate)
			return event
		end`)}
	loaded, err := lua.Language().Load(ctx, code, script.Options{
		Sinks:   []script.Sink{{}}, // one output, of documents
		Modules: []script.Module{ratemodule.Module(rates)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loaded.Close()

	var batch event.Batch
	batch.Append([]byte(`{"amount":10,"currency":"USD"}`))
	batch.Append([]byte(`{"amount":10,"currency":"XYZ"}`))
	batch.Range.Count = uint64(batch.Len())
	result := event.Result{Outputs: make([]event.Output, 1)}
	err = script.RunAll(ctx, loaded, &batch, &result, 0, func(*event.Batch, *script.LimitError) error {
		for i := range result.Outputs[0].Len() {
			fmt.Printf("%s\n", result.Outputs[0].Doc(i))
		}
		for _, dead := range result.Dead {
			fmt.Printf("event %d: %s\n", dead.Position, dead.Error)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"amount":10,"currency":"USD","euro":"9.20"}
	// event 1: price.lua:5: no rate of XYZ
}
