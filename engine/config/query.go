package config

import (
	"errors"
	"path/filepath"
	"reflect"
	"time"

	"github.com/perigeedb/perigee/internal/httpserver"
)

// Query says where SQL over the event store is answered besides the engine's socket, and what
// one query may need.
type Query struct {
	Listen string        `yaml:"listen" help:"address to answer SQL over HTTP on, as 127.0.0.1:4292 (default none)"`
	Token  string        `yaml:"token" help:"clients must send it as Authorization: Bearer TOKEN; required beyond loopback; give it as ${NAME}"`
	Cert   string        `yaml:"cert" help:"file with the certificate, for TLS"`
	Key    string        `yaml:"key" help:"file with its key"`
	Time   time.Duration `yaml:"time" help:"how long a query may take (default 30s)"`
	Memory int           `yaml:"memory,size" help:"memory that a query may use (default 256MiB)"`
	origin
}

// DefaultQueryTime is how long a query may take.
const DefaultQueryTime = 30 * time.Second

// Access is where queries are answered over HTTP.
func (q *Query) Access() *httpserver.Access {
	return &httpserver.Access{Listen: q.Listen, Token: q.Token, Cert: q.Cert, Key: q.Key}
}

func (q *Query) validate() error {
	switch {
	case q.Time < 0 || q.Memory < 0:
		return errors.New("time and memory must not be negative")
	case q.Memory > 0 && q.Memory < 16<<20:
		return errors.New("memory must be at least 16MiB")
	case q.Listen != "":
		return q.Access().Validate("read every table")
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
		d.addFault(e.value.at, "", "query: %v", err)
	}
	for _, file := range []*string{&c.Query.Cert, &c.Query.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(c.Folder, *file)
		}
	}
}
