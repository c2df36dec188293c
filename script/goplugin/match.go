package goplugin

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
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
	What           string // "Go", a build setting or a module
	Plugin, Binary string // "" for none
}

func (m *Mismatch) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s does not match this binary:\n", m.Path)
	for _, d := range m.Differences {
		fmt.Fprintf(&s, "  %s: the plugin has %s, this binary %s\n", d.What, orNone(d.Plugin), orNone(d.Binary))
	}
	s.WriteString("build it again with: perigee plugin build DIR")
	return s.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// targets are the settings that name a target; Build passes them as environment.
var targets = [...]string{"GOOS", "GOARCH", "GO386", "GOAMD64", "GOARM", "GOARM64", "GOPPC64", "GORISCV64", "GOEXPERIMENT"}

// modes are the flags that change how every package is compiled.
var modes = [...]string{"-race", "-asan", "-msan", "-trimpath"}

// Match compares the build information of the plugin at path with that of this
// binary, without opening it. The error is a *Mismatch if they differ.
func Match(path string) error {
	content, err := read(path)
	if err != nil {
		return err
	}
	return matchContent(path, content)
}

func matchContent(path string, content []byte) error {
	theirs, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s is not a Go plugin: %w", path, err)
	}
	if mode := setting(theirs, "-buildmode"); mode != "plugin" {
		return fmt.Errorf("%s is not a Go plugin: it was built with -buildmode=%s; use perigee plugin build", path, mode)
	}
	ours, err := binary()
	if err != nil {
		return err
	}
	if differences := compare(theirs, ours); len(differences) > 0 {
		return &Mismatch{Path: path, Differences: differences}
	}
	return nil
}

// binary is the build information of this binary.
func binary() (*debug.BuildInfo, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, errors.New("this binary has no build information to match plugins with; build it with go build, within its module")
	}
	return info, nil
}

// compare lists what must be equal and is not. A module that only one of them
// has is no difference.
func compare(theirs, ours *debug.BuildInfo) []Difference {
	var differences []Difference
	differ := func(what, plugin, binary string) {
		if plugin != binary {
			differences = append(differences, Difference{what, plugin, binary})
		}
	}
	differ("Go", theirs.GoVersion, ours.GoVersion)
	for _, key := range slices.Concat(targets[:], modes[:], []string{"-gcflags"}) {
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

// relevant drops the flags that concern the main package alone.
func relevant(info *debug.BuildInfo, key string) string {
	value := setting(info, key)
	if value == "false" || key == "-gcflags" && !strings.Contains(value, "all=") {
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
		return strings.Join(strings.Fields(m.Replace.Path+" "+m.Replace.Version+" "+m.Replace.Sum), " ")
	}
	return strings.TrimSpace(m.Version + " " + m.Sum)
}
