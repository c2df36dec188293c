//go:build !cgo

package reload_test

import "github.com/perigeedb/perigee/script/gopherlua"

var engine = gopherlua.Language()
