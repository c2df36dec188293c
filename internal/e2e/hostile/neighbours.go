package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// neighbours are an ordinary sender, a monitor and a person who queries, at work while
// an attack runs.
type neighbours struct {
	cancel  context.CancelFunc
	working sync.WaitGroup
	mu      sync.Mutex
	longest wait
	err     error
}

// A wait is how long a neighbour waited until it was served.
type wait struct {
	who  string
	time time.Duration
}

func startNeighbours(t *target) *neighbours {
	n := &neighbours{}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.repeat(ctx, "sender", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, func(ctx context.Context, c *http.Client) error {
		return t.post(ctx, c, `{"id":1,"name":"neighbour"}`)
	})
	n.repeat(ctx, "monitor", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, func(ctx context.Context, c *http.Client) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.metrics+"/ping", nil)
		if err != nil {
			return err
		}
		_, err = do(c, request)
		return err
	})
	n.repeat(ctx, "query", t.socketClient(), func(ctx context.Context, c *http.Client) error {
		for { // a query that lost its memory to another one is asked again
			_, err := query(ctx, c, "SELECT name FROM events LIMIT 1")
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "memory") {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return n
}

// repeat works until ctx ends, and measures how long each piece of work takes.
func (n *neighbours) repeat(ctx context.Context, who string, client *http.Client, work func(context.Context, *http.Client) error) {
	n.working.Go(func() {
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			start := time.Now()
			limited, cancel := context.WithTimeout(context.Background(), patience+500*time.Millisecond)
			err := work(limited, client)
			cancel()
			n.mu.Lock()
			if took := time.Since(start); took > n.longest.time {
				n.longest = wait{who, took}
			}
			if err != nil && n.err == nil {
				n.err = fmt.Errorf("the neighbour %s was not served after %v: %w", who, time.Since(start).Round(time.Millisecond), err)
			}
			n.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

// stop returns the longest wait, and the first error.
func (n *neighbours) stop() (wait, error) {
	n.cancel()
	n.working.Wait()
	return n.longest, n.err
}
