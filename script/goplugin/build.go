package goplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build compiles the plugin in folder to output so that this binary can open
// it: with the Go release, build settings and module versions of this binary.
// It needs that Go, and a C compiler, on the machine.
//
// The sources are named one by one, because then the linker derives the
// plugin's path from its contents: two versions can be loaded side by side.
func Build(ctx context.Context, folder, output string) error {
	ours, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary has no build information to build a plugin by")
	}
	sources, err := sources(folder)
	if err != nil {
		return err
	}
	output, err = filepath.Abs(output)
	if err != nil {
		return err
	}
	modules, err := pinModules(ctx, folder, ours)
	if err != nil {
		return err
	}
	defer modules.remove()

	args := append([]string{"build", "-buildmode=plugin", "-o", output}, modules.flags()...)
	args = append(args, flags(ours)...)
	_, err = run(ctx, folder, ours, append(args, sources...)...)
	return err
}

// sources lists the files to compile, relative to folder.
func sources(folder string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range found {
		if !strings.HasSuffix(path, "_test.go") {
			names = append(names, filepath.Base(path))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no Go files: a plugin is a folder with a package main", folder)
	}
	return names, nil
}

// flags repeats the build settings that must be equal.
func flags(ours *debug.BuildInfo) []string {
	var flags []string
	for _, key := range []string{"-race", "-asan", "-msan", "-trimpath"} {
		if setting(ours, key) == "true" {
			flags = append(flags, key)
		}
	}
	if gcflags := relevant(ours, "-gcflags"); gcflags != "" {
		flags = append(flags, "-gcflags="+gcflags)
	}
	return flags
}

// run runs the go command with the toolchain and target of this binary, and
// returns what it prints.
func run(ctx context.Context, folder string, ours *debug.BuildInfo, args ...string) (string, error) {
	command := exec.CommandContext(ctx, goCommand(), args...)
	command.Dir = folder
	release, _, _ := strings.Cut(runtime.Version(), " ")
	command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1", "GOTOOLCHAIN="+release)
	for _, key := range []string{"GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT"} {
		if value := setting(ours, key); value != "" {
			command.Env = append(command.Env, key+"="+value)
		}
	}
	var out, fault strings.Builder
	command.Stdout, command.Stderr = &out, &fault
	err := command.Run()
	if err == nil {
		return out.String(), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("building a plugin needs the go command, release %s, on the path", release)
	}
	return "", fmt.Errorf("go %s: %w\n%s", args[0], err, strings.TrimSpace(fault.String()))
}

// goCommand prefers the toolchain that built this binary, where it still stands.
func goCommand() string {
	if root := os.Getenv("GOROOT"); root != "" {
		return filepath.Join(root, "bin", "go")
	}
	return "go"
}

// pinned is a copy of the plugin's go.mod in which every module that this binary
// has too stands in this binary's version. The plugin's own files stay as they are.
type pinned struct{ folder string }

func (p pinned) remove() {
	if p.folder != "" {
		os.RemoveAll(p.folder)
	}
}

func (p pinned) flags() []string {
	if p.folder == "" {
		return nil
	}
	return []string{"-mod=mod", "-modfile=" + filepath.Join(p.folder, "go.mod")}
}

// pinModules makes the pinned copy; a plugin without a go.mod uses the standard
// library alone and needs none.
func pinModules(ctx context.Context, folder string, ours *debug.BuildInfo) (pinned, error) {
	module, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if errors.Is(err, os.ErrNotExist) {
		return pinned{}, nil
	}
	if err != nil {
		return pinned{}, err
	}
	temporary, err := os.MkdirTemp("", "perigee-plugin-")
	if err != nil {
		return pinned{}, err
	}
	p := pinned{temporary}
	if err := os.WriteFile(filepath.Join(temporary, "go.mod"), module, 0o600); err != nil {
		p.remove()
		return pinned{}, err
	}
	if sums, err := os.ReadFile(filepath.Join(folder, "go.sum")); err == nil {
		if err := os.WriteFile(filepath.Join(temporary, "go.sum"), sums, 0o600); err != nil {
			p.remove()
			return pinned{}, err
		}
	}
	if err := p.edit(ctx, folder, ours); err != nil {
		p.remove()
		return pinned{}, err
	}
	return p, nil
}

// edit requires, of every module that both have, this binary's version.
func (p pinned) edit(ctx context.Context, folder string, ours *debug.BuildInfo) error {
	listed, err := run(ctx, folder, ours, append(append([]string{"list"}, p.flags()...), "-m", "all")...)
	if err != nil {
		return err
	}
	theirs := map[string]bool{}
	for line := range strings.Lines(listed) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		theirs[path] = true
	}
	args := []string{"mod", "edit"}
	for _, dep := range ours.Deps {
		if theirs[dep.Path] && dep.Replace == nil {
			args = append(args, "-require="+dep.Path+"@"+dep.Version)
		}
	}
	if len(args) == 2 {
		return nil
	}
	_, err = run(ctx, folder, ours, append(args, filepath.Join(p.folder, "go.mod"))...)
	return err
}
