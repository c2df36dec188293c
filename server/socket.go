package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

const (
	socketMode    = 0o600
	maxSocketPath = 107 // what fits into the address of a socket, on Linux
)

// listenSocket listens on a socket that only the owner can open. The engine
// that owns the data folder replaces a socket that nobody listens on, as one
// that was killed leaves it, and refuses one that answers.
func listenSocket(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes and a socket's may have %d: choose a shorter data folder",
			len(path), maxSocketPath)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, errors.New("another engine is running in this data folder")
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: private}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// private gives the socket its mode before its file exists, where the system
// can: a change afterwards leaves a moment in which anyone may connect.
func private(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), socketMode) })
}
