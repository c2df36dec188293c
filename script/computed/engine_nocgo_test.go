//go:build !cgo

package computed

import "github.com/perigeedb/perigee/script/gopherlua"

var engine = gopherlua.Language()
