package main

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/perigeedb/perigee/internal/e2e"
)

//go:embed engine.yaml
var engineConfig string

var engineTemplate = template.Must(template.New("engine.yaml").Parse(engineConfig))

// An engine holds the variable parts of engine.yaml.
type engine struct {
	Source, Sink string // YAML
	Script, Data string
}

// engineCommand writes the configuration and returns the command that runs it.
func (b *bench) engineCommand(source, sink string) func(context.Context) (*exec.Cmd, error) {
	return func(context.Context) (*exec.Cmd, error) {
		script, err := filepath.Abs(b.script)
		if err != nil {
			return nil, err
		}
		if err := os.RemoveAll(b.dataFolder()); err != nil {
			return nil, err
		}
		var text strings.Builder
		if err := engineTemplate.Execute(&text, engine{Source: source, Sink: sink, Script: script, Data: b.dataFolder()}); err != nil {
			return nil, err
		}
		path := filepath.Join(b.folder, "engine.yaml")
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			return nil, err
		}
		return exec.Command(b.binary, "run", path), nil
	}
}

func (b *bench) dataFolder() string { return filepath.Join(b.folder, "perigee-data") }

// oursContestant returns the engine between one of the sources and one of the targets.
func (b *bench) oursContestant(name, source, sink string, from source, to target, db *sql.DB) contestant {
	return contestant{name: name, events: b.events, from: from, to: to, runsUntilStopped: true,
		command: b.engineCommand(source, sink),
		check: func(ctx context.Context) error {
			report, err := e2e.Audit(ctx, db, table, []string{b.dataFolder()}, seed, b.events)
			if err != nil {
				return err
			}
			return report.Err()
		}}
}

func (b *bench) fromList() string {
	return fmt.Sprintf("redis: {address: %q, list: %s}", b.queue.server.Address(), list)
}

func (b *bench) fromStream() string {
	return fmt.Sprintf("redis: {address: %q, stream: %s}", b.queue.server.Address(), stream)
}

func (b *bench) fromKafka() string {
	return fmt.Sprintf("kafka: {brokers: [%q], topic: %s}", b.kafka.server.Address(), topic)
}

// toMariaDB returns the sink's settings in YAML; more holds further ones.
func toMariaDB(m *mariadb, more ...string) string {
	settings := append([]string{fmt.Sprintf("address: %q, user: root, database: %s, table: %s, columns: %s",
		m.server.Address(), database, table, columnsYAML)}, more...)
	return "mysql: {" + join(settings) + "}"
}

func toPostgreSQL(p *postgres) string {
	return fmt.Sprintf("postgres: {address: %q, user: postgres, database: %s, table: %s, columns: %s, params: {sslmode: disable}}",
		p.server.Address(), database, table, columnsYAML)
}

// columnsYAML is the sinks' setting of the table's columns.
const columnsYAML = "[{name: id, type: int64, required: true}, {name: event_name, type: string, required: true}, " +
	"{name: email, type: string, required: true}, {name: domain, type: string, required: true}, {name: topic, type: string, required: true}, " +
	"{name: campaign_number, type: int32, required: true}, {name: time, type: timestamp, required: true}, {name: url, type: string, required: true}]"
