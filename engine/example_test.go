package engine_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/examples/boltsink"
	"github.com/perigeedb/perigee/examples/dirsource"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// A program embeds an engine with a source, a sink and a script function of its own. The
// configuration is a Go value; OpenFile reads one from a file or an address.
func Example() {
	folder, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	for n, doc := range []string{`{"name":"ada"}`, `{"name":"alan"}`} {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(n, ".json")), []byte(doc), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	db, err := bbolt.Open(filepath.Join(folder, "events.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	title := func(_ context.Context, args []any) ([]any, error) {
		return []any{strings.ToTitle(fmt.Sprint(args...))}, nil
	}
	options := engine.Options{Kinds: engine.Kinds{
		Sources:   []source.Kind{dirsource.Kind()},
		Sinks:     []sink.Kind{boltsink.Kind(db)},
		Languages: []script.Language{lua.Language()},
		Modules:   []script.Module{{Name: "text", Pure: map[string]script.Func{"title": title}}},
	}}
	pipelines := &config.Config{
		Data: filepath.Join(folder, "data"),
		Pipelines: []config.Pipeline{{
			Name:   "people",
			Source: config.Source{Kind: "dir", Settings: dirsource.Config{Path: folder, Once: true}},
			Script: &config.Script{Text: `local text = require "text"
				function main(event) event.name = text.title(event.name) return event end`},
			Sinks: []config.Sink{{Kind: "bolt"}},
		}},
	}
	ctx := context.Background()
	e, err := engine.Open(ctx, pipelines, options)
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	if err := e.Run(ctx); err != nil {
		log.Fatal(err)
	}
	for _, s := range e.Status() {
		fmt.Printf("%s: %d events, %d rows\n", s.Pipeline, s.Events, s.Sinks[0].Rows)
	}
	db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("rows")).ForEach(func(_, doc []byte) error {
			_, err := fmt.Printf("%s\n", doc)
			return err
		})
	})
	// Output:
	// people: 2 events, 2 rows
	// {"name":"ADA"}
	// {"name":"ALAN"}
}
