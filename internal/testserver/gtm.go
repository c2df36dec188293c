package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A GTM is a private database of GT.M, an implementation of M. It has no server: each
// process that runs a routine works on the database in shared memory. A process of its own
// holds the database open, so that the cache outlives the processes that run routines.
type GTM struct {
	holder server
	dist   string // folder of GT.M's programs
}

// GTMOptions are the sizes of a database. Its blocks have 4 KiB.
type GTMOptions struct {
	Buffers    int // blocks in the cache
	Allocation int // blocks that the new file has room for; more are added when they are full
}

// FindGTM returns the folder with GT.M's programs: $gtm_dist, or that of Debian's newest
// version. Its error says how to install it.
func FindGTM() (string, error) {
	if dist := os.Getenv("gtm_dist"); dist != "" {
		return dist, nil
	}
	found, err := filepath.Glob("/usr/lib/*/fis-gtm/*/mumps")
	if err != nil || len(found) == 0 {
		return "", errors.New("GT.M is not installed: run tools/setup.sh nodes, or apt-get install fis-gtm")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// StartGTM creates a database in dir, with access method BG, without a journal, and with null
// subscripts allowed, and holds it open. The routines are the files *.m of a folder.
func StartGTM(ctx context.Context, dir string, routines fs.FS, o GTMOptions) (*GTM, error) {
	dist, err := FindGTM()
	if err != nil {
		return nil, err
	}
	if dir, err = makeFolder(dir); err != nil {
		return nil, err
	}
	g := &GTM{dist: dist}
	g.holder = server{
		name: "mumps", path: filepath.Join(dist, "mumps"), dir: dir, env: g.environment(dir),
		deathSignal: syscall.SIGTERM, // a killed process leaves its shared memory behind
		command:     func(int) []string { return []string{"-run", "hold"} },
		ready:       g.held,
	}
	if err := g.writeRoutines(routines); err != nil {
		return nil, err
	}
	if err := g.create(ctx, o); err != nil {
		return nil, err
	}
	return g, g.holder.Start(ctx)
}

// environment is what GT.M's programs need. Names of variables are GT.M's.
func (g *GTM) environment(dir string) []string {
	return append(os.Environ(),
		"gtm_dist="+g.dist,
		"gtmgbldir="+filepath.Join(dir, "m.gld"),
		fmt.Sprintf("gtmroutines=%s(%s) %s", filepath.Join(dir, "objects"), filepath.Join(dir, "routines"), filepath.Join(g.dist, "libgtmutil.so")),
		"gtm_tmp="+dir, "gtm_chset=M", "LC_ALL=C",
		`gtm_etrap=use $principal write $zstatus,! zhalt 1`)
}

// hold is the routine that holds the database open. Reading a node opens it.
const hold = `hold	; hold the database open until a signal
	if $data(^hold)
	write "open",!
	for  hang 3600
`

func (g *GTM) writeRoutines(routines fs.FS) error {
	folder := filepath.Join(g.holder.dir, "routines")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.MkdirAll(filepath.Join(g.holder.dir, "objects"), 0o700)); err != nil {
		return err
	}
	names, err := fs.Glob(routines, "*.m")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(routines, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "hold.m"), []byte(hold), 0o600)
}

// create creates the global directory and the database file. The file's name is the last
// part of its command, which otherwise would take what follows as part of it.
func (g *GTM) create(ctx context.Context, o GTMOptions) error {
	commands := fmt.Sprintf(`change -segment DEFAULT -access_method=BG -block_size=4096 -global_buffer_count=%d -allocation=%d -extension_count=50000 -file="%s"
change -region DEFAULT -null_subscripts=always -stdnull -key_size=1019 -record_size=1048576 -nojournal
exit
`, o.Buffers, o.Allocation, filepath.Join(g.holder.dir, "m.dat"))
	if _, err := g.run(ctx, commands, "mumps", "-run", "GDE"); err != nil {
		return err
	}
	_, err := g.run(ctx, "", "mupip", "create")
	return err
}

// held succeeds once the holder has opened the database.
func (g *GTM) held(context.Context) error {
	log, err := os.ReadFile(g.holder.logFile())
	if err != nil || !bytes.Contains(log, []byte("open")) {
		return errors.New("the database is not open")
	}
	return nil
}

// Run runs a routine in a process of its own, such as "load^bench", and returns what it
// writes. It finds the arguments, separated by blanks, in $ZCMDLINE.
func (g *GTM) Run(ctx context.Context, entry string, args ...string) (string, error) {
	return g.run(ctx, "", "mumps", append([]string{"-run", entry}, args...)...)
}

func (g *GTM) run(ctx context.Context, stdin, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(g.dist, program), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = g.holder.dir, g.holder.env, strings.NewReader(stdin)
	// A process that is killed while it works on the shared memory damages the database.
	cmd.SysProcAttr = processAttributes(nil, syscall.SIGTERM)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	runtime.LockOSThread() // the kernel sends the signal when this thread dies
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Stop ends the holder, which writes the cache to the file, and frees the shared memory of a
// process that was killed.
func (g *GTM) Stop() error {
	err := g.holder.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, rundown := g.run(ctx, "", "mupip", "rundown", "-region", "*")
	return errors.Join(err, rundown)
}
