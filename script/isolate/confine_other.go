//go:build linux && !amd64

package isolate

import "github.com/perigeedb/perigee/internal/child"

func oldFileCalls() []child.Rule { return nil }
