//go:build cgo && (linux || darwin || freebsd)

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/goplugin"
)

func plugins() []script.Language { return []script.Language{goplugin.Language()} }

// pluginMetrics counts the plugins, which can never be unloaded.
func pluginMetrics() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "perigee_plugins_loaded",
		Help: "Versions of Go plugins in this process; none of them can be unloaded.",
	}, func() float64 { return float64(goplugin.Loaded()) })}
}

type pluginCommands struct {
	Plugin pluginCommand `cmd:"" group:"Scripts:" help:"Build Go plugins that this binary can open, and check them."`
}

type pluginCommand struct {
	Build pluginBuildCommand `cmd:"" help:"Build a Go plugin that matches this binary."`
	Check pluginCheckCommand `cmd:"" help:"Report whether this binary can open a plugin, and if not, why."`
}

type pluginBuildCommand struct {
	Dir    string `arg:"" help:"Folder with the plugin: Go files of package main."`
	Output string `short:"o" placeholder:"FILE" help:"Output file (default: the name of the folder with .so)."`
}

func (pluginBuildCommand) Help() string {
	return `Compiles the folder with the Go release, build settings and module versions of this binary, which must
all be equal. It needs that release of Go and a C compiler. The folder is not changed.

Examples:
  perigee plugin build filter
  perigee plugin build ./examples/plugin -o trim.so`
}

func (k *pluginBuildCommand) Run(c *console) error {
	output := k.Output
	if output == "" {
		folder, err := filepath.Abs(k.Dir)
		if err != nil {
			return err
		}
		output = filepath.Base(folder) + ".so"
	}
	if err := goplugin.Build(context.Background(), k.Dir, output); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "built %s for %s %s/%s\n", output, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

type pluginCheckCommand struct {
	File string `arg:"" help:"The plugin."`
}

func (pluginCheckCommand) Help() string {
	return `Compares what the plugin and this binary were built with, without opening the plugin, and lists every
difference: Go release, build settings, modules.

Exit code: 0 when the plugin matches, 1 otherwise.

Example:
  perigee plugin check filter.so`
}

func (k *pluginCheckCommand) Run(c *console) error {
	if err := goplugin.Match(k.File); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s matches this binary\n", k.File)
	return nil
}
