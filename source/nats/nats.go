// Package nats is a source of messages in a JetStream stream, each a JSON document or an
// event in another format.
//
// A position is a message's sequence number in the stream minus one, so that positions
// count from 0. The name of the partition contains the time at which the stream was
// created, so that a stream that was deleted and created again is another partition.
// The sinks commit the position: there is no durable consumer on the server, and
// reading changes nothing in the stream. A batch never spans missing sequence numbers.
//
// A Source and its readers are safe for concurrent use, as source.Source says.
package nats

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/address"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// Config are the settings below "nats".
type Config struct {
	URL         string `yaml:"url" default:"nats://127.0.0.1:4222" example:"nats://nats.example.com:4222" help:"URL of a server, or of several, separated by commas"`
	Stream      string `yaml:"stream,required" example:"EVENTS" help:"name of the JetStream stream"`
	Subject     string `yaml:"subject" example:"events.email.>" help:"read only messages with this subject, which may have * and >; most efficient when these are most of the stream"`
	Trim        bool   `yaml:"trim" help:"purge messages from the stream when every sink has committed them"`
	User        string `yaml:"user" example:"perigee" help:"name to log in with"`
	Password    string `yaml:"password,secret" example:"${NATS_PASSWORD}" help:"password of the user; give it as ${NAME}"`
	Token       string `yaml:"token,secret" example:"${NATS_TOKEN}" help:"token to log in with; give it as ${NAME}"`
	Credentials string `yaml:"credentials" example:"perigee.creds" help:"file with a JWT and its private key"`
	CA          string `yaml:"ca" example:"tls/ca.pem" help:"file with the CA certificates that signed the server's; turns TLS on"`
	format.Settings
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "nats",
		Doc:    "Reads a NATS JetStream stream; the sinks commit the position.",
		Config: &Config{},
		New: func(env source.Env, decode func(any) error) (source.Source, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Source is one stream. It has one partition.
type Source struct {
	env    source.Env
	config Config
	format format.Format

	mu   sync.Mutex
	conn *nats.Conn // nil until the first use
	js   jetstream.JetStream

	// The partition that was listed last, and the last sequence number in it then.
	seen    string
	seenSeq uint64
}

// New makes a source. It does not connect.
func New(env source.Env, c Config) (*Source, error) {
	if c.URL == "" {
		c.URL = nats.DefaultURL
	}
	if c.Trim && c.Subject != "" {
		return nil, errors.New("trim purges messages of all subjects: remove trim or subject")
	}
	for _, file := range []*string{&c.Credentials, &c.CA} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(env.Folder, *file)
		}
	}
	f, err := format.NewMessages(c.Settings)
	if err != nil {
		return nil, err
	}
	s := &Source{env: env, config: c, format: f}
	for server := range strings.SplitSeq(s.servers(), ",") {
		if _, rest, found := strings.Cut(server, "://"); found {
			server = rest
		}
		server, _, _ = strings.Cut(server, "/")
		if !strings.Contains(server, ":") {
			continue // the client adds the default port
		}
		if err := address.Validate(server); err != nil {
			return nil, fmt.Errorf("url: %w", err)
		}
	}
	return s, nil
}

// connect returns the connection, which reconnects by itself after it was established.
func (s *Source) connect() (jetstream.JetStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.js != nil {
		return s.js, nil
	}
	opts := []nats.Option{nats.Name("perigee " + s.env.Pipeline), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second)}
	if s.config.User != "" {
		opts = append(opts, nats.UserInfo(s.config.User, s.config.Password))
	}
	if s.config.Token != "" {
		opts = append(opts, nats.Token(s.config.Token))
	}
	if s.config.Credentials != "" {
		opts = append(opts, nats.UserCredentials(s.config.Credentials))
	}
	if s.config.CA != "" {
		opts = append(opts, nats.RootCAs(s.config.CA))
	}
	conn, err := nats.Connect(s.config.URL, opts...)
	if err != nil {
		return nil, s.wrapError(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	s.conn, s.js = conn, js
	return js, nil
}

// wrapError adds the servers to an error, and a hint to one that a person must fix.
func (s *Source) wrapError(err error) error {
	err = fmt.Errorf("connect to NATS at %s: %w", s.servers(), err)
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return &event.PermanentError{Err: err, Hint: "check user, password, token or credentials below the nats source"}
	}
	return err
}

// servers returns the servers of the URL without credentials.
func (s *Source) servers() string {
	all := strings.Split(s.config.URL, ",")
	for i, server := range all {
		if at := strings.LastIndexByte(server, '@'); at >= 0 {
			all[i] = server[at+1:]
		}
	}
	return strings.Join(all, ",")
}

// openStream returns the stream and its current state.
func (s *Source) openStream(ctx context.Context) (jetstream.Stream, *jetstream.StreamInfo, error) {
	js, err := s.connect()
	if err != nil {
		return nil, nil, err
	}
	stream, err := js.Stream(ctx, s.config.Stream)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, nil, &event.PermanentError{Err: err, Hint: "start the server with JetStream, as nats-server -js does"}
	case errors.Is(err, nats.ErrNoResponders):
		return nil, nil, fmt.Errorf("JetStream does not respond at %s (nats-server starts it with -js): %w", s.servers(), err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil, fmt.Errorf("stream %s does not exist (yet): %w", s.config.Stream, err)
	case err != nil:
		return nil, nil, fmt.Errorf("open stream %s: %w", s.config.Stream, err)
	}
	return stream, stream.CachedInfo(), nil
}

func partitionName(info *jetstream.StreamInfo) string {
	return fmt.Sprintf("%s@%d", info.Config.Name, info.Created.UnixNano())
}

// Partitions implements source.Source.
func (s *Source) Partitions(ctx context.Context) ([]string, error) {
	_, info, err := s.openStream(ctx)
	if err != nil {
		return nil, err
	}
	partition := partitionName(info)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == partition && info.State.LastSeq < s.seenSeq {
		return nil, s.rollbackError(partition, info.State.LastSeq, fmt.Errorf("stream %s ended at sequence %d, and ends at %d now",
			s.config.Stream, s.seenSeq, info.State.LastSeq))
	}
	s.seen, s.seenSeq = partition, info.State.LastSeq
	return []string{partition}, nil
}

func (s *Source) bounds(ctx context.Context) (map[string]event.Range, error) {
	_, info, err := s.openStream(ctx)
	if err != nil {
		return nil, err
	}
	first := max(info.State.FirstSeq, 1) - 1
	return map[string]event.Range{partitionName(info): {First: first, Count: info.State.LastSeq - min(first, info.State.LastSeq)}}, nil
}

// Traits implements source.Source. Messages arrive as long as the stream exists.
func (s *Source) Traits() source.Traits {
	return source.Traits{Growing: true, Unit: source.UnitBefore("@"), Bounds: s.bounds, Peek: s.peek, Check: s.check, Format: s.format}
}

func (s *Source) peek(ctx context.Context, visit func(*event.Batch) error) error {
	return source.PeekPartitions(ctx, s, visit)
}

func (s *Source) check(ctx context.Context) error {
	_, info, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	if s.config.Trim && info.Config.DenyPurge {
		return &event.PermanentError{
			Err: fmt.Errorf("stream %s cannot be purged", s.config.Stream), Hint: "remove trim below the nats source",
		}
	}
	return nil
}

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	stream, info, err := s.openStream(ctx)
	if err != nil {
		return nil, err
	}
	if partitionName(info) != partition {
		return nil, source.ErrMoved
	}
	if err := s.verifyDone(ctx, stream, info.State, partition, done); err != nil {
		return nil, err
	}
	from := max(info.State.FirstSeq, 1) - 1
	r := &reader{source: s, stream: stream, name: partition, done: done, lag: info.State.Msgs, decoder: s.format.NewDecoder()}
	r.acked.Add(event.Range{Count: from})
	for _, d := range done {
		r.acked.Add(event.Range{First: d.First, Count: d.Count})
	}
	return r, r.start(ctx, done.Next(from))
}

// Close implements source.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
	return nil
}
