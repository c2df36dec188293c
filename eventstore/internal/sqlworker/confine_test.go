//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// TestConfinement inspects the workers from outside: their OOM scores, memory limits and
// system calls, and the low priority of the merge worker.
func TestConfinement(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	f.appendFrame(1, frameOf(table, 10, testRow(0)))
	f.want(`SELECT count(*) FROM events`, "10")
	f.seal(1)
	f.mergeAll(table)
	mine, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range f.client.shared {
		pid := p.process.Pid
		if got := statusOf(t, pid, "oom_score_adj", ""); got != "1000" {
			t.Errorf("%s: oom_score_adj is %s", name, got)
		}
		if got := statusOf(t, pid, "status", "Seccomp:"); got != "2" {
			t.Errorf("%s: calls are filtered in mode %s", name, got)
		}
		if got := strings.Fields(statusOf(t, pid, "limits", "Max core file size")); got[0] != "0" || got[1] != "0" {
			t.Errorf("%s: core dumps of %v", name, got)
		}
		data := strings.Fields(statusOf(t, pid, "limits", "Max data size"))
		most, err := strconv.ParseInt(data[0], 10, 64)
		if limit := memoryOf(pid, "VmData") + p.settings.Memory + memorySlack; err != nil || most > limit || data[0] != data[1] {
			t.Errorf("%s: memory is limited to %v, want at most %d", name, data, limit)
		}
		nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
		if want := map[protocol.Role]int{protocol.QueryRole: mine, protocol.SealRole: mine, protocol.MergeRole: min(mine, 20-mergeNice)}[name]; err != nil || nice != want { // the system call returns 20 minus the nice value
			t.Errorf("%s: priority %d, want %d", name, nice, want)
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range files {
			open, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
			if strings.HasPrefix(open, filepath.Dir(f.path)) && !strings.HasPrefix(open, f.path) {
				t.Errorf("%s: has %s open", name, open)
			}
		}
	}
	if 2*f.worker(protocol.SealRole).settings.Memory+f.worker(protocol.QueryRole).settings.Memory > workerMemoryDefault {
		t.Error("all workers together may need more than the client has")
	}
}
