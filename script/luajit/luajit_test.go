//go:build cgo

package luajit_test

import (
	"testing"

	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/scripttest"
)

func TestConformance(t *testing.T) {
	scripttest.Test(t, luajit.Language, scripttest.Features{Memory: true, MixedOrder: true})
}
