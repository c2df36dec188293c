package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/perigeedb/perigee/internal/rig"
)

// kills counts what a run did.
type kills struct {
	engine, busy   int // busy: events waited when the engine died
	redis, mariadb int
	frozen         int // engines, while another took over
	stalled        int // servers, while the engine died
}

// torment runs the engine again and again, killing it each time but the last,
// while a producer keeps pushing. Events are spread over the lives of the
// engine, so that there is work in each.
func (s *stage) torment(ctx context.Context, random *rand.Rand) (kills, error) {
	var done kills
	for life := range s.plan.kills {
		engine, err := s.startEngine(ctx)
		if err != nil {
			return done, err
		}
		pushed := s.pushInBackground(ctx, s.plan.events*uint64(life+1)/uint64(s.plan.kills+1))
		// Most lives last about as long as their share of the work; some are much shorter.
		time.Sleep(time.Duration(random.ExpFloat64() * float64(40*time.Millisecond)))
		if err := s.killServers(ctx, random, life, &done); err != nil {
			return done, err
		}
		if err := s.freezeEngine(random, life, engine, &done); err != nil {
			return done, err
		}
		resume, err := s.stallServer(random, life, &done)
		if err != nil {
			return done, err
		}
		engine.Kill()
		resume()
		done.engine++
		if err := <-pushed; err != nil {
			return done, err
		}
		if waiting, err := s.pusher.Waiting(ctx); err == nil && waiting > 0 {
			done.busy++
		}
	}
	return done, s.finish(ctx)
}

// startEngine starts the engine and, as users do, does not wait for much: only
// every other life gets as far as being ready before something happens.
func (s *stage) startEngine(ctx context.Context) (*rig.Engine, error) {
	engine, err := rig.Start(s.plan.binary, s.config, s.plan.log(s.folder), s.Env()...)
	if err != nil {
		return nil, err
	}
	s.lives++
	if s.lives%2 == 0 {
		time.Sleep(30 * time.Millisecond)
		return engine, nil
	}
	if err := engine.Ready(ctx, s.HTTP); err != nil {
		return nil, fmt.Errorf("life %d of the engine: %w", s.lives, err)
	}
	return engine, nil
}

// killServers kills Redis or MariaDB in some lives, evenly spread, under the
// running engine, and starts it again.
func (s *stage) killServers(ctx context.Context, random *rand.Rand, life int, done *kills) error {
	every := max(1, s.plan.kills/max(1, s.plan.serverKills))
	var server interface {
		Kill() error
		Start(context.Context) error
	}
	switch {
	case life%every == every/3 && done.redis < s.plan.serverKills:
		server = s.Redis
		done.redis++
	case life%every == every/3+every/2 && done.mariadb < s.plan.serverKills:
		server = s.MariaDB
		done.mariadb++
	default:
		return nil
	}
	if err := server.Kill(); err != nil {
		return err
	}
	if random.IntN(2) == 0 { // sometimes the engine meets it gone, sometimes it hardly notices
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	return nil
}

// pushInBackground pushes until count events have been pushed in all; it holds
// out while Redis is away.
func (s *stage) pushInBackground(ctx context.Context, count uint64) <-chan error {
	pushed := make(chan error, 1)
	go func() { pushed <- s.pusher.Upto(ctx, count) }()
	return pushed
}

// finish lets one last engine do what is left, and end in order.
func (s *stage) finish(ctx context.Context) error {
	if err := s.pusher.Upto(ctx, s.plan.events); err != nil {
		return err
	}
	engine, err := rig.Start(s.plan.binary, s.config, s.plan.log(s.folder), s.Env()...)
	if err != nil {
		return err
	}
	defer engine.Kill()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		waiting, err := s.pusher.Waiting(ctx)
		if err != nil {
			return err
		}
		if waiting == 0 {
			break
		}
		select {
		case <-engine.Ended():
			return fmt.Errorf("the last engine ended by itself with %d events waiting", waiting)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d events still wait after two minutes", waiting)
		}
	}
	if err := engine.Drain(ctx); err != nil {
		return fmt.Errorf("the last engine did not drain: %w", err)
	}
	return nil
}
