// Package extension has extension.h, the interface in C between LuaJIT's engine and a library that
// adds modules to it. Both import the package: so a change of the header, which the go command
// does not follow across packages, compiles both again.
package extension

import _ "embed"

// Header is the text of extension.h.
//
//go:embed extension.h
var Header string
