package server

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/perigeedb/perigee/script/pool"
)

func TestVMs(t *testing.T) {
	p := pool.New(pool.Settings{})
	want := `
# HELP perigee_vms_idle VMs that wait for callers.
# TYPE perigee_vms_idle gauge
perigee_vms_idle 0
# HELP perigee_vms_made_total VMs made.
# TYPE perigee_vms_made_total counter
perigee_vms_made_total 0
`
	if err := testutil.CollectAndCompare(VMs(p), strings.NewReader(want), "perigee_vms_idle", "perigee_vms_made_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(VMs(p)); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
