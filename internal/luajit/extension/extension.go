// Package extension contains extension.h, the C interface between LuaJIT's engine and a library
// that adds modules to it. Both sides import the package, so that a change of the header recompiles
// both: the go command does not track includes across packages.
package extension

import _ "embed"

// Header is the text of extension.h.
//
//go:embed extension.h
var Header string
