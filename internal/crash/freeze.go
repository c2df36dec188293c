package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/internal/rig"
)

// rivalFolder is the data folder of the engine that takes over from a frozen one.
func (s *stage) rivalFolder() string { return filepath.Join(s.folder, "rival-data") }

// freezeEngine stops the engine in some lives, wherever it is, lets a rival take
// its work over, and wakes it up to find itself fenced. The rival is killed.
func (s *stage) freezeEngine(random *rand.Rand, life int, engine *rig.Engine, done *kills) error {
	if !due(life, s.plan.kills, s.plan.freezes, 2) {
		return nil
	}
	done.frozen++
	if err := engine.Freeze(); err != nil {
		return err
	}
	rival, err := rig.Start(s.plan.binary, s.config, s.plan.log(s.folder),
		append(s.Env(), "HTTP=off", "DATA="+s.rivalFolder())...)
	if err != nil {
		return err
	}
	defer rival.Kill()
	time.Sleep(time.Duration(50+random.IntN(300)) * time.Millisecond)
	if err := engine.Thaw(); err != nil {
		return err
	}
	time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	return nil
}

// stallServer stops Redis or MariaDB in some lives, shortly before the engine is
// killed: what the engine has sent is carried out when it is dead, while its
// successor starts. resume wakes the server up soon after.
func (s *stage) stallServer(random *rand.Rand, life int, done *kills) (resume func(), err error) {
	if !due(life, s.plan.kills, s.plan.stalls, 4) {
		return func() {}, nil
	}
	name, pid := "Redis", s.Redis.PID()
	if random.IntN(2) == 0 {
		name, pid = "MariaDB", s.MariaDB.PID()
	}
	done.stalled++
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stop %s: %w", name, err)
	}
	time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
	wait := time.Duration(random.IntN(60)) * time.Millisecond
	return func() { time.AfterFunc(wait, func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) }, nil
}

// due spreads count incidents evenly over lives, each kind at an offset of its own.
func due(life, lives, count, offset int) bool {
	if count == 0 {
		return false
	}
	every := max(1, lives/count)
	return life%every == offset%every && life/every < count
}
