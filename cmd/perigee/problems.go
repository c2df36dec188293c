package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/release"
)

// A problem is one fault or warning about a configuration.
type problem struct {
	Severity string `json:"severity"` // error or warning
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`   // counted from 1
	Column   int    `json:"column,omitempty"` // counted from 1, in characters
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`

	at *config.Error // nil if the problem has no place
}

// problemsOf returns each fault in err.
func problemsOf(severity string, err error) (all []problem) {
	switch e := err.(type) {
	case nil:
	case config.Errors:
		for _, fault := range e {
			all = append(all, problemsOf(severity, fault)...)
		}
	case *config.Error:
		all = append(all, problem{severity, e.File, e.Line, e.Column, e.Message, e.Hint, e})
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, problemsOf(severity, one)...)
		}
	default:
		p := problem{Severity: severity, Message: err.Error(), Hint: event.HintOf(err)}
		if at, ok := errors.AsType[*config.Error](err); ok {
			p.File, p.Line, p.Column = at.File, at.Line, at.Column
		}
		all = append(all, p)
	}
	return all
}

// problemWriters print problems for programs, by the name of the format.
var problemWriters = map[string]func(io.Writer, []problem) error{
	"json": writeProblems, "github": writeAnnotations, "sarif": writeSARIF,
}

func writeProblems(w io.Writer, all []problem) error {
	if all == nil {
		all = []problem{}
	}
	return writeIndented(w, struct {
		Problems []problem `json:"problems"`
	}{all})
}

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Escapes of GitHub's workflow commands.
var (
	annotationText  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationValue = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// writeAnnotations prints workflow commands of GitHub Actions, which show each problem beside
// its line.
func writeAnnotations(w io.Writer, all []problem) error {
	for _, p := range all {
		place := ""
		if p.File != "" {
			place = " file=" + annotationValue.Replace(filepath.ToSlash(p.File))
			if p.Line > 0 {
				place += fmt.Sprintf(",line=%d,col=%d", p.Line, p.Column)
			}
		}
		if _, err := fmt.Fprintf(w, "::%s%s::%s\n", p.Severity, place, annotationText.Replace(p.text())); err != nil {
			return err
		}
	}
	return nil
}

// text returns the message and the hint.
func (p problem) text() string {
	if p.Hint == "" {
		return p.Message
	}
	return p.Message + "\nhint: " + p.Hint
}

// sarifRule is the only rule of the results: a fault has no number.
const sarifRule = "configuration"

// writeSARIF prints a log of SARIF 2.1.0.
func writeSARIF(w io.Writer, all []problem) error {
	type object = map[string]any
	results := []object{}
	for _, p := range all {
		result := object{"ruleId": sarifRule, "level": p.Severity, "message": object{"text": p.text()}}
		if p.File != "" {
			location := object{"artifactLocation": object{"uri": filepath.ToSlash(p.File)}}
			if p.Line > 0 {
				location["region"] = object{"startLine": p.Line, "startColumn": max(p.Column, 1)}
			}
			result["locations"] = []object{{"physicalLocation": location}}
		}
		results = append(results, result)
	}
	rule := object{"id": sarifRule, "shortDescription": object{"text": "A configuration or its scripts have a fault."}}
	return writeIndented(w, object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []object{{
			"tool":       object{"driver": object{"name": "perigee", "version": release.Build(), "rules": []object{rule}}},
			"columnKind": "unicodeCodePoints",
			"results":    results,
		}},
	})
}
