package main

import (
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/computed"
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

// A new kind is linked in by a line here, or in kinds_cgo.go when it needs C, or
// in plugin.go when it needs what Go's plugins do.

func sources() []source.Kind {
	return []source.Kind{file.Kind(), generate.Kind(), http.Kind(), kafka.Kind(), nats.Kind(), redis.Kind()}
}

// sinks lists the sinks; store is the event store of the engine they are for.
func sinks(store *eventStore) []sink.Kind {
	return append(sinksWithC(store), filesink.Kind(), httpsink.Kind(), kafkasink.Kind(), mysql.Kind(), postgres.Kind(), redissink.Kind(), stdout.Kind())
}

// languages lists the script engines; the first is meant where a configuration
// names none.
func languages() []script.Language { return append([]script.Language{lua.Language()}, plugins()...) }

func sourceName(k source.Kind) string       { return k.Name }
func sinkName(k sink.Kind) string           { return k.Name }
func languageName(l script.Language) string { return l.Name }

// known are the names that configurations may use.
func known() config.Known {
	return config.Known{
		Sources:   names(sources(), sourceName),
		Sinks:     names(sinks(nil), sinkName),
		Languages: names(languages(), languageName),
		Types:     names(computed.Types(), event.Type.String),
	}
}

func names[K any](kinds []K, name func(K) string) []string {
	var all []string
	for _, k := range kinds {
		all = append(all, name(k))
	}
	return all
}

// find returns the kind called name, which the configuration has checked to exist.
func find[K any](kinds []K, name func(K) string, wanted string) K {
	return kinds[slices.IndexFunc(kinds, func(k K) bool { return name(k) == wanted })]
}
