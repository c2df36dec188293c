//go:build linux && cgo && !amd64

package sqlworker

import "github.com/perigeedb/perigee/internal/child"

func oldFileCalls() []child.Rule { return nil }
