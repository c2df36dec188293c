package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// limits bound the time that one table takes from the others of an order.
type limits struct {
	// stall is how long a table may make no progress. After one that made none, the tables
	// behind it in the same catalog have half of it each, but at least stallMin.
	stall, stallMin time.Duration
	// uploadTime is the time in which the tables of one catalog upload new files. Each has an
	// equal part of what is left, but at least uploadTimeMin. A table that needs more continues
	// in the next order.
	uploadTime, uploadTimeMin time.Duration
	// abandon is how long to wait for a library that was canceled. Some ignore that.
	abandon time.Duration
}

// defaultLimits leave enough of the engine's half hour for commit and tidy.
var defaultLimits = limits{stall: 3 * time.Minute, stallMin: 20 * time.Second, uploadTime: 20 * time.Minute, uploadTimeMin: 2 * time.Minute, abandon: 2 * time.Second}

const (
	// catalogsMax is the maximum number of catalogs that are worked on at once. Each takes
	// the memory of one publication.
	catalogsMax = 4
	// tidyStall is how many times longer a table may make no progress while it is tidied:
	// the library reports no progress while it reads metadata and commits.
	tidyStall = 4
)

// publishAll carries out an order. Tables of one catalog are published one after the other, and
// catalogs beside each other: one that does not answer must not stop the others.
func publishAll(ctx context.Context, order *lake.Order, l limits) *lake.Report {
	report := &lake.Report{Tables: make([]lake.TableReport, len(order.Tables))}
	type place struct{ catalog, warehouse string }
	groups := map[place][]int{}
	var places []place // in the order of their tables
	for i := range order.Tables {
		at := place{order.Tables[i].Catalog, order.Tables[i].Warehouse}
		if groups[at] == nil {
			places = append(places, at)
		}
		groups[at] = append(groups[at], i)
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, catalogsMax)
	for _, at := range places {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			own, end := l, time.Now().Add(l.uploadTime)
			for k, i := range groups[at] {
				stalled := false
				own.uploadTime = max(time.Until(end)/time.Duration(len(groups[at])-k), l.uploadTimeMin)
				if report.Tables[i], stalled = publishWatched(ctx, &order.Tables[i], own); stalled {
					own.stall = max(own.stall/2, min(own.stall, own.stallMin))
				}
			}
		})
	}
	all.Wait()
	return report
}

// A stallError reports a table that made no progress.
type stallError struct{ after time.Duration }

func (e *stallError) Error() string { return fmt.Sprintf("no progress within %v", e.after) }

// publishWatched publishes a table, and gives up if it makes no progress. A publication that does
// not end then continues beside those of other tables, and ends with the process: treat its commit
// as one with an unknown outcome.
func publishWatched(ctx context.Context, o *lake.TableOrder, l limits) (report lake.TableReport, stalled bool) {
	if ctx.Err() != nil {
		return lake.TableReport{Table: o.Table, Error: context.Cause(ctx).Error()}, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{stall: l.stall, uploadEnd: time.Now().Add(l.uploadTime)}
	w.timer = time.AfterFunc(l.stall, func() {
		cancel(&event.PermanentError{Err: &stallError{l.stall}, Hint: "check that the catalog and the warehouse of the table answer"})
	})
	defer w.timer.Stop()
	own := *o
	own.Columns = slices.Clone(o.Columns) // it fills in their IDs
	done := make(chan lake.TableReport, 1)
	go func() { done <- publish(context.WithValue(ctx, watchKey{}, w), &own) }()
	select {
	case report = <-done:
		return report, false
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	_, stalled = errors.AsType[*stallError](cause)
	select {
	case report = <-done:
	case <-time.After(l.abandon):
		report = lake.TableReport{Table: o.Table, Error: cause.Error(), Hint: event.HintOf(cause)}
	}
	return report, stalled
}

// A watch is what publishWatched knows of a publication. Functions find it in their context.
type watch struct {
	timer     *time.Timer
	mu        sync.Mutex
	stall     time.Duration
	uploadEnd time.Time // when it stops uploading files
}

type watchKey struct{}

func watchOf(ctx context.Context) *watch {
	w, _ := ctx.Value(watchKey{}).(*watch)
	return w
}

// progress records that the publication of a context makes progress. A failed step makes none: a
// catalog that does not answer would otherwise have the time again with each attempt.
func progress(ctx context.Context) {
	if w := watchOf(ctx); w != nil && ctx.Err() == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.timer.Reset(w.stall)
	}
}

// allowStall lets a publication make no progress for some times longer, from now on.
func allowStall(ctx context.Context, times int) {
	if w := watchOf(ctx); w != nil {
		w.mu.Lock()
		w.stall *= time.Duration(times)
		w.mu.Unlock()
	}
	progress(ctx)
}

// isUploadTimeOver reports whether the table's time to upload files is over.
func isUploadTimeOver(ctx context.Context) bool {
	w := watchOf(ctx)
	return w != nil && time.Now().After(w.uploadEnd)
}

// A watchedReader makes progress with each read that has data.
type watchedReader struct {
	ctx context.Context
	io.Reader
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		progress(r.ctx)
	}
	return n, err
}

// A watchedTransport makes progress with each response.
type watchedTransport struct{ http.RoundTripper }

func (t watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		progress(r.Context())
	}
	return response, err
}
