package redis

import (
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// Config are the settings below "redis". Exactly one of List, Lists, Stream and Streams
// is given.
type Config struct {
	Address    string `yaml:"address" default:"127.0.0.1:6379" example:"redis.example.com:6379" help:"host:port, or the path of a Unix socket"`
	Username   string `yaml:"username" example:"perigee" help:"user, if the server has several"`
	Password   string `yaml:"password,secret" example:"${REDIS_PASSWORD}" help:"password; give it as ${REDIS_PASSWORD}"`
	DB         int    `yaml:"db" default:"0" example:"2" help:"number of the database"`
	TLS        bool   `yaml:"tls" help:"encrypt the connection and verify the server's certificate"`
	CA         string `yaml:"ca" default:"(those of the system)" example:"tls/ca.pem" help:"file with CA certificates in PEM"`
	List       string `yaml:"list" example:"emails" help:"key of the list; producers append with RPUSH"`
	Lists      Keys   `yaml:"lists" kind:"string or list of string" example:"[emails, bounces]" help:"several lists; a name with *, ? or [ is a pattern, and new keys that match are read too"`
	Stream     string `yaml:"stream" example:"emails" help:"key of the stream, instead of a list"`
	Streams    Keys   `yaml:"streams" kind:"string or list of string" example:"emails:*" help:"several streams, as in lists"`
	Shards     int    `yaml:"shards" unit:"shards" example:"16" help:"with list or stream: number of shards among which the events are distributed by key; the keys are emails:0, emails:1, …"`
	Field      string `yaml:"field" default:"(the only field; several fields become an object)" example:"data" help:"field of a stream's entries that contains the event"`
	Script     string `yaml:"script" example:"peek.lua" help:"file with a Redis script in Lua that reads the key of list"`
	Trim       Trim   `yaml:"trim" default:"(true for a stream)" example:"trim.lua" help:"with script: file with the script that removes events; with a stream: false keeps committed entries"`
	Lost       string `yaml:"lost" default:"(stop for a stream)" choices:"stop,report" help:"what to do when others remove entries of a stream before every sink has them: stop or report"`
	UntilEmpty bool   `yaml:"until_empty" help:"end when there are no more events instead of waiting for new ones"`
	format.Settings
}

// Keys are names of keys, or patterns. A configuration may give a single one without a list.
type Keys []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Keys) UnmarshalText(text []byte) error {
	*k = Keys{string(text)}
	return nil
}

// A Trim is "false", "true" or a file.
type Trim string

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Trim) UnmarshalText(text []byte) error {
	*t = Trim(text)
	return nil
}

const (
	lostStop   = "stop"
	lostReport = "report"
)

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "redis",
		Doc:    "Drains Redis lists or streams; events stay there until every sink has committed them.",
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

func (c *Config) serverSettings() resp.Server {
	return resp.Server{Address: c.Address, Username: c.Username, Password: c.Password, DB: c.DB, TLS: c.TLS, CA: c.CA}
}

// A keyKind is how Redis keeps the events of a partition. The numbers are part of the
// names of generations.
type keyKind int

const (
	listKey keyKind = iota
	streamKey
	scriptedKey // read and trimmed by a user's scripts
	poppedKey   // popped by a user's script
)

func (f keyKind) String() string { return [...]string{"list", "stream", "key", "key"}[f] }

// keyKindAndNames returns what to read, or an error when settings contradict each other.
func (c *Config) keyKindAndNames() (keyKind, Keys, error) {
	var keys Keys
	given := 0
	for _, k := range []Keys{nonEmpty(c.List), c.Lists, nonEmpty(c.Stream), c.Streams} {
		if len(k) > 0 {
			keys, given = k, given+1
		}
	}
	streams := c.Stream != "" || len(c.Streams) > 0
	switch {
	case given == 0:
		return 0, nil, event.WithHint(errors.New("no key"), "set list, lists, stream or streams")
	case c.Shards < 0 || c.Shards > shardsMax:
		return 0, nil, fmt.Errorf("invalid shards %d: use 1 to %d", c.Shards, shardsMax)
	case c.Shards > 0 && c.List == "" && c.Stream == "":
		return 0, nil, errors.New("shards needs list or stream")
	case given > 1:
		return 0, nil, event.WithHint(errors.New("list, lists, stream and streams exclude each other"), "keep one of them")
	case streams && c.Script != "":
		return 0, nil, errors.New("script needs list or lists: it cannot read a stream")
	case streams && c.Field == "" && c.Format != "" && c.Format != format.JSON:
		return 0, nil, fmt.Errorf("format: %s needs field: it names the field of an entry that contains the event", c.Format)
	case !streams && c.Field != "":
		return 0, nil, errors.New("field needs stream or streams: the items of a list are the documents")
	case !streams && c.Lost != "":
		return 0, nil, errors.New("lost needs stream or streams")
	case c.Lost != "" && c.Lost != lostStop && c.Lost != lostReport:
		return 0, nil, fmt.Errorf("invalid lost %q: use %s or %s", c.Lost, lostStop, lostReport)
	}
	for _, k := range keys {
		if k == "" {
			return 0, nil, errors.New("the name of a key is empty")
		}
	}
	if c.Shards > 0 {
		keys = shardKeys(keys[0], c.Shards)
	}
	f, err := c.kindByScript(streams)
	return f, keys, err
}

// shardsMax is the greatest number of shards.
const shardsMax = 10_000

// shardKeys returns the keys of shards, as the sink names them.
func shardKeys(name string, shards int) (keys Keys) {
	for i := range shards {
		keys = append(keys, fmt.Sprintf("%s:%d", name, i))
	}
	return keys
}

// kindByScript decides by script and trim.
func (c *Config) kindByScript(streams bool) (keyKind, error) {
	plain := c.Trim == "" || c.Trim == "true" || c.Trim == "false"
	switch {
	case streams && !plain:
		return 0, fmt.Errorf("invalid trim %q: for a stream, use true or false", c.Trim)
	case streams:
		return streamKey, nil
	case c.Script == "" && c.Trim != "":
		return 0, errors.New("trim needs a stream or script: a list is always trimmed")
	case c.Script == "":
		return listKey, nil
	case c.Trim == "":
		return poppedKey, nil
	case plain:
		return 0, fmt.Errorf("invalid trim %q: with script, name the file of the script that removes events", c.Trim)
	}
	return scriptedKey, nil
}

func nonEmpty(key string) Keys {
	if key == "" {
		return nil
	}
	return Keys{key}
}
