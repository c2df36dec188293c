package redis

import (
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "redis". Just one of List, Lists, Stream and
// Streams is given.
type Config struct {
	Address    string `yaml:"address" help:"host and port, or the path of a socket (127.0.0.1:6379)"`
	Username   string `yaml:"username" help:"user, where the server has several"`
	Password   string `yaml:"password" help:"password; take it from the environment: ${REDIS_PASSWORD}"`
	DB         int    `yaml:"db" help:"number of the database (0)"`
	TLS        bool   `yaml:"tls" help:"encrypt the connection and check the server's certificate"`
	CA         string `yaml:"ca" help:"file with the certificates to trust, in PEM (those of the system)"`
	List       string `yaml:"list" help:"key of the list; producers append with RPUSH"`
	Lists      Keys   `yaml:"lists" help:"several lists; with *, ? or [ a pattern, whose lists are looked for while the pipeline runs"`
	Stream     string `yaml:"stream" help:"key of the stream, instead of a list"`
	Streams    Keys   `yaml:"streams" help:"several streams, as for lists"`
	Field      string `yaml:"field" help:"field of a stream's entries that holds the document (the only one; of several, an object is made)"`
	Script     string `yaml:"script" help:"file with a Redis script in Lua that reads the list's key instead of us"`
	Trim       Trim   `yaml:"trim" help:"with script: the script that gives events up. With a stream: false keeps entries that are done (true)"`
	Lost       string `yaml:"lost" help:"when others remove entries of a stream that no sink has: stop or report (stop)"`
	UntilEmpty bool   `yaml:"until_empty" help:"end when there are no more events, instead of waiting for them"`
}

// Keys are names of keys, or patterns. In a configuration one may stand alone.
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
	stopLost   = "stop"
	reportLost = "report"
)

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "redis",
		Doc:    "Drains Redis lists or streams; events stay there until they are durable in every sink.",
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

func (c *Config) server() resp.Server {
	return resp.Server{Address: c.Address, Username: c.Username, Password: c.Password, DB: c.DB, TLS: c.TLS, CA: c.CA}
}

// A form is what a partition is in Redis.
type form int

const (
	asList form = iota
	asStream
	asPair // a user's peek and trim scripts
	asPop  // a user's script that takes events away
)

func (f form) String() string { return [...]string{"list", "stream", "key", "key"}[f] }

// form finds what is to be read, and refuses settings that do not fit together.
func (c *Config) form() (form, Keys, error) {
	var keys Keys
	given := 0
	for _, k := range []Keys{one(c.List), c.Lists, one(c.Stream), c.Streams} {
		if len(k) > 0 {
			keys, given = k, given+1
		}
	}
	streams := c.Stream != "" || len(c.Streams) > 0
	switch {
	case given == 0:
		return 0, nil, errors.New("list is missing: name the key that producers push to with list, lists, stream or streams")
	case given > 1:
		return 0, nil, errors.New("more than one of list, lists, stream and streams is given: keep one; a pipeline reads lists or streams")
	case streams && c.Script != "":
		return 0, nil, errors.New("script is for a key that is given as list; a stream needs none")
	case !streams && c.Field != "":
		return 0, nil, errors.New("field is for streams; the items of a list are the documents")
	case !streams && c.Lost != "":
		return 0, nil, errors.New("lost is for streams")
	case c.Lost != "" && c.Lost != stopLost && c.Lost != reportLost:
		return 0, nil, fmt.Errorf("lost is %q; it can be %s or %s", c.Lost, stopLost, reportLost)
	}
	for _, k := range keys {
		if k == "" {
			return 0, nil, errors.New("the name of a key is empty")
		}
	}
	f, err := c.formBy(streams)
	return f, keys, err
}

// formBy decides by script and trim.
func (c *Config) formBy(streams bool) (form, error) {
	plain := c.Trim == "" || c.Trim == "true" || c.Trim == "false"
	switch {
	case streams && !plain:
		return 0, fmt.Errorf("trim is %q; for a stream it can be true or false", c.Trim)
	case streams:
		return asStream, nil
	case c.Script == "" && c.Trim != "":
		return 0, errors.New("trim is for streams, and beside script; a list is always trimmed")
	case c.Script == "":
		return asList, nil
	case c.Trim == "":
		return asPop, nil
	case plain:
		return 0, fmt.Errorf("trim is %q; beside script it names the file of the script that gives events up", c.Trim)
	}
	return asPair, nil
}

func one(key string) Keys {
	if key == "" {
		return nil
	}
	return Keys{key}
}
