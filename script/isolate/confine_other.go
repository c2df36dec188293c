//go:build linux && !amd64

package isolate

import "github.com/perigeedb/perigee/internal/child"

func oldLoadingCalls() []child.Rule { return nil }
