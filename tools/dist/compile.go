package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// A build is what is compiled for one architecture.
type build struct {
	arch       string // as Go and Debian name it
	compiler   string
	source     string // clone of the commit that it is built from
	binary     string // perigee
	committer  string // perigee-lake, which needs no library of the machine
	glibc      string // the oldest version of glibc that has all that the binary needs
	licences   []byte // of all that is linked
	completion []byte // for bash
}

// compilers has the C compiler for each architecture, as Debian names it.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// compile builds the programs from a clone of the commit, with the libraries in the clone.
func (r *release) compile(ctx context.Context, arch string) (*build, error) {
	b := &build{arch: arch, compiler: compilers[arch], source: filepath.Join(r.work, "source-"+arch)}
	if b.compiler == "" {
		return nil, errors.New("there is no compiler for this architecture: use amd64 or arm64")
	}
	if err := r.clone(ctx, b); err != nil {
		return nil, err
	}
	if err := b.linkStatically(ctx); err != nil {
		return nil, err
	}
	env := b.environment()
	for _, library := range []string{"luajit", "lmdb"} {
		if err := run(ctx, b.source, env, filepath.Join("tools", library, "build.sh")); err != nil {
			return nil, err
		}
	}
	b.binary = filepath.Join(r.work, "perigee-"+arch)
	// Symbols of linked libraries are not exported, see the Makefile; libstdc++ and libgcc are linked
	// in, so that glibc is all that a machine must have.
	flags := "-s -w -buildid= -extldflags '-Wl,--exclude-libs,ALL -Wl,--build-id=none -static-libgcc -L" + b.staticLibraries() + "'"
	if err := run(ctx, b.source, env, "tools/go.sh", "build", "-trimpath", "-buildvcs=true", "-ldflags", flags, "-o", b.binary, "./cmd/perigee"); err != nil {
		return nil, err
	}
	b.committer = filepath.Join(r.work, "perigee-lake-"+arch)
	module := filepath.Join(b.source, "cmd", "perigee-lake")
	if err := run(ctx, module, append(env, "CGO_ENABLED=0"), "../../tools/go.sh", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -buildid=", "-o", b.committer, "."); err != nil {
		return nil, err
	}
	return b, errors.Join(b.inspect(), r.collectLicences(ctx, b))
}

// programs returns what a package must have side by side: the engine runs the committer of its version.
func (b *build) programs(folder string) []item {
	return []item{
		{name: path.Join(folder, "perigee"), mode: 0o755, from: b.binary},
		{name: path.Join(folder, "perigee-lake"), mode: 0o755, from: b.committer},
	}
}

func (b *build) environment() []string {
	return []string{"CGO_ENABLED=1", "GOOS=linux", "GOARCH=" + b.arch, "CC=" + b.compiler, "GOFLAGS="}
}

// clone updates the clone of the repository, and copies the fetched libraries there.
func (r *release) clone(ctx context.Context, b *build) error {
	if _, err := os.Stat(filepath.Join(b.source, ".git")); err != nil {
		if err := run(ctx, r.root, nil, "git", "clone", "--quiet", "--no-checkout", "--shared", r.root, b.source); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"fetch", "--quiet", "--tags", "--force", r.root, "HEAD"},
		{"checkout", "--quiet", "--force", "--detach", r.commit},
		{"clean", "--quiet", "--force", "-d"},
	} {
		if err := run(ctx, b.source, nil, "git", args...); err != nil {
			return err
		}
	}
	for _, fetched := range []string{"luajit-source", "lmdb-source"} {
		to := filepath.Join(b.source, ".build", fetched)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(filepath.Join(r.root, ".build", fetched))); err != nil {
			return err
		}
	}
	// tools/go.sh uses the Go in .build/pypi, if it is there: both builds have the same one.
	if pypi := filepath.Join(r.root, ".build", "pypi"); exists(pypi) && !exists(filepath.Join(b.source, ".build", "pypi")) {
		return os.Symlink(pypi, filepath.Join(b.source, ".build", "pypi"))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (b *build) staticLibraries() string { return filepath.Join(b.source, ".build", "static") }

// linkStatically makes a folder with the static libstdc++ and no shared one: the linker takes the
// first folder that has either.
func (b *build) linkStatically(ctx context.Context) error {
	library, err := output(ctx, "", b.compiler, "-print-file-name=libstdc++.a")
	if err != nil {
		return err
	}
	if !filepath.IsAbs(library) {
		return fmt.Errorf("%s has no static libstdc++: run tools/setup.sh dist", b.compiler)
	}
	if err := errors.Join(os.RemoveAll(b.staticLibraries()), os.MkdirAll(b.staticLibraries(), 0o755)); err != nil {
		return err
	}
	return os.Symlink(library, filepath.Join(b.staticLibraries(), "libstdc++.a"))
}

// inspect checks which libraries the binary needs, and finds the oldest glibc that has them.
func (b *build) inspect() error {
	file, err := elf.Open(b.binary)
	if err != nil {
		return err
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if name, _, _ := strings.Cut(library, "."); name != "libc" && name != "libm" && !strings.HasPrefix(name, "ld-linux") {
			return fmt.Errorf("the binary needs %s, which a machine may lack", library)
		}
	}
	symbols, err := file.ImportedSymbols()
	if err != nil {
		return err
	}
	var newest [2]int
	for _, s := range symbols {
		version, ok := strings.CutPrefix(s.Version, "GLIBC_")
		if !ok {
			continue
		}
		parts := strings.Split(version, ".")
		if len(parts) < 2 {
			continue
		}
		major, _ := strconv.Atoi(parts[0])
		minor, _ := strconv.Atoi(parts[1])
		if major > newest[0] || major == newest[0] && minor > newest[1] {
			newest = [2]int{major, minor}
		}
	}
	if newest == [2]int{} {
		return errors.New("the binary names no version of glibc")
	}
	b.glibc = fmt.Sprintf("%d.%d", newest[0], newest[1])
	return nil
}

// completion returns the completion for bash, which the binary for this machine prints.
func (r *release) completion(ctx context.Context, builds []*build) ([]byte, error) {
	for _, b := range builds {
		if b.arch == runtime.GOARCH {
			text, err := output(ctx, "", b.binary, "completion", "bash")
			return []byte(text + "\n"), err
		}
	}
	return nil, fmt.Errorf("none of the architectures is that of this machine, %s", runtime.GOARCH)
}
