// Package main is a plugin for tests that attacks its process as the event requests.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Main performs the attack named by row["do"].
func Main(row map[string]any) (any, error) {
	switch row["do"] {
	case "exit":
		os.Exit(3)
	case "segv":
		return nil, raise(syscall.SIGSEGV)
	case "panic elsewhere":
		go func() { panic("in another goroutine") }()
		time.Sleep(time.Minute)
	case "overflow":
		return overflow(row), nil
	case "spin":
		for {
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "memory":
		hoard()
	case "dial":
		_, err := net.DialTimeout("tcp", "127.0.0.1:1", time.Second)
		return nil, err
	case "listen":
		_, err := net.Listen("tcp", "127.0.0.1:0")
		return nil, err
	case "create":
		_, err := os.Create("/tmp/perigee-hostile")
		return nil, err
	case "read":
		_, err := os.ReadFile("/etc/passwd")
		return nil, err
	case "exec":
		return nil, syscall.Exec("/bin/true", nil, nil)
	case "fork":
		return nil, fork()
	case "init":
		return map[string]any{"init": attempts}, nil
	case "kill parent":
		return nil, syscall.Kill(os.Getppid(), syscall.SIGTERM)
	case "ptrace parent":
		return nil, syscall.PtraceAttach(os.Getppid())
	case "raise limits":
		return nil, syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 1 << 40, Max: 1 << 40})
	case "environ":
		return map[string]any{"environ": strings.Join(os.Environ(), "\n")}, nil
	case "frames":
		spoilFrames()
	case "shrink memory":
		return nil, syscall.Ftruncate(4, 0)
	case "flood":
		rows := make([]map[string]any, 1_000_000)
		for i := range rows {
			rows[i] = map[string]any{}
		}
		return rows, nil
	case "chatter":
		line := strings.Repeat("x", 1<<16)
		for range 1000 {
			fmt.Fprintln(os.Stderr, line)
			fmt.Println(line)
		}
	case "spoil rows":
		go spoilMemory()
	}
	return row, nil
}

// attempts are the plugin's attempts while it was loaded.
var attempts = func() []string {
	_, dial := net.DialTimeout("tcp", "127.0.0.1:1", time.Second)
	return []string{fmt.Sprint(dial), fmt.Sprint(syscall.Exec("/bin/true", nil, nil)), fmt.Sprint(fork()), fmt.Sprint(syscall.Kill(os.Getppid(), 0))}
}()

func fork() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0); errno != 0 {
		return errno
	}
	os.Exit(9) // both of them
	return nil
}

// spoilMemory repeatedly overwrites the memory that the process shares with its parent, while both
// use it.
func spoilMemory() {
	maps, err := syscall.Mmap(4, 0, 160<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	for n := byte(0); ; n++ {
		for i := 64 << 20; i < len(maps); i += 1 + int(n)%7 {
			if i%(1<<20) < 4096 { // the start of an area
				maps[i] = n
			}
		}
	}
}

func raise(signal syscall.Signal) error {
	pid := os.Getpid()
	_, _, errno := syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(pid), uintptr(syscall.Gettid()), uintptr(signal))
	time.Sleep(time.Second)
	return errno
}

//go:noinline
func overflow(row map[string]any) map[string]any {
	return map[string]any{"deeper": overflow(row)}
}

var hoarded [][]byte

func hoard() {
	for {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		hoarded = append(hoarded, block)
	}
}

// spoilFrames sends forged messages to the parent.
func spoilFrames() {
	frame := make([]byte, 48)
	for i := range frame {
		frame[i] = 0xff
	}
	for range 3 {
		if _, err := syscall.Write(3, frame); err != nil {
			panic(fmt.Sprint(err))
		}
	}
	time.Sleep(time.Hour)
}

// Refuse fails every event.
func Refuse(map[string]any) (any, error) { return nil, errors.New("no") }
