//go:build cgo

package reload_test

import "github.com/perigeedb/perigee/script/luajit"

var engine = luajit.Language
