package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/script"
)

// An expectedCall is the call of a case.
type expectedCall struct {
	arguments []json.RawMessage
	returns   *expected // nil if it must fail
}

// bindCall reads the call of a case, and loads the functions of the script for the first one.
func (r *runner) bindCall(ctx context.Context, c *testCase) (*expectedCall, error) {
	if r.functions == nil {
		functions, err := r.pipeline.LoadCallable(ctx)
		if err != nil {
			return nil, c.at.Get("call").At(err, "")
		}
		r.functions = functions
	}
	s, call := c.settings.Call, &expectedCall{}
	arguments, _ := s.Arguments.List()
	for _, argument := range arguments {
		text, err := argument.JSON()
		if err != nil {
			return nil, err
		}
		call.arguments = append(call.arguments, text)
	}
	if s.Returns.IsSet() {
		returns, err := expectedValue(s.Returns, "")
		if err != nil {
			return nil, err
		}
		call.returns = &returns
	}
	return call, nil
}

// runCall calls the function of the case and compares its results.
func (j *judge) runCall(ctx context.Context) {
	if err := j.begin(); err != nil {
		j.differ("the run", 0, "", err.Error())
		return
	}
	s, call := j.settings.Call, j.expect.call
	results, err := j.functions.Call(ctx, s.Function, call.arguments)
	lines, _ := j.pipeline.TakeLog()
	fault, raised := errors.AsType[*script.Error](err)
	switch {
	case err != nil && !raised:
		j.differ("call of "+s.Function, 0, "", err.Error())
	case raised && s.Error == nil:
		j.differ("call of "+s.Function, j.at.Get("call").Line(), "no error", fault.Message)
	case raised && !s.Error.MatchString(fault.Message):
		j.differ("error of "+s.Function, j.at.Get("call").Get("error").Line(), "/"+s.Error.String()+"/", fault.Message)
	case !raised && s.Error != nil:
		j.differ("error of "+s.Function, j.at.Get("call").Get("error").Line(), "/"+s.Error.String()+"/", "")
	case !raised && call.returns != nil:
		j.compareResults(call.returns, results)
	}
	j.compareLog(lines)
	j.compareState(ctx)
}

// compareResults compares what a function returned: nothing is null, and several results are a
// list.
func (j *judge) compareResults(want *expected, results []json.RawMessage) {
	text := []byte("null")
	switch len(results) {
	case 0:
	case 1:
		text = results[0]
	default:
		text, _ = json.Marshal(results) // it is JSON
	}
	got, err := decode(text)
	if err != nil {
		j.differ("results of "+j.settings.Call.Function, want.line, show(&want.value), fmt.Sprintf("%s: %v", text, err))
		return
	}
	c := comparison{subset: j.settings.Subset, report: func(path string, want1, got1 *any) {
		what := "results of " + j.settings.Call.Function
		if path != "" {
			what += ", " + path
		}
		j.differ(what, want.line, show(want1), show(got1))
	}}
	c.compare("", want.value, got)
}
