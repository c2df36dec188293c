package release

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
			{Key: "vcs.time", Value: "2026-11-22T09:00:00Z"}, {Key: "vcs.modified", Value: modified},
		}
	}
	for _, test := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"go install of a release", debug.BuildInfo{Main: debug.Module{Version: "v" + Version}}, Version},
		{"go install of a commit", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, Version + ", module v1.2.3"},
		{"a build in a repository", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: vcs("false")}, Version + ", commit 0123456789ab of 2026-11-22T09:00:00"},
		{"one with changes", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")}, Version + ", commit 0123456789ab of 2026-11-22T09:00:00, modified"},
		{"one without a repository", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Version},
	} {
		if got := describe(&test.info); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
