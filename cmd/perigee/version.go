package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/perigeedb/perigee/script/lua"
)

type versionCommand struct{}

func (versionCommand) Help() string {
	return `Example:
  perigee version`
}

func (versionCommand) Run(c *console) error {
	fmt.Fprintf(c.out, "perigee %s\n%s %s/%s\n", moduleVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, line := range engineVersions() {
		fmt.Fprintln(c.out, line)
	}
	if lua.Slower() != "" {
		fmt.Fprintln(c.out, "lua:", lua.Slower())
	}
	fmt.Fprintf(c.out, "sources: %s\nsinks: %s\nlanguages: %s\n", strings.Join(known().Sources, ", "),
		strings.Join(known().Sinks, ", "), strings.Join(known().Languages, ", "))
	return nil
}

// moduleVersion is the release, or the commit that the binary was built from.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
