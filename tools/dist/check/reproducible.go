package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// checkReproducible makes the packages once more, in a clone in another folder: it compiles the
// libraries again, and begins with an empty build cache.
func (c *checker) checkReproducible() {
	c.check("a second build elsewhere makes the same bytes", c.buildAgain())
}

func (c *checker) buildAgain() error {
	clone, out := filepath.Join(c.temporary, "elsewhere", "perigee"), filepath.Join(c.temporary, "again")
	if _, err := c.run("/", nil, "git", "clone", "--quiet", "--shared", c.root, clone); err != nil {
		return err
	}
	// Downloads and tools that make packages; they are not made from this commit.
	if err := os.Mkdir(filepath.Join(clone, ".build"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"luajit-source", "lmdb-source", "dist-tools", "pypi"} {
		if _, err := os.Stat(c.path(".build/" + name)); err != nil {
			continue
		}
		if err := os.Symlink(c.path(".build/"+name), filepath.Join(clone, ".build", name)); err != nil {
			return err
		}
	}
	cache := filepath.Join(c.temporary, "cache")
	program := filepath.Join(c.temporary, "dist")
	if _, err := c.run(c.path("tools/dist"), nil, c.path("tools/go.sh"), "build", "-o", program, "."); err != nil {
		return err
	}
	_, err := c.run(clone, []string{"GOCACHE=" + cache}, program, "-root", clone, "-out", out, "-base", c.path(".build/dist/base"))
	if err != nil {
		return err
	}
	first, err := os.ReadFile(filepath.Join(c.dist, "SHA256SUMS"))
	if err != nil {
		return err
	}
	second, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		return err
	}
	have := strings.Split(string(second), "\n")
	for i, line := range strings.Split(string(first), "\n") {
		if i >= len(have) || have[i] != line {
			err = errors.Join(err, errors.New("differs: "+line))
		}
	}
	return err
}
