//go:build !cgo || !(linux || darwin || freebsd)

package main

import "github.com/perigeedb/perigee/script"

// plugins needs the dynamic linker, so it is absent without C.
func plugins() []script.Language { return nil }

type pluginCommands struct{}
