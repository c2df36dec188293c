package trial

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
)

// caller is Lua that requires a script and calls its functions.
//
//go:embed call.lua
var caller string

// callerPlace is the place of an error in caller, which tells nothing about the script.
var callerPlace = regexp.MustCompile(`^call(:\d+)?: `)

// A CallableScript is a pipeline's script, whose functions Call calls.
type CallableScript struct {
	script script.Script
	result event.Result
}

// LoadCallable loads the script of the pipeline, without its main, so that Call can call its
// functions. The caller closes it.
func (p *Pipeline) LoadCallable(ctx context.Context) (*CallableScript, error) {
	switch {
	case p.Code.Name == "":
		return nil, errors.New("the pipeline has no script")
	case len(p.Code.Text) == 0:
		return nil, errors.New("the script is a Go plugin, whose functions only Go can call")
	}
	module, files := asModule(p.Code)
	loaded, err := p.LoadValue(ctx, script.Code{
		Name: "call", Text: []byte(strings.ReplaceAll(caller, "MODULE", module)), Func: "perigee_call", Files: files,
	})
	if err != nil {
		return nil, err
	}
	return &CallableScript{script: loaded, result: event.Result{Outputs: make([]event.Output, 1)}}, nil
}

// Close releases the script.
func (f *CallableScript) Close() error { return f.script.Close() }

// Call calls a global function, or a field of a global table or of what the script returns, such
// as "lib.trim". Arguments and results are JSON. An error of the script is a *script.Error.
func (f *CallableScript) Call(ctx context.Context, function string, arguments []json.RawMessage) (results []json.RawMessage, err error) {
	call := append(pure.AppendString([]byte(`{"f":`), function), `,"a":[`...)
	for i, argument := range arguments {
		if i > 0 {
			call = append(call, ',')
		}
		call = append(call, argument...)
	}
	call = fmt.Appendf(call, `],"n":%d}`, len(arguments))
	in := &event.Batch{Range: event.Range{Count: 1}}
	in.Append(call)
	if err := f.script.Run(ctx, in, &f.result); err != nil {
		return nil, err
	}
	if len(f.result.Dead) > 0 {
		dead := &f.result.Dead[0]
		return nil, &script.Error{Message: callerPlace.ReplaceAllString(dead.Error, ""), Traceback: dead.Traceback}
	}
	var returned struct {
		R []json.RawMessage `json:"r"`
	}
	err = json.Unmarshal(bytes.Clone(f.result.Outputs[0].Doc(0)), &returned)
	return returned.R, err
}

// asModule returns the name under which code can require the script, and the files of that code.
func asModule(code script.Code) (name string, files func(string) ([]byte, error)) {
	name = strings.TrimSuffix(path.Base(strings.ReplaceAll(code.Name, `\`, "/")), ".lua")
	own, err := script.ModulePath(name)
	if err != nil || strings.Contains(name, ".") || IsStandard(name) {
		name = "script"
		own = name + ".lua"
	}
	return name, func(path string) ([]byte, error) {
		switch {
		case path == own:
			return code.Text, nil
		case code.Files == nil:
			return nil, fs.ErrNotExist
		}
		return code.Files(path)
	}
}
