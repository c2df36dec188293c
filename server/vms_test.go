package server

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/perigeedb/perigee/script/pool"
)

func TestVMs(t *testing.T) {
	p := pool.New(pool.Settings{})
	pools := func() []*pool.Pool { return []*pool.Pool{p} }
	want := `
# HELP perigee_vms_idle VMs that are idle.
# TYPE perigee_vms_idle gauge
perigee_vms_idle 0
# HELP perigee_vms_created_total VMs created.
# TYPE perigee_vms_created_total counter
perigee_vms_created_total 0
`
	if err := testutil.CollectAndCompare(VMs(pools), strings.NewReader(want), "perigee_vms_idle", "perigee_vms_created_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(VMs(pools)); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
