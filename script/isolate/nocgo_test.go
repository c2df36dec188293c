//go:build linux && !cgo

package isolate

import "github.com/perigeedb/perigee/script"

// Without cgo there are no Go plugins.
func pluginLanguages() []script.Language { return nil }

func removePlugins() {}
