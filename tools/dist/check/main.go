// Command check tests the packages of this commit: it makes them twice and compares them, installs,
// upgrades and removes the Debian package in a bare Debian, runs the container image, renders the Helm
// chart, and runs tests of the arm64 binary under an emulator. It prints a line for each check, and
// figures. It needs root, for chroot and mount.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	// A process of its own mount namespace: what is mounted ends with it.
	if os.Getenv(inside) == "" {
		os.Exit(again())
	}
	only := flag.String("only", "", "names of groups to run, with commas between (default: all)")
	keep := flag.Bool("keep", false, "use the packages in dist as they are, instead of making them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &checker{ctx: ctx}
	if err := c.setUp(*keep); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
	for _, group := range []struct {
		name string
		run  func()
	}{
		{"files", c.checkFiles}, {"deb", c.checkDebian}, {"image", c.checkImages}, {"chart", c.checkChart},
		{"arm64", c.checkARM}, {"reproducible", c.checkReproducible},
	} {
		if *only == "" || slices.Contains(strings.Split(*only, ","), group.name) {
			began := time.Now()
			group.run()
			fmt.Printf("      %s took %v\n", group.name, time.Since(began).Round(time.Second))
		}
	}
	c.cleanUp()
	c.printSizes()
	fmt.Printf("figure dist_checks %d\nfigure dist_checks_failed %d\n", c.done, c.failed)
	if c.failed > 0 || ctx.Err() != nil {
		os.Exit(1)
	}
}

const inside = "PERIGEE_DIST_CHECK"

// again runs this program once more, in a mount namespace.
func again() int {
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Env = append(os.Environ(), inside+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil {
		if command.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "check:", err, "(it needs root)")
		}
		return 1
	}
	return 0
}

// A checker counts checks.
type checker struct {
	ctx          context.Context
	root         string // of the repository
	dist         string // the packages
	temporary    string
	version      string
	done, failed int
}

func (c *checker) setUp(keep bool) (err error) {
	if c.root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	c.dist = c.path("dist")
	text, err := os.ReadFile(c.path("internal/release/VERSION"))
	if err != nil {
		return err
	}
	c.version = strings.TrimSpace(string(text))
	// Not in memory: it holds the roots of several systems.
	if c.temporary, err = os.MkdirTemp("/tmp", "perigee-dist-"); err != nil {
		return err
	}
	if err := os.Chmod(c.temporary, 0o755); err != nil {
		return err
	}
	if keep {
		return nil
	}
	_, err = c.run(c.path("tools/dist"), nil, c.path("tools/go.sh"), "run", ".")
	return err
}

func (c *checker) path(inRepository string) string { return filepath.Join(c.root, inRepository) }

// cleanUp removes the temporary files. Nothing may be mounted in them.
func (c *checker) cleanUp() {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], c.temporary+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
	_, _ = c.run("/", nil, "rm", "-rf", "--one-file-system", c.temporary)
}

// check counts a check and prints its result.
func (c *checker) check(name string, err error) {
	c.done++
	if err != nil {
		c.failed++
		fmt.Printf("FAIL  %s: %v\n", name, err)
		return
	}
	fmt.Printf("ok    %s\n", name)
}

// run runs a command and returns what it prints.
func (c *checker) run(folder string, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(c.ctx, name, args...)
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, last(string(out), 40))
	}
	return string(out), nil
}

// last returns the last lines of a text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// file returns the path of one package.
func (c *checker) file(pattern string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(c.dist, strings.ReplaceAll(pattern, "VERSION", c.version)))
	if len(found) != 1 {
		return "", fmt.Errorf("dist has %d files %s, not one", len(found), pattern)
	}
	return found[0], nil
}

// wants returns an error unless a text has all parts.
func wants(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("%q is missing in:\n%s", part, last(text, 40))
		}
	}
	return nil
}

func (c *checker) printSizes() {
	for _, kind := range []struct{ name, pattern string }{
		{"tarball", "*-linux-%s.tar.gz"}, {"deb", "*_%s.deb"}, {"image", "*-linux-%s.oci.tar"},
	} {
		for _, arch := range []string{"amd64", "arm64"} {
			file, err := c.file(fmt.Sprintf(kind.pattern, arch))
			if err != nil {
				continue
			}
			if info, err := os.Stat(file); err == nil {
				fmt.Printf("figure %s_%s_mb %.1f\n", kind.name, arch, float64(info.Size())/1e6)
			}
		}
	}
}
