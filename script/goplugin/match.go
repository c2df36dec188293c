package goplugin

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strings"
)

// A Mismatch says why a plugin cannot be opened by this binary.
type Mismatch struct {
	Path        string
	Differences []Difference
}

// A Difference is one thing that plugin and binary do not share.
type Difference struct {
	What           string // a module, a build setting, or "Go"
	Plugin, Binary string
}

func (m *Mismatch) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plugin %s does not match this binary:", m.Path)
	for _, d := range m.Differences {
		fmt.Fprintf(&s, "\n  %s: the plugin has %s, this binary %s", d.What, orNone(d.Plugin), orNone(d.Binary))
	}
	s.WriteString("\nbuild it again with: perigee plugin build DIR")
	return s.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// settings that must be equal, or opening ends the process or fails on some
// innocent package of the standard library.
var settings = []string{"-race", "-asan", "-msan", "-cover", "-trimpath", "-gcflags", "GOARCH", "GOOS", "GOAMD64", "GOARM64", "GOEXPERIMENT"}

// Match compares the build information of the plugin at path with that of this
// binary, without opening it. The error is a *Mismatch if they differ.
func Match(path string) error {
	theirs, err := buildinfo.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no plugin at %s", path)
		}
		return fmt.Errorf("%s is no Go plugin: %w", path, err)
	}
	if mode := setting(theirs, "-buildmode"); mode != "plugin" {
		return fmt.Errorf("%s was built with -buildmode=%s: build it with perigee plugin build, or -buildmode=plugin", path, mode)
	}
	ours, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary has no build information, so no plugin can be matched with it: build it with go build in module mode")
	}
	if differences := compare(theirs, ours); len(differences) > 0 {
		return &Mismatch{Path: path, Differences: differences}
	}
	return nil
}

func compare(theirs, ours *debug.BuildInfo) []Difference {
	var differences []Difference
	differ := func(what, plugin, binary string) {
		if plugin != binary {
			differences = append(differences, Difference{what, plugin, binary})
		}
	}
	differ("Go", theirs.GoVersion, ours.GoVersion)
	for _, key := range settings {
		differ("build setting "+key, relevant(theirs, key), relevant(ours, key))
	}
	have := map[string]string{}
	for _, module := range ours.Deps {
		have[module.Path] = version(module)
	}
	for _, module := range theirs.Deps {
		if binary, shared := have[module.Path]; shared {
			differ("module "+module.Path, version(module), binary)
		}
	}
	return differences
}

// relevant drops what only concerns the main package: such flags may differ.
func relevant(info *debug.BuildInfo, key string) string {
	value := setting(info, key)
	if key == "-gcflags" && !strings.Contains(value, "all=") {
		return ""
	}
	if value == "false" {
		return ""
	}
	return value
}

func setting(info *debug.BuildInfo, key string) string {
	i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
	if i < 0 {
		return ""
	}
	return info.Settings[i].Value
}

// version is what must be equal of a module: where it comes from, its version
// and the sum of its files.
func version(m *debug.Module) string {
	if m.Replace != nil {
		return m.Replace.Path + "@" + m.Replace.Version + " " + m.Replace.Sum
	}
	return strings.TrimSpace(m.Version + " " + m.Sum)
}
