//go:build cgo

package computed

import "github.com/perigeedb/perigee/script/luajit"

var engine = luajit.Language
