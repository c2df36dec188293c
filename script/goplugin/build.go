package goplugin

import (
	"context"
	"errors"
	"fmt"
	gobuild "go/build"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Build compiles the plugin in folder, a package main, to output, so that this
// binary can open it: with the Go release, build settings and module versions of
// this binary. It needs that Go, or a newer one that can fetch it, and a C
// compiler. Nothing in folder is changed.
//
// Only the Go files of the folder itself are code that may change while the
// process runs. Packages beside it are shared by all plugins of the process, as
// modules are.
func Build(ctx context.Context, folder, output string) error {
	ours, err := binary()
	if err != nil {
		return err
	}
	files, err := sources(folder, ours)
	if err != nil {
		return err
	}
	if output, err = filepath.Abs(output); err != nil {
		return err
	}
	tool, err := findTool(ctx, release(), candidates(release()))
	if err != nil {
		return err
	}
	b := build{tool: tool, folder: folder, ours: ours, files: files}
	temporary, err := os.MkdirTemp("", "perigee-plugin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	modules, err := b.pin(ctx, temporary)
	if err != nil {
		return fmt.Errorf("pin the plugin to modules of this binary: %w", err)
	}
	args := append([]string{"build", "-buildmode=plugin", "-buildvcs=false", "-o", output}, modules...)
	if _, err := b.goTool(ctx, append(args, files...)...); err != nil {
		return fmt.Errorf("build plugin %s: %w", folder, err)
	}
	return Match(output)
}

// A build is one run of Build.
type build struct {
	tool   tool
	folder string
	ours   *debug.BuildInfo
	files  []string
}

// sources lists the files to compile. With explicit file names, the linker derives the
// plugin's path from their contents; otherwise two versions could not be loaded
// together.
func sources(folder string, ours *debug.BuildInfo) ([]string, error) {
	target := gobuild.Default
	target.CgoEnabled = true
	target.BuildTags = strings.FieldsFunc(setting(ours, "-tags"), func(r rune) bool { return r == ',' })
	pkg, err := target.ImportDir(folder, 0)
	if empty := (*gobuild.NoGoError)(nil); err != nil && !errors.As(err, &empty) {
		return nil, fmt.Errorf("read plugin: %w", err)
	}
	files := slices.Concat(pkg.GoFiles, pkg.CgoFiles)
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("%s has no Go files; a plugin is a folder with a package main", folder)
	case pkg.Name != "main":
		return nil, fmt.Errorf("%s is package %s; a plugin is a folder with a package main", folder, pkg.Name)
	}
	return files, nil
}

// flags returns the build flags of this binary. All are given, so that none comes from
// the user's settings.
func flags(ours *debug.BuildInfo) []string {
	var all []string
	for _, key := range modes {
		all = append(all, fmt.Sprintf("%s=%v", key, setting(ours, key) == "true"))
	}
	return append(all, "-gcflags="+relevant(ours, "-gcflags"), "-tags="+setting(ours, "-tags"))
}

// goTool runs the go command in the plugin's folder, for the target of this binary, and
// returns its output.
func (b *build) goTool(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, b.tool.path, args...)
	command.Dir = b.folder
	command.Env = append(b.tool.environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1")
	for _, key := range targets {
		if value := setting(b.ours, key); value != "" {
			command.Env = append(command.Env, key+"="+value)
		}
	}
	out, err := output(command)
	if err != nil && strings.Contains(err.Error(), "C compiler") {
		err = fmt.Errorf("%w\na plugin needs a C compiler: install gcc or clang, or name one in CC", err)
	}
	return out, err
}

// output runs a command and returns its output. An error includes what it printed.
func output(command *exec.Cmd) (string, error) {
	var out, fault strings.Builder
	command.Stdout, command.Stderr = &out, &fault
	if err := command.Run(); err != nil {
		if said := strings.TrimSpace(fault.String()); said != "" {
			return "", fmt.Errorf("%w\n%s", err, said)
		}
		return "", err
	}
	return out.String(), nil
}
