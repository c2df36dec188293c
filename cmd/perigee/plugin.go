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

// pluginMetrics counts the loaded plugins; Go cannot unload them.
func pluginMetrics() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "perigee_plugins_loaded",
		Help: "Versions of Go plugins that this process has loaded and cannot unload.",
	}, func() float64 { return float64(goplugin.Loaded()) })}
}

type pluginCommands struct {
	Plugin pluginCommand `cmd:"" group:"Scripts:" help:"Build and check Go plugins for this binary."`
}

type pluginCommand struct {
	Build pluginBuildCommand `cmd:"" help:"Build a Go plugin that matches this binary."`
	Check pluginCheckCommand `cmd:"" help:"Check whether this binary can open a plugin."`
}

type pluginBuildCommand struct {
	Dir    string `arg:"" help:"Folder with the plugin: Go files of package main."`
	Output string `short:"o" placeholder:"FILE" help:"Output file (default: the name of the folder with .so)."`
}

func (pluginBuildCommand) Help() string {
	return `Compiles the folder with the Go release, build settings and module versions of this binary, because a
plugin must match all of them. It needs that release of Go and a C compiler. It does not change the folder.

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
	return `Compares the Go release, build settings and modules of the plugin with those of this binary, and lists every
difference. It does not open the plugin.

Exit code: 0 if the plugin matches, 1 otherwise.

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
