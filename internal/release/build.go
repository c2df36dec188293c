package release

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Build returns the release, and the commit if the program was built in a repository.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return describe(info)
}

// describe describes a build. "go install …@v1.2.3" stamps the version of the module, which differs
// from the release if that was not tagged, and "go build" in a repository its commit.
func describe(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	if module := info.Main.Version; commit == "" && module != "" && module != "(devel)" && module != "v"+Version {
		return Version + ", module " + module
	}
	if commit == "" {
		return Version
	}
	if len(commit) > 12 {
		commit = commit[:12]
	}
	text := fmt.Sprintf("%s, commit %s of %s", Version, commit, strings.TrimSuffix(settings["vcs.time"], "Z"))
	if settings["vcs.modified"] == "true" {
		text += ", modified"
	}
	return text
}
