package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// A SoakResult is what a worker held resident while events came faster than they went.
type SoakResult struct {
	Start, End int64 // bytes: medians of the second and of the last tenth of the time
	Waiting    int   // events that were left waiting at the end
	Report
}

const (
	soakBacklog  = 50_000                 // events that wait, so that the source is never the slower one
	soakInterval = 5 * time.Millisecond   // of the producer
	soakDelay    = 100 * time.Millisecond // of each packet to the sink and back
	soakLease    = "10s"                  // renewed over the same slow connections
)

// Soak lets events wait before a slow sink for a time.
func (r *Runner) Soak(ctx context.Context, round Round, d time.Duration) (soak SoakResult, err error) {
	r.round.Store(&round.Name)
	pipeline := *round.Pipeline
	pipeline.lease = soakLease
	round.Pipeline, round.Workers = &pipeline, 1
	s, err := newTestbed(ctx, r, filepath.Join(r.config.Folder, "soak"), round)
	if err != nil {
		return soak, err
	}
	defer s.close()
	s.producer.maxBacklog, s.producer.interval = soakBacklog, soakInterval
	for _, p := range s.workers[0].databases {
		p.setDelay(soakDelay)
	}
	if err := s.startFlow(ctx); err != nil {
		return soak, err
	}
	var samples []int64
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := sleep(ctx, min(time.Second, d/100)); err != nil {
			return soak, err
		}
		if err := s.checkWorkers(); err != nil {
			return soak, err
		}
		samples = append(samples, s.workers[0].engine.ResidentBytes())
	}
	tenth := max(1, len(samples)/10)
	soak.Start, soak.End = median(samples[tenth:2*tenth]), median(samples[len(samples)-tenth:])
	if soak.Waiting, err = s.producer.backlog(ctx); err != nil {
		return soak, err
	}
	if soak.Waiting == 0 {
		return soak, fmt.Errorf("no event waited: the sink was not the slower end")
	}
	if err := s.finish(ctx); err != nil {
		return soak, err
	}
	soak.Report, err = s.auditSinks(ctx)
	return soak, err
}

func median(samples []int64) int64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}
