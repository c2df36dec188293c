package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/release"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script/lua"
)

type versionCommand struct{}

func (versionCommand) Help() string {
	return `Example:
  perigee version`
}

func (versionCommand) Run(c *console) error {
	fmt.Fprintf(c.out, "perigee %s\n%s %s/%s%s\n", release.Build(), runtime.Version(), runtime.GOOS, runtime.GOARCH, cgo())
	for _, line := range engineVersions() {
		fmt.Fprintln(c.out, line)
	}
	if lua.Slower() != "" {
		fmt.Fprintln(c.out, "lua:", lua.Slower())
	}
	if nodedb.Version() == "" {
		fmt.Fprintf(c.out, "node database: absent: %s\n", event.HintOf(nodedb.ErrUnavailable))
	}
	fmt.Fprintln(c.out, "data formats:", dataFormats())
	kinds := linked()
	var sources, sinks, languages []string
	for _, k := range kinds.Sources {
		sources = append(sources, k.Name)
	}
	for _, k := range kinds.Sinks {
		sinks = append(sinks, k.Name)
	}
	for _, k := range kinds.Languages {
		languages = append(languages, k.Name)
	}
	fmt.Fprintf(c.out, "sources: %s\nsinks: %s\nlanguages: %s\n",
		strings.Join(sources, ", "), strings.Join(sinks, ", "), strings.Join(languages, ", "))
	return nil
}

// engineVersions returns the versions of the Lua engine, DuckDB and the node database.
func engineVersions() []string {
	versions := append([]string{lua.Engine()}, eventservice.Version()...)
	if version := nodedb.Version(); version != "" {
		versions = append(versions, version)
	}
	return versions
}

// cgo tells whether C code is linked.
func cgo() string {
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}) {
		return ", with cgo"
	}
	return ", without cgo"
}

// dataFormats describes the format versions that this binary writes into data folders.
func dataFormats() string {
	formats := fmt.Sprintf("folder %d", datafolder.Format)
	if store := eventservice.StoreFormats(); store != "" {
		formats += "; event store: " + store
	}
	if format := nodedb.Format(); format != "" {
		formats += "; node database: " + strings.TrimPrefix(format, "perigee nodedb ") + "; state: " + state.Formats()
	}
	return formats
}
