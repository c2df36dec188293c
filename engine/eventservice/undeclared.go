package eventservice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// undeclaredRowsMax is the maximum number of events from which a declaration is inferred.
const undeclaredRowsMax = 1000

// A fieldSeen counts the values of a field.
type fieldSeen struct {
	name   string
	events int // events with a value
	times  int // values that are RFC 3339 times
}

// timeNames are usual names of the field with the time of an event, the likeliest first.
var timeNames = []string{"time", "timestamp", "ts", "at", "@timestamp", "event_time", "occurred_at", "created_at", "date"}

// inferDeclaration returns the line of YAML that declares a table for events, or "" if they
// need no declaration. time is the existing time column of the table, or "".
func inferDeclaration(table, timeColumn string, docs [][]byte) string {
	fields := seenFields(docs)
	isTime := func(f *fieldSeen) bool { return f.times > 0 && f.times == f.events && !strings.Contains(f.name, ".") }
	named := timeColumn
	if timeColumn == "" {
		var likeliest *fieldSeen
		for _, f := range fields {
			if isTime(f) && f.events == len(docs) && (likeliest == nil || timeRank(f.name) < timeRank(likeliest.name)) {
				likeliest, named = f, f.name
			}
		}
	}
	var keys, columns []string
	if named != "" {
		keys = append(keys, "time: "+yamlText(named))
	}
	for _, f := range fields {
		if isTime(f) && f.name != named {
			columns = append(columns, fmt.Sprintf("{name: %s, type: timestamp}", yamlText(f.name)))
		}
	}
	if len(columns) > 0 {
		keys = append(keys, "columns: ["+strings.Join(columns, ", ")+"]")
	} else if named == timeColumn {
		return ""
	}
	return fmt.Sprintf("tables: {%s: {%s}}", yamlText(table), strings.Join(keys, ", "))
}

func timeRank(name string) int {
	if i := slices.Index(timeNames, strings.ToLower(name)); i >= 0 {
		return i
	}
	return len(timeNames)
}

// seenFields returns the fields of events, in order of appearance.
func seenFields(docs [][]byte) (fields []*fieldSeen) {
	known := map[string]*fieldSeen{}
	for _, doc := range docs {
		decoder := json.NewDecoder(bytes.NewReader(doc))
		if _, err := decoder.Token(); err != nil {
			continue
		}
		for decoder.More() {
			key, err := decoder.Token()
			name, isName := key.(string)
			var value json.RawMessage
			if err != nil || !isName || decoder.Decode(&value) != nil {
				break
			}
			f := known[name]
			if f == nil {
				f = &fieldSeen{name: name}
				known[name], fields = f, append(fields, f)
			}
			f.add(value)
		}
	}
	return fields
}

func (f *fieldSeen) add(value json.RawMessage) {
	var text string
	if string(value) == "null" {
		return
	}
	f.events++
	if json.Unmarshal(value, &text) != nil {
		return
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
		f.times++
	}
}

var (
	plainYAML = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	yamlWords = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// yamlText writes a text so that YAML reads it as one.
func yamlText(s string) string {
	if plainYAML.MatchString(s) && !yamlWords.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
