package redis

import (
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/sink"
)

// Config are the settings below "redis". Just one of List, Stream and Hash is given.
type Config struct {
	Address  string `yaml:"address" default:"127.0.0.1:6379" example:"redis.example.com:6379" help:"host and port, or the path of a socket"`
	Username string `yaml:"username" example:"perigee" help:"user, if the server has several"`
	Password string `yaml:"password,secret" example:"${REDIS_PASSWORD}" help:"password; take it from the environment: ${REDIS_PASSWORD}"`
	DB       int    `yaml:"db" default:"0" example:"2" help:"number of the database"`
	TLS      bool   `yaml:"tls" help:"encrypt the connection and check the server's certificate"`
	CA       string `yaml:"ca" default:"(those of the system)" example:"tls/ca.pem" help:"file with the certificates to trust, in PEM"`
	List     string `yaml:"list" example:"emails" help:"key of the list that documents are appended to"`
	Stream   string `yaml:"stream" example:"emails" help:"key of the stream that documents are appended to"`
	Shards   int    `yaml:"shards" unit:"shards" example:"16" help:"with list or stream: number of lists or streams, emails:0, emails:1, …, among which documents are distributed by the field by"`
	By       string `yaml:"by" example:"user.id" help:"with shards: field, as a.b.c, that decides the shard of a document: the FNV-1a hash of its text, 64 bits, modulo shards"`
	Field    string `yaml:"field" default:"data" example:"event" help:"field of a stream's entry that holds the document"`
	Order    string `yaml:"order" default:"source" choices:"source,any" help:"order of the documents of a partition in a list or stream: source, or any, which lets lanes write without waiting for each other"`
	Hash     string `yaml:"hash" example:"user:{user.id}" help:"key of the hash that each document becomes, with fields of the document in braces: user:{user.id}"`
}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "redis",
		Doc:       "Writes documents to a Redis list or stream, or as hashes, each exactly once.",
		Guarantee: sink.ExactlyOnce,
		Place:     &sink.Place{Keys: []string{"list", "stream", "hash"}, Identity: identity},
		Config:    &Config{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			var config Config
			if err := decode(&config); err != nil {
				return nil, err
			}
			return New(env, config)
		},
	}
}

func (c *Config) server() resp.Server {
	return resp.Server{Address: c.Address, Username: c.Username, Password: c.Password, DB: c.DB, TLS: c.TLS, CA: c.CA}
}

func (c *Config) order(kind string) (sink.Order, error) {
	if kind != "hash" {
		return sink.ParseOrder(c.Order)
	}
	if c.Order != "" {
		return 0, errors.New("order is for lists and streams: of two documents for one hash the later one must win")
	}
	return sink.StrictOrder, nil
}

// shardsMax is the greatest number of shards.
const shardsMax = 10_000

// target returns what is written to, and an error about settings that contradict.
func (c *Config) target() (kind, name string, err error) {
	given := 0
	for k, n := range map[string]string{"list": c.List, "stream": c.Stream, "hash": c.Hash} {
		if n != "" {
			kind, name, given = k, n, given+1
		}
	}
	switch {
	case given == 0:
		return "", "", errors.New("list is missing: set list, stream or hash")
	case given > 1:
		return "", "", errors.New("more than one of list, stream and hash is given: keep one; several sinks go under sinks")
	case (c.Shards != 0 || c.By != "") && kind == "hash":
		return "", "", errors.New("shards and by are for lists and streams: hashes are keys of their own")
	case c.Shards < 0 || c.Shards > shardsMax:
		return "", "", fmt.Errorf("invalid shards %d: use 1 to %d", c.Shards, shardsMax)
	case (c.Shards > 0) != (c.By != ""):
		return "", "", errors.New("shards and by go together: by: user.id names the field that decides the shard")
	case c.Field != "" && kind != "stream":
		return "", "", errors.New("field is for streams")
	}
	return kind, name, nil
}
