package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// emulator runs programs for arm64. Its libraries are those of the cross compiler.
var emulator = []string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"}

// command returns the command line of a program for an architecture.
func command(arch, program string) []string {
	if arch == "arm64" {
		return append(append([]string{}, emulator...), program)
	}
	return []string{program}
}

// checkFiles compares the checksums, and reads what is in the tarballs.
func (c *checker) checkFiles() {
	_, err := c.run(c.dist, nil, "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	c.check("SHA256SUMS has the checksum of each file", err)
	for _, arch := range []string{"amd64", "arm64"} {
		c.check("the tarball for "+arch+" has a program that runs, licences and examples", c.checkTarball(arch))
		c.check("the bill of materials for "+arch+" lists modules, libraries and the image's packages", c.checkMaterials(arch))
	}
}

func (c *checker) checkTarball(arch string) error {
	file, err := c.file("perigee-VERSION-linux-" + arch + ".tar.gz")
	if err != nil {
		return err
	}
	folder := filepath.Join(c.temporary, "tarball-"+arch)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if _, err := c.run(folder, nil, "tar", "xzf", file, "--strip-components=1"); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "LICENSES", "README.md", "CHANGELOG.md", "perigee.service", "perigee.yaml", "perigee.bash"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
			return errors.Join(fmt.Errorf("%s is missing or empty", name), err)
		}
	}
	return errors.Join(
		c.checkProgram(command(arch, filepath.Join(folder, "perigee")), arch),
		c.checkCommitter(command(arch, filepath.Join(folder, "perigee-lake")), arch))
}

func (c *checker) checkMaterials(arch string) error {
	file, err := c.file("perigee-VERSION-linux-" + arch + ".cdx.json")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return wants(string(text), `"bomFormat": "CycloneDX"`, `"name": "LuaJIT"`, `"name": "DuckDB"`, `"name": "LMDB"`, `"name": "libc6"`,
		"pkg:golang/github.com/twmb/franz-go@", "pkg:golang/github.com/apache/iceberg-go@", `"version": "`+c.version+`"`)
}

// checkCommitter has perigee-lake tell its version.
func (c *checker) checkCommitter(program []string, arch string) error {
	version, err := c.run("/", nil, program[0], append(program[1:], "version")...)
	return errors.Join(err, wants(version, "perigee-lake "+c.version+", commit ", "linux/"+arch))
}

// checkProgram runs perigee: its version, and a script.
func (c *checker) checkProgram(program []string, arch string) error {
	version, err := c.run("/", nil, program[0], append(program[1:], "version")...)
	if err != nil {
		return err
	}
	if err := wants(version, "perigee "+c.version+", commit ", "linux/"+arch+", with cgo", "LuaJIT 2.1", "DuckDB v", "LMDB ", "data formats: folder "); err != nil {
		return err
	}
	eval := exec.CommandContext(c.ctx, program[0], append(program[1:], "eval", "-e", "event.n = event.n + 1 return event")...)
	eval.Stdin = strings.NewReader(`{"n":1}`)
	out, err := eval.CombinedOutput()
	return errors.Join(err, wants(string(out), `{"n":2}`))
}
