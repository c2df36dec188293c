package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// A desk is where dead letters are asked for: in an engine, or in a command while
// none runs.
type desk struct {
	store     *deadletter.Store
	pipelines []string // that the engine runs
	engine    bool
}

// names lists the pipelines.
func (pl *plan) names() (names []string) {
	for _, p := range pl.parts {
		names = append(names, p.config.Name)
	}
	return names
}

// letterRoutes are what can be asked, on the engine's socket and without it.
func letterRoutes() map[string]func(io.Writer, *desk, url.Values) error {
	return map[string]func(io.Writer, *desk, url.Values) error{
		"GET /dlq":        listLetters,
		"GET /dlq/show":   showLetter,
		"GET /dlq/count":  countLetters,
		"GET /dlq/sizes":  sizeLetters,
		"POST /dlq/retry": retryLetters,
		"POST /dlq/purge": purgeLetters,
	}
}

// handlers answer "perigee dlq" beside a running engine.
func (d *desk) handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	for pattern, answer := range letterRoutes() {
		handlers[pattern] = answering(func(w io.Writer, r *http.Request) error {
			return answer(w, d, r.URL.Query())
		})
	}
	return handlers
}

// filterOf reads back what letterFlags and chosenFlags have written.
func filterOf(store *deadletter.Store, q url.Values) (f deadletter.Filter, err error) {
	f = deadletter.Filter{Pipeline: q.Get("pipeline"), Stage: q.Get("stage"), Sink: q.Get("sink"), Text: q.Get("text")}
	for name, at := range map[string]*time.Time{"since": &f.Since, "before": &f.Before} {
		if text := q.Get(name); text != "" {
			if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return f, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if prefixes := q["id"]; len(prefixes) > 0 {
		f.IDs, err = store.Resolve(prefixes)
		err = event.WithHint(err, "perigee dlq list shows the IDs")
	}
	return f, err
}

func listLetters(w io.Writer, d *desk, q url.Values) error {
	filter, err := filterOf(d.store, q)
	if err != nil {
		return err
	}
	switch q.Get("format") {
	case "json":
		return letterArray(w, d.store, filter)
	case "ndjson":
		encoder := jsonEncoder(w)
		for l, err := range d.store.List(filter) {
			if err != nil {
				return err
			}
			if err := encoder.Encode(newLetter(l)); err != nil {
				return err
			}
		}
		return nil
	}
	return letterTable(w, d.store, filter)
}

func letterArray(w io.Writer, store *deadletter.Store, filter deadletter.Filter) error {
	encoder, separator := jsonEncoder(w), "["
	for l, err := range store.List(filter) {
		if err != nil {
			return err
		}
		fmt.Fprint(w, separator)
		separator = ","
		if err := encoder.Encode(newLetter(l)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, strings.TrimPrefix(separator+"]", ","))
	return err
}

func jsonEncoder(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder
}

func showLetter(w io.Writer, d *desk, q url.Values) error {
	filter, err := filterOf(d.store, q)
	if err != nil {
		return err
	}
	for l, err := range d.store.List(filter) {
		switch {
		case err != nil:
			return err
		case q.Get("format") == "raw":
			_, err = w.Write(l.Original)
		case q.Get("format") == "json":
			err = jsonEncoder(w).Encode(newLetter(l))
		default:
			err = describeLetter(w, l)
		}
		return err
	}
	return errors.New("the dead letter has gone")
}

func countLetters(w io.Writer, d *desk, q url.Values) error {
	filter, err := filterOf(d.store, q)
	if err != nil {
		return err
	}
	n, err := d.store.Count(filter)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, counted(n, "dead letter"))
	return err
}

// sizeLetters answers with the number of letters of each pipeline.
func sizeLetters(w io.Writer, d *desk, _ url.Values) error {
	sizes, err := d.store.Sizes()
	if err != nil {
		return err
	}
	return jsonEncoder(w).Encode(sizes)
}

func purgeLetters(w io.Writer, d *desk, q url.Values) error {
	filter, err := filterOf(d.store, q)
	if err != nil {
		return err
	}
	n, err := d.store.Purge(filter)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s deleted\n", counted(n, "dead letter"))
	return err
}

func retryLetters(w io.Writer, d *desk, q url.Values) error {
	filter, err := filterOf(d.store, q)
	if err != nil {
		return err
	}
	outcome, err := d.store.Retry(filter)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s queued to be tried again\n", counted(outcome.Queued, "dead letter"))
	if outcome.Uncommitted > 0 {
		fmt.Fprintf(w, "%s left alone: the batch is not committed yet, and is read again after a crash\n", counted(outcome.Uncommitted, "dead letter"))
	}
	return d.sayWhen(w)
}

// sayWhen says when the letters in the queues are tried.
func (d *desk) sayWhen(w io.Writer) error {
	queued, err := d.store.Queued()
	if err != nil {
		return err
	}
	if !d.engine && len(queued) > 0 {
		fmt.Fprintln(w, `no engine runs here: the next "perigee run" tries them`)
		return nil
	}
	for _, pipeline := range slices.Sorted(maps.Keys(queued)) {
		if !slices.Contains(d.pipelines, pipeline) {
			fmt.Fprintf(w, "%s of pipeline %s, which the running engine does not have: they wait until one does\n",
				counted(queued[pipeline], "dead letter"), pipeline)
		}
	}
	return nil
}

// counted is a number and what it counts.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
