package goplugin

import (
	"context"
	"errors"
	"fmt"
	gobuild "go/build"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A tool is a go command and the GOTOOLCHAIN with which it is the right release.
type tool struct{ path, toolchain string }

// environ is the environment for the tool, with its own root.
func (t tool) environ() []string {
	inherited := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GOROOT=") })
	return append(inherited, "GOTOOLCHAIN="+t.toolchain)
}

// release is the Go that this binary was built with, as "go1.26.8".
func release() string {
	name, _, _ := strings.Cut(runtime.Version(), " ")
	return name
}

// candidates are the places where a go command may be. The first is in GOROOT,
// or else where the Go was that built this binary, unless it was told to forget.
func candidates(release string) []string {
	var places []string
	if root := gobuild.Default.GOROOT; root != "" {
		places = append(places, filepath.Join(root, "bin", "go"))
	}
	if path, err := exec.LookPath("go"); err == nil {
		places = append(places, path)
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, "sdk", release, "bin", "go"))
	}
	return append(places, "/usr/local/go/bin/go")
}

// findTool returns the first of the places that has exactly the release, or else
// the first that can fetch it.
func findTool(ctx context.Context, release string, places []string) (tool, error) {
	var others []string
	var found []tool
	for _, path := range places {
		local := tool{path, "local"}
		switch has, err := local.version(ctx); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			others = append(others, fmt.Sprintf("%s does not run: %v", path, err))
		case has == release:
			return local, nil
		default:
			others = append(others, fmt.Sprintf("%s is %s", path, has))
			found = append(found, tool{path, release})
		}
	}
	for _, fetching := range found {
		has, err := fetching.version(ctx)
		if err == nil && has == release {
			return fetching, nil
		}
		others = append(others, fmt.Sprintf("%s could not fetch %s: %v", fetching.path, release, err))
	}
	if len(others) == 0 {
		others = []string{"there is no go command on the path"}
	}
	return tool{}, fmt.Errorf("a plugin for this binary must be built with %s; %s\n"+
		"install it from https://go.dev/dl and put it on the path, or name its folder in GOROOT",
		release, strings.Join(others, "\n  "))
}

// version asks the tool for its release, outside of any module.
func (t tool) version(ctx context.Context) (string, error) {
	command := exec.CommandContext(ctx, t.path, "env", "GOVERSION")
	command.Dir, command.Env = os.TempDir(), append(t.environ(), "GOFLAGS=", "GOWORK=off")
	out, err := output(command)
	name, _, _ := strings.Cut(strings.TrimSpace(out), " ")
	return name, err
}
