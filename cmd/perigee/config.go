package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/engine/config"
)

type configCommand struct {
	Show   configShowCommand   `cmd:"" help:"Show the effective configuration, and the origin of each value."`
	Schema configSchemaCommand `cmd:"" help:"Print the JSON Schema of configurations, for editors."`
}

type configSchemaCommand struct{}

func (configSchemaCommand) Help() string {
	return `Prints the JSON Schema (draft 2020-12) of the configurations that this binary reads. An editor with
yaml-language-server completes and checks a configuration whose first line names the file:

  # yaml-language-server: $schema=perigee.schema.json

The schema checks keys, types and choices. "perigee check" also checks whether values fit each other.

Examples:
  perigee config schema > perigee.schema.json`
}

func (configSchemaCommand) Run(c *console) error {
	_, err := c.out.Write(linked().Describe().Schema())
	return err
}

type configShowCommand struct {
	configFlags
	Format string `default:"yaml" enum:"yaml,json" help:"yaml, or json: a list of values with key and origin."`
}

func (configShowCommand) Help() string {
	return `Prints every value of a configuration, also the defaults of keys that the file leaves out, and the origin
of each value: file and line, an environment variable, the file that a variable NAME_FILE names, or
default. Secrets are printed as (secret). Defaults that depend on the machine or on other keys are left
out: "perigee list config" describes them.

Examples:
  perigee config show pipeline.yaml
  perigee config show --format json pipeline.yaml`
}

func (s *configShowCommand) Run(c *console) error {
	conf, err := s.load(context.Background(), c)
	if err != nil {
		return err
	}
	values := conf.Effective(linked().Describe())
	if s.Format == "json" {
		return writeIndented(c.out, flatten("", values))
	}
	return printValues(c.out, values)
}

// A flatValue is a value with the path of its key.
type flatValue struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func flatten(prefix string, values []config.Value) (all []flatValue) {
	for i, v := range values {
		path := prefix + v.Key
		if v.Key == "" {
			path = fmt.Sprintf("%s%d", prefix, i)
		}
		if v.Origin != "" && v.Values == nil {
			all = append(all, flatValue{path, v.Text, v.Origin})
		}
		all = append(all, flatten(path+".", v.Values)...)
	}
	return all
}

// A yamlLine is a line of YAML, with a comment.
type yamlLine struct{ text, comment string }

// commentColumn is the column in which comments begin at the latest, after shorter lines.
const commentColumn = 48

// printValues prints values as YAML, with the origin of each as comment.
func printValues(w io.Writer, values []config.Value) error {
	lines := yamlLines(nil, values, "")
	width := 0
	for _, l := range lines {
		if n := utf8.RuneCountInString(l.text); n < commentColumn && l.comment != "" {
			width = max(width, n)
		}
	}
	for _, l := range lines {
		text := l.text
		if l.comment != "" {
			text = fmt.Sprintf("%-*s  # %s", width, l.text, l.comment)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// yamlLines appends the lines of values.
func yamlLines(lines []yamlLine, values []config.Value, indent string) []yamlLine {
	for _, v := range values {
		begin := indent + quoteYAML(v.Key) + ":"
		if v.Key == "" {
			begin = indent + "-"
		}
		switch {
		case v.Values == nil && v.Origin == "":
			lines = append(lines, yamlLine{begin + " {}", ""})
		case v.Values == nil:
			lines = appendScalar(lines, begin, v, indent)
		case v.Key == "" && !v.List:
			// The first key of an item is on the line of its dash.
			below := yamlLines(nil, v.Values, indent+"  ")
			below[0].text = begin + below[0].text[len(begin):]
			lines = append(lines, below...)
		default:
			lines = yamlLines(append(lines, yamlLine{begin, ""}), v.Values, indent+"  ")
		}
	}
	return lines
}

// appendScalar appends a scalar on the line that begin begins, or a text of several lines in a
// block below it.
func appendScalar(lines []yamlLine, begin string, v config.Value, indent string) []yamlLine {
	text, isBlock := strings.CutSuffix(v.Text, "\n")
	if !isBlock || strings.HasPrefix(text, " ") || strings.Contains(v.Text, "\r") || strings.HasSuffix(text, "\n") || strings.HasPrefix(text, "\n") {
		return append(lines, yamlLine{begin + " " + quoteYAML(v.Text), v.Origin})
	}
	lines = append(lines, yamlLine{begin + " |", v.Origin})
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, yamlLine{strings.TrimRight(indent+"  "+escapeVariables.Replace(line), " "), ""})
	}
	return lines
}

// plainYAML matches texts that need no quotes in YAML.
var plainYAML = regexp.MustCompile(`^[\pL\pN_/.(+][\pL\pN_/.*+;()@:=-]*( [\pL\pN_/.*+;()@=-]+)*$`)

// escapeVariables escapes texts that a configuration would take for variables.
var escapeVariables = strings.NewReplacer("$$", "$$$$", "${", "$${")

func quoteYAML(text string) string {
	if text != "null" && plainYAML.MatchString(text) && !strings.HasSuffix(text, ":") && !strings.HasPrefix(text, "...") {
		return text
	}
	return strconv.Quote(escapeVariables.Replace(text))
}
