package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/source"
)

type inspectCommand struct {
	eventFlags
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

// eventFlags locate events to look at.
type eventFlags struct {
	File     string `arg:"" name:"events" optional:"" help:"File with one JSON object per line, or with one JSON array; also gzip or zstd. - is standard input."`
	Source   string `placeholder:"URL" help:"Read the events that wait in a source, such as redis://127.0.0.1:6379/LIST, and leave them there."`
	Pipeline string `placeholder:"NAME" help:"Read the events that wait in the source of this pipeline, and leave them there."`
	Config   string `placeholder:"FILE" default:"pipeline.yaml" help:"With --pipeline: configuration file."`
	Limit    uint64 `name:"events" placeholder:"N" help:"End after this number of events (default: all)."`
}

func (inspectCommand) Help() string {
	return `Reads events and describes each field: its type, how many events have it, nulls, the number of distinct
values (approximately), the least and the greatest value, and examples. The fields of an object follow it,
as user.email; those of the elements of an array as items[].price. Below the fields are those that
look like the time or the name of the event, and what is odd: numbers as text, mixed types, integers that
a double cannot represent.

Events are JSON objects, one per line, or the elements of one JSON array; gzip and zstd are recognized.
With --source or --pipeline the command reads the events that wait in a source. It changes nothing there:
the next run of a pipeline gets all of them.

A URL of --source names kind, server and place: redis://HOST:PORT/LIST (rediss:// for TLS),
kafka://HOST:PORT/TOPIC, nats://HOST:PORT/STREAM, file:PATH. Other settings follow as parameters, as in
redis://127.0.0.1/?stream=orders&db=2; "perigee list sources" prints them.

Exit code: 0, or 1 if no event is a JSON object.

Examples:
  perigee inspect events.ndjson
  zstdcat archive.zst | perigee inspect - --format json
  perigee inspect --source redis://127.0.0.1:6379/pepi_queue --events 10000
  perigee inspect --pipeline emails --config pipeline.yaml`
}

func (i *inspectCommand) Run(c *console) error {
	x, err := i.inspect(c, func([]byte) {})
	if err != nil {
		return err
	}
	report := x.Report()
	if i.Format == "json" {
		err = json.NewEncoder(c.out).Encode(report)
	} else {
		err = printReport(c.out, report)
	}
	if err == nil && report.Events == report.Rejected {
		return exitError(exitFailure)
	}
	return err
}

// errLimitReached ends reading at the limit.
var errLimitReached = errors.New("the limit is reached")

// inspect reads the events, and passes each to see. An interrupt ends reading a source early, and not
// the report.
func (f *eventFlags) inspect(c *console, see func(event []byte)) (*inspect.Inspector, error) {
	x := inspect.New()
	add := func(event []byte) error {
		x.Add(event)
		see(event)
		if x.Events() == f.Limit {
			return errLimitReached
		}
		return nil
	}
	err := f.read(c, add)
	if errors.Is(err, errLimitReached) {
		err = nil
	}
	return x, err
}

func (f *eventFlags) read(c *console, add func([]byte) error) error {
	given := 0
	for _, name := range []string{f.File, f.Source, f.Pipeline} {
		if name != "" {
			given++
		}
	}
	switch {
	case given == 0:
		return event.WithHint(usageError("no events are named"), "name a file, - for standard input, --source URL or --pipeline NAME")
	case given > 1:
		return usageError("a file, --source and --pipeline exclude each other: use one of them")
	case f.File != "":
		return readEvents(c, f.File, add)
	}
	s, err := f.newSource(c)
	if err != nil {
		return err
	}
	return readWaiting(c, s, f.Limit, add)
}

// readWaiting passes on the events that wait in a source, up to limit unless that is 0, and closes it.
func readWaiting(c *console, s source.Source, limit uint64, add func([]byte) error) error {
	progress := newNodeProgress(c, "events", limit, false)
	hide := progress.show()
	read := uint64(0)
	err := peek(s, func(event []byte) error {
		read++
		progress.set(read)
		return add(event)
	})
	hide()
	return errors.Join(err, s.Close())
}

// readEvents passes on the events of a file, or of standard input for "-".
func readEvents(c *console, path string, add func([]byte) error) error {
	in, size, name := c.in, int64(0), "standard input"
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open the events: %w", err)
		}
		defer file.Close()
		info, err := file.Stat()
		switch {
		case err == nil && info.IsDir():
			return fmt.Errorf("%s is a folder: name a file with events", path)
		case err == nil && info.Mode().IsRegular():
			size = info.Size()
		}
		in, name = file, path
	}
	progress := newNodeProgress(c, "bytes", uint64(size), false)
	hide := progress.show()
	err := inspect.Read(&countingReader{in, progress}, add)
	hide()
	if err != nil && !errors.Is(err, errLimitReached) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return err
}

// newSource makes the source of --source or --pipeline.
func (f *eventFlags) newSource(c *console) (source.Source, error) {
	if f.Pipeline == "" {
		return newURLSource(c, f.Source)
	}
	conf, err := configFlags{Config: f.Config}.load(context.Background(), c)
	if conf == nil {
		return nil, err
	}
	return newPipelineSource(c, conf, f.Pipeline)
}

func newPipelineSource(c *console, conf *config.Config, pipeline string) (source.Source, error) {
	return engine.NewSource(conf, pipeline, engineOptions(c, nil, slog.New(slog.DiscardHandler)))
}

// newURLSource makes the source that a URL describes.
func newURLSource(c *console, address string) (source.Source, error) {
	described, err := parseSourceURL(address)
	if err != nil {
		return nil, err
	}
	const name = "inspect"
	conf := &config.Config{Pipelines: []config.Pipeline{{Name: name, Source: described, Sinks: []config.Sink{{Kind: "stdout"}}}}}
	return newPipelineSource(c, conf, name)
}

// peek passes on the events that wait in a source. An interrupt ends it.
func peek(s source.Source, add func([]byte) error) error {
	look := s.Traits().Peek
	if look == nil {
		return event.WithHint(errors.New("reading this source consumes its events"), "name a file with events of it")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := look(ctx, func(b *event.Batch) error {
		for i := range b.Len() {
			if err := add(b.Doc(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// sourceSchemes are the schemes of URLs of sources.
var sourceSchemes = []string{"file", "kafka", "nats", "redis", "rediss"}

// parseSourceURL returns the source that a URL describes: kind, server and place, and other
// settings as parameters. Errors do not repeat the URL, which may have a password.
func parseSourceURL(text string) (config.Source, error) {
	u, err := url.Parse(text)
	if err != nil {
		return config.Source{}, event.WithHint(usageError("the URL of --source is invalid"), "redis://127.0.0.1:6379/LIST is an example")
	}
	settings := map[string]any{}
	for key, values := range u.Query() {
		settings[key] = values[len(values)-1]
	}
	set := func(key, value string) {
		if value != "" {
			settings[key] = value
		}
	}
	place, host := strings.TrimPrefix(u.Path, "/"), u.Host
	password, _ := u.User.Password()
	switch u.Scheme {
	case "redis", "rediss":
		set("address", withPorts(host, "6379"))
		set("username", u.User.Username())
		set("password", password)
		set("list", place)
		if u.Scheme == "rediss" {
			set("tls", "true")
		}
		return config.Source{Kind: "redis", Settings: settings}, nil
	case "kafka":
		settings["brokers"] = strings.Split(withPorts(host, "9092"), ",")
		set("user", u.User.Username())
		set("password", password)
		set("topic", place)
	case "nats":
		set("url", "nats://"+withPorts(host, "4222"))
		set("user", u.User.Username())
		set("password", password)
		set("stream", place)
	case "file":
		set("path", u.Opaque+u.Path)
	default:
		hint := "use one of " + strings.Join(sourceSchemes, "://, ") + "://"
		if near := nearest.Name(u.Scheme, sourceSchemes); near != "" {
			hint = fmt.Sprintf("did you mean %s://? %s", near, hint)
		}
		return config.Source{}, event.WithHint(usageError(fmt.Sprintf("unknown scheme %q of --source", u.Scheme)), hint)
	}
	return config.Source{Kind: u.Scheme, Settings: settings}, nil
}

// withPorts adds a port to each host that has none; no host is this machine.
func withPorts(hosts, port string) string {
	if hosts == "" {
		hosts = "127.0.0.1"
	}
	all := strings.Split(hosts, ",")
	for i, host := range all {
		if strings.LastIndexByte(host, ':') <= strings.LastIndexByte(host, ']') {
			all[i] = host + ":" + port
		}
	}
	return strings.Join(all, ",")
}
