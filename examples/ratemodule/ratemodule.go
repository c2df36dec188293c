// Package ratemodule is an example of a script module: functions in Go that scripts get
// from require "rates".
package ratemodule

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/script"
)

// Module returns the module rates. lookup finds the rate of a currency; it may ask a
// server, and is called by several goroutines at the same time.
func Module(lookup func(ctx context.Context, currency string) (float64, error)) script.Module {
	return script.Module{
		Name: "rates",
		// Functions may wait: while one does, its VM serves other batches.
		Functions: map[string]script.Func{
			// rates.rate(currency) returns the rate, or nil and an error.
			"rate": func(ctx context.Context, args []any) ([]any, error) {
				currency, ok := argument(args, 0).(string)
				if !ok {
					return nil, fmt.Errorf("rates.rate wants a currency, not %v", argument(args, 0))
				}
				rate, err := lookup(ctx, currency)
				if err != nil {
					return []any{nil, err.Error()}, nil
				}
				return []any{rate}, nil
			},
		},
		// Pure functions only compute: their time counts as the script's.
		Pure: map[string]script.Func{
			// rates.round(amount) returns the amount with two decimals.
			"round": func(_ context.Context, args []any) ([]any, error) {
				amount, ok := argument(args, 0).(float64)
				if !ok {
					return nil, fmt.Errorf("rates.round wants a number, not %v", argument(args, 0))
				}
				return []any{fmt.Sprintf("%.2f", amount)}, nil
			},
		},
	}
}

// argument returns argument i, or nil if the script gave fewer.
func argument(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return nil
}
