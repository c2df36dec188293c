//go:build cgo && luajit

package luajit_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/scripttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var features = scripttest.Features{Memory: true, MixedOrder: true}

func TestCompiled(t *testing.T)    { scripttest.Test(t, luajit.Language, features) }
func TestInterpreted(t *testing.T) { scripttest.Test(t, luajit.Interpreted, features) }

func TestTrial(t *testing.T) { scripttest.TestTrial(t, luajit.Language) }

func TestHandler(t *testing.T) { scripttest.TestHandler(t, luajit.Handler()) }
