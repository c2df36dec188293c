package config

import (
	"errors"
	"path/filepath"
	"reflect"
	"time"

	"github.com/perigeedb/perigee/internal/httpserver"
)

// Query configures the HTTP address for SQL over the event store, and the limits of a query.
type Query struct {
	Listen    string        `yaml:"listen" default:"(none)" example:"127.0.0.1:4292" help:"address for SQL over HTTP, for the nodes of states: GET /state/NAME/PATH, and for the catalog of lake tables: /iceberg"`
	Token     string        `yaml:"token,secret" example:"${QUERY_TOKEN}" help:"token that clients send as Authorization: Bearer TOKEN; required beyond loopback; write it as ${NAME}"`
	Cert      string        `yaml:"cert" example:"tls/server.crt" help:"certificate file, for TLS"`
	Key       string        `yaml:"key" example:"tls/server.key" help:"key file of the certificate"`
	Time      time.Duration `yaml:"time" default:"30s" example:"2m" help:"time limit of a query"`
	Memory    int           `yaml:"memory,size" default:"256MiB" example:"1GiB" help:"memory limit of a query"`
	Slow      time.Duration `yaml:"slow" default:"1s" example:"5s" help:"log queries that take at least this long, and list them in perigee.slow_queries"`
	LakeCache int           `yaml:"lake_cache,size" default:"1GiB" example:"20GiB" help:"disk space for data that have left for a lake (tables.NAME.lake.local) and that queries need"`
	origin
}

// Access returns the settings of the HTTP address for queries.
func (q *Query) Access() *httpserver.Access {
	return &httpserver.Access{Listen: q.Listen, Token: q.Token, Cert: q.Cert, Key: q.Key}
}

func (q *Query) validate() error {
	switch {
	case q.Time < 0 || q.Memory < 0 || q.Slow < 0 || q.LakeCache < 0:
		return errors.New("time, memory, slow and lake_cache must not be negative")
	case q.Memory > 0 && q.Memory < 16<<20:
		return errors.New("memory must be at least 16MiB")
	case q.Listen != "":
		return q.Access().Validate("read every table and state")
	case q.Token != "" || q.Cert != "" || q.Key != "":
		return errors.New("token, cert and key need listen")
	}
	return nil
}

// readQuery reads the block query. Its files are relative to the configuration.
func (d *document) readQuery(root *node, c *Config) {
	e := root.get("query")
	c.Query.origin = d.originOf(root, "query")
	if e == nil {
		return
	}
	d.decode(e.value, reflect.ValueOf(&c.Query).Elem(), "query", false)
	if err := c.Query.validate(); err != nil {
		d.addFault(e.value.at, "for example: query: {listen: 127.0.0.1:4292, time: 30s, memory: 256MiB}", "query: %v", err)
	}
	for _, file := range []*string{&c.Query.Cert, &c.Query.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(c.Folder, *file)
		}
	}
}
