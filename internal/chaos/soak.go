package chaos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/internal/e2e"
)

// A SoakResult is the memory of a worker while events arrived faster than its sink
// took them, and whether each of them was delivered once.
type SoakResult struct {
	Report
	Backlog int // events that were left waiting at the end
	samples []memorySample
	length  time.Duration
}

type memorySample struct {
	at        time.Duration
	delivered int // events so far
	e2e.Memory
}

const (
	soakBacklog  = 50_000                 // events that wait, so that the source is never the slower end
	soakInterval = 5 * time.Millisecond   // between two pushes
	soakDelay    = 100 * time.Millisecond // of each packet to the sink and back
	// soakLease leaves time to renew the leases of all keys over the same slow
	// connections: some 0.4 s each, in a third of the lease.
	soakLease = "30s"

	soakSampleEvery = 5 * time.Second // or a hundredth of the time, if that is less
	soakWindows     = 20              // rows of the table: each is the median of its part of the time

	soakStart = 30 * time.Second // until all partitions are leased and open

	// soakGrowth is what the resident memory may grow by from the second tenth of the
	// time to the last: pages of the binary that are used for the first time, the
	// pools' buffers, the noise of the Go heap.
	soakGrowth = 16 << 20
	// soakLateGrowth is what it may grow by in the second half of a run that is long
	// enough (soakLong) for everything to have been used.
	soakLateGrowth = 3_000_000
	soakLong       = 30 * time.Minute
)

// Soak runs one worker in front of a slow sink for d.
func (r *Runner) Soak(ctx context.Context, round Round, d time.Duration) (*SoakResult, error) {
	r.round.Store(&round.Name)
	pipeline := *round.Pipeline
	pipeline.lease = soakLease
	round.Pipeline, round.Workers = &pipeline, 1
	s, err := newTestbed(ctx, r, filepath.Join(r.config.Folder, "soak"), round)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.producer.maxBacklog, s.producer.interval = soakBacklog, soakInterval
	for _, p := range s.workers[0].databases {
		p.setDelay(soakDelay)
	}
	if err := s.startFlow(ctx); err != nil {
		return nil, err
	}
	soak := &SoakResult{length: d}
	if err := s.sampleMemory(ctx, soak); err != nil {
		return nil, err
	}
	if soak.Backlog, err = s.producer.backlog(ctx); err != nil {
		return nil, err
	}
	if soak.Backlog == 0 {
		return nil, fmt.Errorf("no event was left waiting: the sink was not the slower end")
	}
	if err := s.finish(ctx); err != nil {
		return nil, err
	}
	soak.Report, err = s.auditSinks(ctx)
	return soak, err
}

func (s *testbed) sampleMemory(ctx context.Context, soak *SoakResult) error {
	w, began := s.workers[0], time.Now()
	for time.Since(began) < soak.length {
		if err := sleep(ctx, min(soakSampleEvery, soak.length/100)); err != nil {
			return err
		}
		if err := s.checkWorkers(); err != nil {
			return err
		}
		memory, err := w.engine.ReadMemory(ctx, w.socketPath())
		if err != nil && len(soak.samples) == 0 {
			continue // it starts
		}
		if err != nil {
			return err
		}
		delivered, err := s.producer.delivered(ctx)
		if err != nil {
			return err
		}
		soak.samples = append(soak.samples, memorySample{time.Since(began), delivered, memory})
	}
	if len(soak.samples) < soakWindows {
		return fmt.Errorf("only %d samples of the worker's memory in %v", len(soak.samples), soak.length)
	}
	return nil
}

// window returns the median of each figure in part i of n parts of the time.
func (s *SoakResult) window(i, n int) memorySample {
	samples := s.samples[i*len(s.samples)/n : (i+1)*len(s.samples)/n]
	last := samples[len(samples)-1]
	m := memorySample{at: last.at, delivered: last.delivered}
	for _, figure := range []struct {
		to *int64
		of func(memorySample) int64
	}{
		{&m.Resident, func(s memorySample) int64 { return s.Resident }},
		{&m.Anonymous, func(s memorySample) int64 { return s.Anonymous }},
		{&m.FileBacked, func(s memorySample) int64 { return s.FileBacked }},
		{&m.GoHeap, func(s memorySample) int64 { return s.GoHeap }},
		{&m.GoLive, func(s memorySample) int64 { return s.GoLive }},
		{&m.GoStacks, func(s memorySample) int64 { return s.GoStacks }},
		{&m.CInUse, func(s memorySample) int64 { return s.CInUse }},
		{&m.CFree, func(s memorySample) int64 { return s.CFree }},
		{&m.VMs, func(s memorySample) int64 { return s.VMs }},
	} {
		*figure.to = median(samples, figure.of)
	}
	return m
}

func median(samples []memorySample, of func(memorySample) int64) int64 {
	sorted := slices.SortedFunc(slices.Values(samples), func(a, b memorySample) int { return cmp.Compare(of(a), of(b)) })
	return of(sorted[len(sorted)/2])
}

// Print writes a table of the memory over the time, and the figures.
func (s *SoakResult) Print(w io.Writer) {
	out := table.NewWriter()
	out.SetStyle(table.StyleLight)
	out.AppendHeader(table.Row{"MB after", "resident", "anonymous", "file-backed", "Go heap", "Go live", "Go stacks", "C in use", "C free", "VMs", "events/s"})
	var before memorySample
	for i := range soakWindows {
		m := s.window(i, soakWindows)
		row := table.Row{m.at.Round(time.Second).String()}
		for _, bytes := range []int64{m.Resident, m.Anonymous, m.FileBacked, m.GoHeap, m.GoLive, m.GoStacks, m.CInUse, m.CFree, m.VMs} {
			row = append(row, fmt.Sprintf("%.1f", megabytes(bytes)))
		}
		out.AppendRow(append(row, fmt.Sprintf("%.0f", rate(before, m))))
		before = m
	}
	fmt.Fprintln(w, out.Render())
	first, last := s.window(1, 10), s.window(9, 10)
	for _, f := range []struct {
		name        string
		first, last int64
	}{
		{"rss", first.Resident, last.Resident}, {"anonymous", first.Anonymous, last.Anonymous}, {"file", first.FileBacked, last.FileBacked},
		{"go_heap", first.GoHeap, last.GoHeap}, {"go_live", first.GoLive, last.GoLive},
		{"c_in_use", first.CInUse, last.CInUse}, {"c_free", first.CFree, last.CFree}, {"vms", first.VMs, last.VMs},
	} {
		fmt.Fprintf(w, "figure soak_%s_mb_start %.1f\nfigure soak_%s_mb_end %.1f\n", f.name, megabytes(f.first), f.name, megabytes(f.last))
	}
	fmt.Fprintf(w, "figure soak_events_per_s %.0f\n", rate(memorySample{}, before))
	fmt.Fprintf(w, "figure soak_rss_mb_per_minute %.2f\nfigure soak_rss_mb_second_half %.1f\n",
		megabytes(last.Resident-first.Resident)/s.length.Minutes(), megabytes(s.lateGrowth()))
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// lateGrowth is by how much the resident memory grew from the first fifth of the
// second half to the last.
func (s *SoakResult) lateGrowth() int64 {
	return s.window(9, 10).Resident - s.window(5, 10).Resident
}

// rate returns the events delivered per second between two samples.
func rate(from, to memorySample) float64 {
	return float64(to.delivered-from.delivered) / (to.at - from.at).Seconds()
}

// Err returns nil when each event was delivered once, events flowed all the time, and the
// memory stayed flat.
func (s *SoakResult) Err() error {
	var before memorySample
	for i := range soakWindows {
		m := s.window(i, soakWindows)
		if m.delivered == before.delivered && m.at > soakStart {
			return fmt.Errorf("no event was delivered from %v to %v: the memory of an idle worker says nothing",
				before.at.Round(time.Second), m.at.Round(time.Second))
		}
		before = m
	}
	first, last := s.window(1, 10).Resident, s.window(9, 10).Resident
	if last > first+soakGrowth {
		return fmt.Errorf("memory grew from %.1f to %.1f MB", megabytes(first), megabytes(last))
	}
	if growth := s.lateGrowth(); s.length >= soakLong && growth > soakLateGrowth {
		return fmt.Errorf("memory grew by %.1f MB in the second half, more than %.1f", megabytes(growth), megabytes(soakLateGrowth))
	}
	return s.Report.Err()
}
