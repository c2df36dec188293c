// Package torture holds scripts that try to take a process down, and how each must end.
package torture

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed scripts.lua
var scripts string

// Batch is what the scripts run on: an event to attack with, between two to which
// nothing may happen.
var Batch = []string{`{"innocent":1}`, `{"a":1,"list":[3,1,2],"sub":{"x":"y"}}`, `{"innocent":2}`}

// A Script is one attack: the body of a main function.
type Script struct {
	Name string
	Ends []string // the kinds of fault that may end it; "ok" when it may just return
	Body string
}

// Code is the script's text.
func (s Script) Code() string {
	return "function main(event) if event.innocent then return event end do\n" + s.Body + "end return nil end\n"
}

// Scripts parses the collection. A header is "--- name: end, end". What ends
// for want of memory or stack may meet the deadline first.
func Scripts() []Script {
	var all []Script
	for _, section := range strings.Split("\n"+scripts, "\n--- ")[1:] {
		header, body, _ := strings.Cut(section, "\n")
		name, ends, _ := strings.Cut(header, ": ")
		script := Script{Name: name, Ends: strings.Split(ends, ", "), Body: body + "\n"}
		if slices.Contains(script.Ends, "memory") || slices.Contains(script.Ends, "stack overflow") {
			script.Ends = append(script.Ends, "event time")
		}
		all = append(all, script)
	}
	return all
}
