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
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// statusOf returns the rest of a named line in /proc/PID/FILE.
func statusOf(t *testing.T, pid int, file, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// TestConfinement inspects the workers from outside: their OOM scores, memory limits and
// system calls, and the low priority of the merge worker.
func TestConfinement(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(0)))
	f.Want(`SELECT count(*) FROM events`, "10")
	f.Seal(1)
	f.MergeAll(table)
	mine, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []protocol.Role{protocol.QueryRole, protocol.SealRole, protocol.MergeRole} {
		p := f.worker(name)
		pid := p.PID
		if got := statusOf(t, pid, "oom_score_adj", ""); got != "1000" {
			t.Errorf("%s: oom_score_adj is %s", name, got)
		}
		if got := statusOf(t, pid, "status", "Seccomp:"); got != "2" {
			t.Errorf("%s: calls are filtered in mode %s", name, got)
		}
		if got := strings.Fields(statusOf(t, pid, "limits", "Max core file size")); got[0] != "0" || got[1] != "0" {
			t.Errorf("%s: core dumps of %v", name, got)
		}
		mapped, err := strconv.ParseInt(strings.TrimSuffix(statusOf(t, pid, "status", "VmData:"), " kB"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		data := strings.Fields(statusOf(t, pid, "limits", "Max data size"))
		most, err := strconv.ParseInt(data[0], 10, 64)
		if limit := mapped<<10 + p.Limit + protocol.MemorySlack; err != nil || most > limit || data[0] != data[1] {
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
			if strings.HasPrefix(open, filepath.Dir(f.Path)) && !strings.HasPrefix(open, f.Path) {
				t.Errorf("%s: has %s open", name, open)
			}
		}
	}
	const limit = 512 << 20 // default of Options.Memory
	if 2*f.worker(protocol.SealRole).Limit+f.worker(protocol.QueryRole).Limit > limit {
		t.Error("all workers together may need more than the client has")
	}
}
