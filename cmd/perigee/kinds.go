package main

import (
	"log/slog"

	webconsole "github.com/perigeedb/perigee/console"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/release"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	filesink "github.com/perigeedb/perigee/sink/file"
	httpsink "github.com/perigeedb/perigee/sink/http"
	kafkasink "github.com/perigeedb/perigee/sink/kafka"
	"github.com/perigeedb/perigee/sink/mysql"
	"github.com/perigeedb/perigee/sink/postgres"
	redissink "github.com/perigeedb/perigee/sink/redis"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
	"github.com/perigeedb/perigee/source/generate"
	"github.com/perigeedb/perigee/source/http"
	"github.com/perigeedb/perigee/source/kafka"
	"github.com/perigeedb/perigee/source/nats"
	"github.com/perigeedb/perigee/source/redis"
)

// defaultHTTP is the address of an engine whose configuration names none.
const defaultHTTP = "127.0.0.1:4290"

// engineOptions returns the options of an engine with all linked kinds. Add a line here for
// a new kind. plugin.go adds the language of Go plugins.
func engineOptions(c *console, allow []string, log *slog.Logger) engine.Options {
	store := new(eventservice.Store)
	return engine.Options{
		Kinds: engine.Kinds{
			Sources: []source.Kind{file.Kind(), generate.Kind(), http.Kind(), kafka.Kind(), nats.Kind(), redis.Kind()},
			Sinks: append(store.Kinds(), []sink.Kind{
				filesink.Kind(), httpsink.Kind(), kafkasink.Kind(), mysql.Kind(), postgres.Kind(), redissink.Kind(), stdout.Kind(),
			}...),
			Languages: languages(),
			Metrics:   append(pluginMetrics(), store),
		},
		Services:  []engine.Service{store, webconsole.New(webconsole.Settings{Version: release.Build(), Measure: scriptMeter()})},
		Isolation: c.isolation,
		HTTP:      defaultHTTP,
		Allow:     allow, Lookup: c.lookup, Log: log,
	}
}

// linked returns the linked kinds, for commands that run no pipeline.
func linked() engine.Kinds { return engineOptions(&console{}, nil, nil).Kinds }

// languages lists the script engines. The first is the default.
func languages() []script.Language { return append([]script.Language{lua.Language()}, plugins()...) }
