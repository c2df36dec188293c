package gopherlua_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/script/scripttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	scripttest.Test(t, gopherlua.Language(), scripttest.Features{})
}

func TestHandler(t *testing.T) { scripttest.TestHandler(t, gopherlua.Handler()) }
