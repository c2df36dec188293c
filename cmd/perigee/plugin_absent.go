//go:build !cgo || !(linux || darwin || freebsd)

package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script"
)

// plugins returns no language, because plugins need the dynamic linker and cgo.
func plugins() []script.Language { return nil }

func pluginMetrics() []prometheus.Collector { return nil }

type pluginCommands struct{}
