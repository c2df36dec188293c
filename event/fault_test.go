package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func TestFault(t *testing.T) {
	placed := &Fault{Message: "unknown column x", Hint: "columns: y", Line: 2, Column: 7}
	for _, test := range []struct {
		err        error
		text, json string
	}{
		{placed, "line 2, column 7: unknown column x", `{"error":"unknown column x","hint":"columns: y","line":2,"column":7}`},
		{fmt.Errorf("query: %w", placed), "line 2, column 7: unknown column x", `{"error":"unknown column x","hint":"columns: y","line":2,"column":7}`},
		{WithHint(errors.New("no table"), "create it"), "no table", `{"error":"no table","hint":"create it"}`},
		{errors.New("no table"), "no table", `{"error":"no table"}`},
	} {
		f := FaultOf(test.err)
		encoded, err := json.Marshal(f)
		if f.Error() != test.text || string(encoded) != test.json || err != nil || HintOf(f) != f.Hint {
			t.Errorf("%v: %q, %s, %v", test.err, f.Error(), encoded, err)
		}
	}
}
