// Package release names the version of Perigee that this tree is, in one place: the file VERSION. The
// command prints it, packages carry it, and data folders name it.
package release

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version is the semantic version, such as "0.1.0".
var Version = strings.TrimSpace(version)
