// Package examples holds the example pipelines, so that `perigee demo` runs the
// very files that a reader sees. They are read-only and safe for concurrent use.
package examples

import "embed"

// Files are the examples, by their path below this folder.
//
//go:embed email/*.lua email/*.yaml email/README.md
var Files embed.FS
