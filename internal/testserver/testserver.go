// Package testserver starts real Redis, MariaDB, PostgreSQL, Kafka and NATS servers for tests,
// demos, benchmarks and perigee verify. Each listens on a free loopback port, keeps its
// data in a given folder, can be killed and restarted on the same port and data, and dies
// with the process that started it. A database of GT.M has the same life without a port.
//
// A server is not safe for concurrent use.
package testserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	readyTime = 30 * time.Second // limit for a server to answer after its start
	stopTime  = 30 * time.Second // limit for a server to exit after a signal
	portTries = 3                // another process may take the free port meanwhile
)

// A server is one process that can be restarted.
type server struct {
	name        string // name of the binary, for errors
	path        string // path of the binary
	dir         string
	port        int
	command     func(port int) []string
	ready       func(ctx context.Context) error
	stopSignal  syscall.Signal // for an orderly shutdown; 0 means SIGTERM
	account     *account       // to run as; nil means the current one
	env         []string       // environment; nil means that of this process
	deathSignal syscall.Signal // signal from the kernel when this process dies; 0 means SIGKILL

	process *os.Process
	exited  chan struct{} // closed when the process has been reaped
}

// An account is the user and group of a server that refuses to run as root.
type account struct{ uid, gid int }

// FindBinary looks for a binary on the path and in Debian's folders for root. Its error
// names the package to install.
func FindBinary(name, debianPackage string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: apt-get install %s", name, debianPackage)
}

// Address returns the host and port that the server listens on.
func (s *server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Dir returns the folder with the server's data and log.
func (s *server) Dir() string { return s.dir }

// PID returns the id of the running process.
func (s *server) PID() int { return s.process.Pid }

// Start restarts the server on its port and data and waits until it answers.
func (s *server) Start(ctx context.Context) error {
	if s.running() {
		return fmt.Errorf("start %s: already running", s.name)
	}
	if err := s.startProcess(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	if err := s.waitReady(ctx); err != nil {
		_ = s.Kill()
		return fmt.Errorf("start %s: %w\n%s", s.name, err, s.logTail())
	}
	return nil
}

// startFirst starts the server for the first time, on a free port.
func (s *server) startFirst(ctx context.Context) (err error) {
	for range portTries {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.Start(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Stop shuts the server down in order and waits for it.
func (s *server) Stop() error { return s.signalAndWait(cmp.Or(s.stopSignal, syscall.SIGTERM)) }

// Kill kills the server with SIGKILL and waits for it.
func (s *server) Kill() error { return s.signalAndWait(syscall.SIGKILL) }

func (s *server) signalAndWait(signal syscall.Signal) error {
	if !s.running() {
		return nil
	}
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopTime):
		_ = s.process.Kill()
		<-s.exited
		return fmt.Errorf("stop %s: it did not exit within %v of %v and was killed", s.name, stopTime, signal)
	}
}

func (s *server) running() bool {
	if s.exited == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// startProcess starts the process from a thread that lives as long as the process: the
// kernel kills the child when the thread that started it exits, not when the parent does.
func (s *server) startProcess() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.path, s.command(s.port)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, log, log
	cmd.SysProcAttr = processAttributes(s.account, cmp.Or(s.deathSignal, syscall.SIGKILL))
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(exited)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		<-exited
		return err
	}
	s.process, s.exited = cmd.Process, exited
	return nil
}

// waitReady polls the server until it answers, exits or runs out of time.
func (s *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		err := s.ready(ctx)
		if err == nil && s.running() {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("it exited at once")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", errors.Join(err, ctx.Err()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *server) logFile() string { return filepath.Join(s.dir, s.name+".log") }

// logTail returns the end of the server's log, for errors.
func (s *server) logTail() []byte {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(log[max(0, len(log)-2000):])
}

// freePort returns a port below those that a system gives to connections of clients: one of those
// could be taken before the server listens, or while it is down between two starts.
func freePort() (int, error) {
	const first, end = 16384, 32768
	var err error
	for range 100 {
		port := first + rand.IntN(end-first)
		l, failed := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if failed == nil {
			return port, l.Close()
		}
		err = failed
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
