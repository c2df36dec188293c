// Command dist makes the packages of a version: for each architecture a tarball, a Debian package and
// a container image, and for all a Helm chart, a list of what is in the binaries, and checksums.
//
// It builds from a clean clone of the last commit, and takes each time from that commit. Two runs
// on one machine write the same bytes, wherever the clone is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var r release
	flag.StringVar(&r.root, "root", "../..", "folder of the repository")
	flag.StringVar(&r.out, "out", "", "folder of the packages; it is emptied first (default: dist in the repository)")
	flag.StringVar(&r.work, "work", "", "folder of clones and libraries, kept for the next run (default: .build/dist in the repository)")
	flag.StringVar(&r.cache, "base", "", "folder of the packages of the image's base (default: base in -work)")
	flag.StringVar(&r.version, "version", "", "version of the packages (default: that of the repository)")
	architectures := flag.String("arch", "amd64,arm64", "architectures, with commas between")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.make(ctx, strings.Split(*architectures, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// A release is what all packages have in common.
type release struct {
	root, out, work, cache string // folders

	version string
	commit  string
	time    time.Time // of the commit
	files   []string  // in out, as they are made
}

func (r *release) make(ctx context.Context, architectures []string) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	var builds []*build
	for _, arch := range architectures {
		b, err := r.compile(ctx, arch)
		if err != nil {
			return fmt.Errorf("build for %s: %w", arch, err)
		}
		builds = append(builds, b)
	}
	completion, err := r.completion(ctx, builds)
	if err != nil {
		return err
	}
	for _, b := range builds {
		b.completion = completion
		for _, step := range []func(context.Context, *build) error{r.tarball, r.debianPackage, r.image, r.billOfMaterials} {
			if err := step(ctx, b); err != nil {
				return fmt.Errorf("package for %s: %w", b.arch, err)
			}
		}
	}
	if err := r.chart(builds[0].source); err != nil {
		return fmt.Errorf("package the chart: %w", err)
	}
	return r.checksums()
}

// prepare makes the folders, and finds version, commit and time.
func (r *release) prepare(ctx context.Context) (err error) {
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	for _, f := range []struct {
		folder *string
		unset  string
	}{{&r.out, filepath.Join(r.root, "dist")}, {&r.work, filepath.Join(r.root, ".build", "dist")}, {&r.cache, ""}} {
		if *f.folder == "" {
			*f.folder = f.unset
		}
		if *f.folder == "" {
			*f.folder = filepath.Join(r.work, "base")
		}
		if *f.folder, err = filepath.Abs(*f.folder); err != nil {
			return err
		}
	}
	if r.version == "" {
		text, err := os.ReadFile(filepath.Join(r.root, "internal", "release", "VERSION"))
		if err != nil {
			return err
		}
		r.version = strings.TrimSpace(string(text))
	}
	shown, err := output(ctx, r.root, "git", "show", "--no-patch", "--format=%H %cI", "HEAD")
	if err != nil {
		return err
	}
	commit, date, _ := strings.Cut(shown, " ")
	r.commit = commit
	if r.time, err = time.Parse(time.RFC3339, date); err != nil {
		return err
	}
	r.time = r.time.UTC()
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.MkdirAll(r.out, 0o755)
}

// create makes a file of the release and lists it.
func (r *release) create(name string) (*os.File, error) {
	r.files = append(r.files, name)
	return os.Create(filepath.Join(r.out, name))
}
