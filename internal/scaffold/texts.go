package scaffold

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
)

// editorFolder has the files for editors.
const (
	editorFolder = ".perigee"
	schemaFile   = editorFolder + "/perigee.schema.json"
)

const exampleEvents = `{"id":1,"event_name":"open","email":"ada@example.com","time":"2026-11-22T10:00:00Z","user":{"id":7,"country":"FR"}}
{"id":2,"event_name":"click","email":"grace@example.org","time":"2026-11-22T10:00:01Z","user":{"id":9,"country":"US"}}
{"id":3,"event_name":"spam","email":"eve@example.net","time":"2026-11-22T10:00:02Z","user":{"id":3,"country":"DE"}}
{"id":4,"event_name":"open","email":"alan@example.com","time":"2026-11-22T10:00:03Z","user":{"id":4,"country":"GB"}}
{"id":5,"event_name":"bounce","email":"edsger@example.net","time":"2026-11-22T10:00:04Z","user":{"id":5,"country":"NL"}}
{"id":6,"event_name":"open","email":"barbara@example.org","time":"2026-11-22T10:00:05Z","user":{"id":6,"country":"US"}}
{"id":7,"event_name":"click","email":"ada@example.com","time":"2026-11-22T10:00:06Z","user":{"id":7,"country":"FR"}}
{"id":8,"event_name":"spam","email":"mallory@example.net","time":"2026-11-22T10:00:07Z","user":{"id":8,"country":"IT"}}
{"id":9,"event_name":"open","email":"donald@example.com","time":"2026-11-22T10:00:08Z","user":{"id":2,"country":"US"}}
{"id":10,"event_name":"click","email":"radia@example.org","time":"2026-11-22T10:00:09Z","user":{"id":1,"country":"US"}}
`

const exampleScript = `-- Perigee calls main for every event and stores what it returns.

---@param event event
function main(event)
  if event.event_name == "spam" then return nil end   -- drops the event
  event.domain = event.email:match("@(.+)$")          -- adds a field; an error makes the event a dead letter
  return event
end
`

// scriptOf returns a script that passes events on, with what their fields offer.
func scriptOf(r *inspect.Report) string {
	var b strings.Builder
	b.WriteString("-- Perigee calls main for every event and stores what it returns. Return nil to drop an event.\n")
	b.WriteString("-- \"perigee inspect events.ndjson\" shows the fields of the first events.\n\n---@param event event\nfunction main(event)\n")
	for _, f := range r.Fields {
		if f.Path == r.EventName && len(f.Examples) > 0 {
			fmt.Fprintf(&b, "  -- if event%s == %s then return nil end\n", luaPath(f.Keys), luaText(f.Examples[0]))
		}
	}
	b.WriteString("  return event\nend\n")
	return b.String()
}

// luaPath returns the access to a field by its keys.
func luaPath(keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "[%s]", luaText(key))
	}
	return b.String()
}

// luaText returns a text as a string of Lua on one line.
func luaText(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c == '"' || c == '\\' || c == 0x7f {
			fmt.Fprintf(&b, "\\%03d", c)
		} else {
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

const luarc = `{
  "$schema": "https://raw.githubusercontent.com/LuaLS/vscode-lua/master/setting/schema.json",
  "runtime.version": "LuaJIT",
  "runtime.builtin": {"debug": "disable", "ffi": "disable", "io": "disable", "jit": "disable", "os": "disable", "package": "disable"},
  "workspace.library": ["` + editorFolder + `/lua"],
  "workspace.checkThirdParty": false,
  "diagnostics.disable": ["lowercase-global"]
}
`

// test returns the test of the first events.
func (p *Project) test() string {
	const shown = 3
	var b strings.Builder
	b.WriteString("# \"perigee test\" runs these cases: script and columns, without a server.\ncases:\n")
	b.WriteString("  - name: the first events\n    events:\n")
	kept, dropped := 0, 0
	for _, e := range p.events[:min(shown, len(p.events))] {
		fmt.Fprintf(&b, "      - %s\n", quoteDocument(e))
		if kept < len(p.outputs) && sameStart(e, p.outputs[kept]) {
			kept++
		} else {
			dropped++
		}
	}
	if !p.hasLongNumbers() {
		b.WriteString("    documents:\n")
		for _, o := range p.outputs[:kept] {
			fmt.Fprintf(&b, "      - %s\n", o)
		}
	}
	fmt.Fprintf(&b, "    dropped: %d\n", dropped)
	return b.String()
}

// hasLongNumbers reports whether there are numbers that YAML does not keep to the last digit.
func (p *Project) hasLongNumbers() bool {
	return slices.ContainsFunc(p.report.Fields, func(f inspect.Field) bool {
		return f.Kinds[inspect.BigInt.String()]+f.Kinds[inspect.Decimal.String()] > 0
	})
}

// sameStart reports whether an output is of an event: it differs at its end only.
func sameStart(event, output []byte) bool {
	return bytes.HasPrefix(output, bytes.TrimSuffix(event, []byte("}")))
}

// quoteDocument returns a document as a text of YAML, which reaches the script as it is.
func quoteDocument(doc []byte) string { return "'" + strings.ReplaceAll(string(doc), "'", "''") + "'" }

// A sourceKind is how a project uses a kind of source.
type sourceKind struct {
	settings string // %[1]s is the name of the project
	send     string // command that sends the events; empty if they are there
	ends     bool   // the source ends, and run with it
}

var sources = map[string]sourceKind{
	"file":     {"{path: events.ndjson}", "", true},
	"generate": {"{events: 1000}", "", true},
	"http": {`{listen: "127.0.0.1:${HTTP_PORT:-4291}"}`,
		`curl --data-binary @events.ndjson -H "Content-Type: application/x-ndjson" "http://127.0.0.1:${HTTP_PORT:-4291}/"`, false},
	"kafka": {`{brokers: ["${KAFKA:-127.0.0.1:9092}"], topic: %[1]s}`,
		`kafka-console-producer.sh --bootstrap-server "${KAFKA:-127.0.0.1:9092}" --topic %[1]s < events.ndjson`, false},
	"nats": {`{url: "${NATS:-nats://127.0.0.1:4222}", stream: %[1]s}`,
		`export NATS_URL="${NATS:-127.0.0.1:4222}"; nats stream add %[1]s --subjects %[1]s --defaults; while read -r event; do nats pub %[1]s "$event"; done < events.ndjson`, false},
	"redis": {`{address: "${REDIS:-127.0.0.1:6379}", list: %[1]s}`,
		`while read -r event; do redis-cli -u "redis://${REDIS:-127.0.0.1:6379}" RPUSH %[1]s "$event"; done < events.ndjson`, false},
}

// A sinkKind is how a project uses a kind of sink.
type sinkKind struct {
	settings func(p *Project) string // below the kind, in lines
	look     string                  // command that shows the result; empty if run prints it
}

var sinks = map[string]sinkKind{
	"eventstore": {inline("{table: %[1]s}"), `perigee query "SELECT * FROM %[1]s LIMIT 10"`},
	"file":       {inline("{folder: out}"), `cat out/*`},
	"http":       {inline(`{url: "${RECEIVER:-http://127.0.0.1:8080/}"}`), ""},
	"kafka": {inline(`{brokers: ["${KAFKA:-127.0.0.1:9092}"], topic: %[1]s_out, create: true}`),
		`kafka-console-consumer.sh --bootstrap-server "${KAFKA:-127.0.0.1:9092}" --topic %[1]s_out --from-beginning`},
	"mysql": {func(p *Project) string { return p.database("MYSQL", "3306", "root", "test", mysqlDialect) },
		`mysql -u "${MYSQL_USER:-root}" "${MYSQL_DATABASE:-test}" -e "SELECT * FROM %[1]s LIMIT 10"`},
	"postgres": {func(p *Project) string {
		return p.database("POSTGRES", "5432", "postgres", "postgres", postgresDialect)
	},
		`psql -h 127.0.0.1 -U "${POSTGRES_USER:-postgres}" "${POSTGRES_DATABASE:-postgres}" -c "SELECT * FROM %[1]s LIMIT 10"`},
	"redis": {inline(`{address: "${REDIS:-127.0.0.1:6379}", list: %[1]s_out}`),
		`redis-cli -u "redis://${REDIS:-127.0.0.1:6379}" LRANGE %[1]s_out 0 9`},
	"stdout": {inline("{}"), ""},
}

// Sources and Sinks return the kinds that a project can have.
func Sources() []string { return slices.Sorted(maps.Keys(sources)) }
func Sinks() []string   { return slices.Sorted(maps.Keys(sinks)) }

func inline(settings string) func(*Project) string {
	return func(p *Project) string { return " " + p.named(settings) + "\n" }
}

// named puts the name of the project into a text.
func (p *Project) named(text string) string { return strings.ReplaceAll(text, "%[1]s", p.Name) }

// database returns the settings of an SQL sink; variable begins the names of its variables.
func (p *Project) database(variable, port, user, database string, d dialect) string {
	return fmt.Sprintf(`
        address: ${%[1]s:-127.0.0.1:%[2]s}
        user: ${%[1]s_USER:-%[3]s}
        password: ${%[1]s_PASSWORD:-}
        database: ${%[1]s_DATABASE:-%[4]s}
        table: %[5]s
        create: true
        columns:
`, variable, port, user, database, p.Name) + p.sqlColumns(d, "          ")
}

// pipeline returns the configuration.
func (p *Project) pipeline() (string, error) {
	from, known := sources[p.Source]
	if !known {
		return "", unknown("source", p.Source, Sources())
	}
	into, known := sinks[p.Sink]
	if !known {
		return "", unknown("sink", p.Sink, Sinks())
	}
	var b strings.Builder
	if p.Schema != nil {
		fmt.Fprintf(&b, "# yaml-language-server: $schema=%s\n", schemaFile)
	}
	if p.Sink == "eventstore" {
		b.WriteString(p.table())
	}
	fmt.Fprintf(&b, "pipelines:\n  %s:\n    source:\n      %s: %s\n    script: %s.lua\n    sink:\n      %s:%s", p.Name, p.Source, p.named(from.settings), p.Name, p.Sink, into.settings(p))
	return b.String(), nil
}

func unknown(what, name string, known []string) error {
	return event.WithHint(fmt.Errorf("unknown kind of %s %q", what, name), "use one of "+strings.Join(known, ", "))
}

// Commands returns three commands to type next, where config is the path of the configuration.
func (p *Project) Commands(config string) []string {
	return []string{"perigee test " + strings.TrimSuffix(config, ".yaml") + "_test.yaml", "perigee check " + config, "perigee run " + config}
}

// Send returns the command that sends the events to the source, from the project's folder, or "".
func (p *Project) Send() string { return p.named(sources[p.Source].send) }

// Look returns the command that shows what the sink has, or "".
func (p *Project) Look() string { return p.named(sinks[p.Sink].look) }

// Ends reports whether run ends by itself.
func (p *Project) Ends() bool { return sources[p.Source].ends }

// readme returns ten lines.
func (p *Project) readme() string {
	steps := p.Commands("pipeline.yaml")
	notes := []string{"test the script without a server", "check the configuration; --connect also tries the servers", "move events; Ctrl+C drains and stops"}
	if p.Ends() {
		notes[2] = "move the events, and end"
	}
	if send := p.Send(); send != "" {
		steps, notes = append(steps, send), append(notes, "send the events, in another terminal")
	}
	if look := p.Look(); look != "" {
		steps, notes = append(steps, look), append(notes, "look at the result")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nMoves events from %s through `%s.lua` into %s. `pipeline.yaml` is the configuration.\n\n", p.Name, p.Source, p.Name, p.Sink)
	for i, step := range steps {
		fmt.Fprintf(&b, "    %-36s # %s\n", step, notes[i])
	}
	fmt.Fprintf(&b, "\n`%s/` is for editors: they complete `%s.lua` and `pipeline.yaml` with it.\n", editorFolder, p.Name)
	return b.String()
}
