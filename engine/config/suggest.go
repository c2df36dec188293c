package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/internal/nearest"
)

// namesShown is the maximum number of known names in a hint.
const namesShown = 12

// elsewhere maps names of databases and other programs to names of a configuration, the
// likeliest first.
var elsewhere = map[string][]string{
	"int": {"int64"}, "integer": {"int64"}, "bigint": {"int64"}, "long": {"int64"}, "smallint": {"int32"},
	"replace": {"upsert"}, "text": {"string"}, "varchar": {"string"}, "char": {"string"}, "str": {"string"}, "uuid": {"string"},
	"datetime": {"timestamp"}, "date": {"timestamp"}, "time": {"timestamp"}, "timestamptz": {"timestamp"},
	"double": {"float64"}, "float": {"float64"}, "real": {"float64"}, "number": {"float64", "decimal"}, "numeric": {"decimal"},
	"boolean": {"bool"}, "blob": {"bytes"}, "bytea": {"bytes"}, "binary": {"bytes"}, "jsonb": {"json"}, "object": {"json"},
	"pass": {"password"}, "passwd": {"password"}, "pwd": {"password"}, "username": {"user", "username"}, "user": {"username"},
	"host": {"address", "url"}, "addr": {"address"}, "server": {"address", "url"}, "servers": {"brokers"}, "uri": {"url"},
	"paths": {"path"}, "filename": {"path"}, "dir": {"path", "folder"}, "key": {"list", "stream"}, "queue": {"list", "stream"},
	"database": {"db"}, "fields": {"columns"}, "delimiter": {"separator"}, "port": {"listen", "address"},
	"batch_size": {"batch"}, "batch_events": {"batch"}, "batch_bytes": {"batch"}, "workers": {"lanes"}, "parallelism": {"lanes"}, "threads": {"lanes"},
	"input": {"source", "events"}, "inputs": {"source", "events"}, "output": {"sink", "rows"}, "outputs": {"sinks", "rows"}, "transform": {"script"}, "code": {"script"},
	"postgresql": {"postgres"}, "mariadb": {"mysql"}, "pg": {"postgres"}, "stdin": {"file"}, "duckdb": {"eventstore"}, "valkey": {"redis"}, "jetstream": {"nats"},
	"row": {"rows"}, "tests": {"cases"}, "given": {"events"}, "expect": {"rows"}, "expected": {"rows"}, "mocks": {"with"}, "mock": {"with"},
}

// levels are the mappings of a configuration, and where to write their keys.
var levels = []struct {
	keys  []Field
	where string
}{
	{fieldsOf(reflect.TypeFor[pipelineKeys]()), "a pipeline: write it below pipelines: NAME:"},
	{fieldsOf(reflect.TypeFor[ScriptSettings]()), "a script: write it below script:, beside the code below lua:"},
	{fieldsOf(reflect.TypeFor[Table]()), "a table: write it below tables: NAME:"},
	{fieldsOf(reflect.TypeFor[topKeys]()), "the configuration: write it at the top, without indentation"},
}

// suggestLevel returns a hint with the mapping of a configuration that a key belongs to, or "".
func (d *document) suggestLevel(key string) string {
	if d.example != pipelineExample {
		return ""
	}
	for _, level := range levels {
		if slices.ContainsFunc(level.keys, func(f Field) bool { return f.Key == key }) {
			return fmt.Sprintf("%s is a key of %s", key, level.where)
		}
	}
	return ""
}

// suggestName returns a hint with the most similar known name.
func suggestName(name string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	var parts []string
	if near := suggestNear(name, known); near != "" {
		parts = append(parts, near)
	}
	if len(known) > 0 && len(known) <= namesShown {
		parts = append(parts, "known: "+strings.Join(known, ", "))
	}
	return strings.Join(parts, " ")
}

// suggestNear is like suggestName, for a message that lists the known names.
func suggestNear(name string, known []string) string {
	near := nearest.Name(name, known)
	for _, other := range elsewhere[strings.ToLower(name)] {
		if slices.Contains(known, other) {
			near = other
			break
		}
	}
	if near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
