//go:build cgo && luajit

package lua

import (
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

const slower = ""

func language() script.Language { return luajit.Language }

func engine() string { return luajit.Version() }
