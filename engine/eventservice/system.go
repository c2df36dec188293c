//go:build linux && cgo

package eventservice

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/systemtable"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// SystemTables describes the system tables, without Rows. The names have the schema.
func SystemTables() []systemtable.Table {
	all := append(eventstore.SystemTables(), new(Store).systemTables()...)
	for i := range all {
		all[i].Name, all[i].Rows = systemtable.Schema+"."+all[i].Name, nil
	}
	return all
}

// systemTables returns the system tables of the engine.
func (s *Store) systemTables() []systemtable.Table {
	return []systemtable.Table{
		{Name: "pipelines", Columns: systemtable.Columns(pipelineRow{}), Rows: s.rowsOfEngine("pipelines", s.yieldPipelines),
			Doc: "The state of each pipeline, as `perigee status` shows it. Needs a running engine. Counters start at 0 with the engine."},
		{Name: "script_stats", Columns: systemtable.Columns(statRow{}), Rows: s.rowsOfEngine("script_stats", s.yieldStats),
			Doc: "The measurements that scripts take with the module `stats`. Needs a running engine."},
		{Name: "log", Columns: systemtable.Columns(logRow{}), Rows: s.rowsOfEngine("log", s.yieldLog),
			Doc: "The last 1,000 records of the engine's log, with at most 4 KiB of attributes each: the records that it prints, and all warnings and errors. Needs a running engine."},
		{Name: "dead_letters", Columns: deadLetterColumns, Rows: s.deadLetterRows,
			Doc: "The events that could not be processed, as `perigee dlq list` shows them."},
	}
}

// readsSystemTable reports whether a statement may read a system table.
func (s *Store) readsSystemTable(sql string) bool {
	for _, t := range append(eventstore.SystemTables(), s.systemTables()...) {
		if systemtable.IsNamed(sql, t.Name) {
			return true
		}
	}
	return false
}

// rowsOfEngine returns the rows of a table that needs a running engine, or an error without one.
func (s *Store) rowsOfEngine(table string, rows iter.Seq2[any, error]) func() iter.Seq2[any, error] {
	return func() iter.Seq2[any, error] {
		if s.host != nil {
			return rows
		}
		return func(yield func(any, error) bool) {
			yield(nil, &event.Fault{Message: systemtable.Schema + "." + table + " needs a running engine, and none runs in the data folder", Hint: "start one with perigee run"})
		}
	}
}

// A pipelineRow is an admin.Status.
type pipelineRow struct {
	Pipeline    string         `json:"pipeline" sql:"VARCHAR" doc:"name"`
	State       pipeline.State `json:"state" sql:"VARCHAR" doc:"starting, running, retrying, paused, draining or stopped"`
	Reason      string         `json:"reason,omitempty" sql:"VARCHAR" doc:"why it is retrying, paused or stopped"`
	Since       *time.Time     `json:"since,omitempty" sql:"TIMESTAMP" doc:"when it was paused"`
	Next        *time.Time     `json:"next,omitempty" sql:"TIMESTAMP" doc:"when a pipeline that paused itself next tries a batch"`
	WhyEmpty    string         `json:"why_empty,omitempty" sql:"VARCHAR" doc:"why the source has no partition"`
	Open        int            `json:"open_partitions" sql:"BIGINT" doc:"partitions that it reads"`
	Held        int            `json:"leased_partitions" sql:"BIGINT" doc:"partitions that this worker has leased"`
	Elsewhere   int            `json:"other_partitions" sql:"BIGINT" doc:"partitions that other workers have leased"`
	Worker      string         `json:"worker" sql:"VARCHAR" doc:"name of this worker"`
	Workers     int            `json:"workers" sql:"BIGINT" doc:"live workers; 0 if partitions are not shared"`
	Read        uint64         `json:"read" sql:"UBIGINT" doc:"events read; an event that is read again counts again"`
	Events      uint64         `json:"events" sql:"UBIGINT" doc:"events committed in every sink"`
	Dropped     uint64         `json:"dropped" sql:"UBIGINT" doc:"events that the script dropped"`
	Dead        uint64         `json:"dead" sql:"UBIGINT" doc:"events that became dead letters"`
	Lag         uint64         `json:"lag" sql:"UBIGINT" doc:"events that wait in the source"`
	Circuit     bool           `json:"circuit_open" sql:"BOOLEAN" doc:"true while nothing is read because nothing can be written"`
	DeadLetters int            `json:"dead_letters" sql:"BIGINT" doc:"stored dead letters of all runs"`
	Retries     uint64         `json:"retries" sql:"UBIGINT" doc:"failed attempts to read, or to store what is not a row"`

	ScriptSeconds       float64            `json:"script_seconds" sql:"DOUBLE" doc:"time in the script, summed over lanes"`
	BackpressureSeconds float64            `json:"backpressure_seconds" sql:"DOUBLE" doc:"time that reading waited for batches to commit"`
	Deliveries          pipeline.Latencies `json:"deliveries" sql:"JSON" doc:"an object: count and sum of the times from reading a batch until every sink has it, and how many are up to each bound of perigee_delivery_seconds"`

	Sinks  []admin.SinkStatus  `json:"sinks" sql:"JSON" doc:"a list: name, rows, lag, retries, seconds and commits of each sink"`
	Shadow *admin.ShadowStatus `json:"shadow,omitempty" sql:"JSON" doc:"an object: script, sample, state and figures of the shadow"`
}

func (s *Store) yieldPipelines(yield func(any, error) bool) {
	all, err := s.host.Status(context.Background())
	if err != nil {
		yield(nil, err)
		return
	}
	for _, status := range all {
		if !yield(pipelineRow(status), nil) {
			return
		}
	}
}

// A statRow is a measurement of scripts.
type statRow struct {
	Name    string            `json:"name" sql:"VARCHAR" doc:"name in the script"`
	Kind    string            `json:"kind" sql:"VARCHAR" doc:"counter, gauge or histogram"`
	Labels  map[string]string `json:"labels" sql:"JSON" doc:"an object: value of each label"`
	Value   number            `json:"value" sql:"DOUBLE" doc:"the last value of a gauge, otherwise the sum"`
	Count   uint64            `json:"count" sql:"UBIGINT" doc:"number of values of a histogram"`
	Buckets map[string]uint64 `json:"buckets,omitempty" sql:"JSON" doc:"an object: for each bound of a histogram, the number of values up to it"`
}

// A number encodes as JSON that DuckDB reads as DOUBLE.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsInf(f, 0) || math.IsNaN(f) {
		return json.Marshal(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return json.Marshal(float64(n))
}

func (s *Store) yieldStats(yield func(any, error) bool) {
	all, _ := s.host.Stats.Snapshot()
	for _, stat := range all {
		row := statRow{Name: stat.Name, Kind: stat.Kind.String(), Labels: map[string]string{}, Value: number(stat.Value), Count: stat.Count}
		for _, l := range stat.Labels {
			row.Labels[l.Name] = l.Value
		}
		if len(stat.Bounds) > 0 {
			row.Buckets = map[string]uint64{}
		}
		for i, bound := range stat.Bounds {
			row.Buckets[strconv.FormatFloat(bound, 'g', -1, 64)] = stat.Buckets[i]
		}
		if !yield(row, nil) {
			return
		}
	}
}

// A logRow is a record of the engine's log.
type logRow struct {
	Number     uint64          `json:"number" sql:"UBIGINT" doc:"number of the record since the start of the engine"`
	Time       time.Time       `json:"time" sql:"TIMESTAMP" doc:"time of the record"`
	Level      string          `json:"level" sql:"VARCHAR" doc:"DEBUG, INFO, WARN or ERROR"`
	Message    string          `json:"message" sql:"VARCHAR" doc:"the message"`
	Attributes json.RawMessage `json:"attributes" sql:"JSON" doc:"an object, such as attributes->>'pipeline'"`
}

func (s *Store) yieldLog(yield func(any, error) bool) {
	for _, r := range s.host.Recent() {
		if !yield(logRow{r.Number, r.Time.UTC().Truncate(time.Microsecond), r.Level.String(), r.Message, r.Attributes}, nil) {
			return
		}
	}
}

// deadLetterColumns are named after the JSON keys of a dead letter.
var deadLetterColumns = []systemtable.Column{
	{Name: "id", Type: "VARCHAR", Doc: "name of the dead letter"},
	{Name: "pipeline", Type: "VARCHAR", Doc: "pipeline of the event"},
	{Name: "partition", Type: "VARCHAR", Doc: "partition of the event"},
	{Name: "position", Type: "UBIGINT", Doc: "position in the partition"},
	{Name: "sink", Type: "VARCHAR", Doc: "sink that rejected a row of the event; null if the whole event failed"},
	{Name: "number", Type: "UINTEGER", Doc: "number of the row among the rows of the event, from 0"},
	{Name: "stage", Type: "VARCHAR", Doc: "stage that failed: parse, script, column or sink; or damaged"},
	{Name: "error", Type: "VARCHAR", Doc: "error message"},
	{Name: "traceback", Type: "VARCHAR", Doc: "traceback of the script"},
	{Name: "script", Type: "VARCHAR", Doc: "version of the script"},
	{Name: "first", Type: "TIMESTAMP", Doc: "time of the first failure"},
	{Name: "time", Type: "TIMESTAMP", Doc: "time of the last failure"},
	{Name: "retried", Type: "INTEGER", Doc: "number of retries"},
	{Name: "uncommitted", Type: "BOOLEAN", Doc: "true if its batch is not committed and the event may be read again"},
	{Name: "original", Type: "VARCHAR", Doc: "the event as read; replacement characters replace bytes that are not UTF-8"},
}

func (s *Store) deadLetterRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		if s.deadLetters == nil {
			return
		}
		for l, err := range s.deadLetters.List(deadletter.Filter{}) {
			row := admin.NewDeadLetter(l)
			row.Original = string(l.Original)
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
