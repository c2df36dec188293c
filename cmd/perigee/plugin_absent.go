//go:build !cgo || !(linux || darwin || freebsd)

package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script"
)

// plugins needs the dynamic linker, so it is absent without C.
func plugins() []script.Language { return nil }

func pluginMetrics() []prometheus.Collector { return nil }

type pluginCommands struct{}
