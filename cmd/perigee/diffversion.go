package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
)

// codeOf returns a version of the script by its name on the command line.
func (d *diffCommand) codeOf(ctx context.Context, c *console, conf *config.Config, name string) (script.Code, error) {
	if name == runningVersion {
		return d.runningCode(ctx, conf)
	}
	place := name
	if !loader.IsAddress(name) {
		if _, err := os.Stat(name); err != nil && strings.Contains(name, ":") {
			return gitCode(ctx, name)
		}
		var err error
		if place, err = filepath.Abs(name); err != nil {
			return script.Code{}, err
		}
	}
	origin, err := loader.Locate(place, "", "")
	if err != nil {
		return script.Code{}, err
	}
	l, err := loader.New(loader.Config{
		Allow: append(slices.Clone(conf.Allow.Hosts), d.Allow...), Lookup: c.lookup,
		S3: loader.S3{Endpoint: conf.S3.Endpoint, Region: conf.S3.Region, AccessKey: conf.S3.AccessKey, SecretKey: conf.S3.SecretKey},
	})
	if err != nil {
		return script.Code{}, err
	}
	defer l.Close()
	code, _, err := l.Code(ctx, origin, "")
	if refused, ok := errors.AsType[*loader.Refused](err); ok {
		return code, event.WithHint(err, "if you trust this host, allow it: --allow "+refused.Host)
	}
	if !origin.Remote() {
		code.Name = name
	}
	return code, err
}

// runningVersion names the version that a running engine runs.
const runningVersion = "running"

// runningCode returns the code that the engine in the data folder runs.
func (d *diffCommand) runningCode(ctx context.Context, conf *config.Config) (script.Code, error) {
	if conf.File == "" {
		return script.Code{}, event.WithHint(usageError("no configuration found for the running pipeline"), "name one with --config FILE")
	}
	p, err := engine.FindPipeline(conf, d.Pipeline)
	if err != nil {
		return script.Code{}, err
	}
	a, err := admin.Open(conf.Data, nil)
	if err != nil {
		return script.Code{}, err
	}
	code, err := a.RunningCode(ctx, p.Name)
	if err = errors.Join(err, a.Close()); err != nil {
		return script.Code{}, err
	}
	if code.Text == nil {
		return script.Code{}, fmt.Errorf("pipeline %s runs a Go plugin: diff compares scripts", p.Name)
	}
	return script.Code{Name: code.Name, Text: code.Text, Files: func(file string) ([]byte, error) {
		if text, found := code.Files[file]; found {
			return text, nil
		}
		return nil, fmt.Errorf("read %s: the running script has not required it: %w", file, fs.ErrNotExist)
	}}, nil
}

const gitTextMax = 4 << 20 // bytes of a script or a module

// gitCode returns a file of a revision in git, such as HEAD~1:email.lua. It reads the modules that
// the code requires from the same revision.
func gitCode(ctx context.Context, name string) (script.Code, error) {
	text, err := readGit(ctx, name)
	if err != nil {
		return script.Code{}, fmt.Errorf("read %s from git: %w", name, err)
	}
	revision, file, _ := strings.Cut(name, ":")
	folder := path.Dir(file) + "/" // which keeps ./ at the beginning: from the working folder
	if folder == "./" && !strings.HasPrefix(file, "./") {
		folder = ""
	}
	ctx = context.WithoutCancel(ctx)
	return script.Code{Name: name, Text: text, Files: func(module string) ([]byte, error) {
		if !fs.ValidPath(module) {
			return nil, fmt.Errorf("read %s of %s: the path leaves the folder", module, revision)
		}
		text, err := readGit(ctx, revision+":"+folder+module)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return text, nil
	}}, nil
}

// readGit returns the content of an object of git.
func readGit(ctx context.Context, object string) ([]byte, error) {
	if strings.HasPrefix(object, "-") {
		return nil, errors.New("a revision does not begin with -")
	}
	var faults bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", "cat-file", "blob", object)
	cmd.Stderr = &faults
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, event.WithHint(err, "install git, or name a file that exists")
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(out, gitTextMax+1))
	out.Close()
	waited := cmd.Wait()
	switch {
	case err != nil:
		return nil, err
	case len(text) > gitTextMax:
		return nil, fmt.Errorf("larger than %d MiB", gitTextMax>>20)
	case waited != nil && faults.Len() > 0:
		return nil, gitError(faults.String())
	}
	return text, waited
}

// gitError returns the first line of what git has written to standard error.
func gitError(text string) error {
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "fatal: "), "\n")
	return event.WithHint(errors.New(text), "write REVISION:PATH, with a path from the top of the repository, or one that begins with ./")
}
