package postgres

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// Config says where rows go and what they are made of.
type Config struct {
	Address    string            `yaml:"address" default:"127.0.0.1:5432" example:"db.example.com:5432" help:"host and port of the server, or the folder of its socket"`
	User       string            `yaml:"user,required" example:"perigee" help:"role that writes"`
	Password   sqlsink.Secret    `yaml:"password,secret" example:"${POSTGRES_PASSWORD}" help:"its password; take it from the environment: ${POSTGRES_PASSWORD}"`
	Database   string            `yaml:"database,required" example:"mail" help:"database of the table"`
	Schema     string            `yaml:"schema" default:"public" example:"events" help:"schema of the table, and of the tables that remember what is committed"`
	Table      string            `yaml:"table,required" example:"emails" help:"table that rows are copied into"`
	Create     bool              `yaml:"create" help:"create the table from the columns if it does not exist"`
	Columns    []Column          `yaml:"columns,required" help:"the columns to fill, in any order"`
	PrimaryKey []string          `yaml:"primary_key" example:"[id]" help:"columns of the primary key of a table that the sink creates"`
	Indexes    []string          `yaml:"indexes" example:"[\"user_id, at\"]" help:"indexes of a table that the sink creates: names of columns, separated by commas"`
	Mode       sqlsink.Mode      `yaml:"mode" default:"insert" choices:"insert,upsert,ignore" example:"upsert" help:"for a row whose key exists already: insert rejects it, upsert replaces the existing row, ignore keeps it"`
	Update     []string          `yaml:"update" default:"(all that are not part of the key)" example:"[opened, at]" help:"columns that an upsert replaces"`
	TLS        sqlsink.TLS       `yaml:"tls" choices:"require,verify" example:"verify" help:"encryption of the connection: require (the certificate is not checked) or verify (it must be valid for the host); a connection beyond this machine that may be plain is logged"`
	Params     map[string]string `yaml:"params" example:"{sslmode: verify-full}" help:"further settings of the connection"`
}

// The types of a Config's fields, for callers that make one in Go.
type (
	Column = sqlsink.Column
	Type   = sqlsink.Type
)

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "postgres",
		Doc:       "Copies rows into a table of PostgreSQL, each exactly once.",
		Guarantee: sink.ExactlyOnce,
		Place:     &sink.Place{Keys: []string{"table"}, Identity: sqlsink.TableIdentity},
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

func (c *Config) setDefaults() {
	if c.Address == "" {
		c.Address = "127.0.0.1:5432"
	}
	if c.Schema == "" {
		c.Schema = "public"
	}
}

// target is the table as package sqlsink knows it.
func (c *Config) target() *sqlsink.Target {
	dialect := newDialect(c.Schema)
	return &sqlsink.Target{
		Dialect: dialect, Place: fmt.Sprintf("schema %s of database %s", c.Schema, c.Database), Table: c.Table, Name: dialect.Table(c.Table),
		Create: c.Create, Columns: c.Columns, PrimaryKey: c.PrimaryKey, Indexes: c.Indexes, Mode: c.Mode, Update: c.Update, FitsKey: fitsKey,
	}
}

// check finds what is wrong with the settings, without a connection.
func (c *Config) check(target *sqlsink.Target) error {
	if err := checkName(c.Database); err != nil {
		return fmt.Errorf("database %w", err)
	}
	if err := checkName(c.Schema); err != nil {
		return fmt.Errorf("schema %w", err)
	}
	if err := target.Check(); err != nil {
		return err
	}
	if c.isStaged() && target.Fills(ordinal) {
		return fmt.Errorf("column %q has a name that mode: %s needs for itself", ordinal, c.Mode)
	}
	return nil
}

func fitsKey(c Column) error {
	if sqlType(c) == "JSON" {
		return fmt.Errorf("a column of type JSON cannot be part of it; give %q another, such as sql: JSONB", c.Name)
	}
	return nil
}

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = time.Minute      // after which a silent server counts as gone
	idleTimeout = 10 * time.Second // after which an idle connection is not used again
)

// session is set on every connection. The server ends a session that is silent inside
// a transaction, or whose machine is unreachable: locks last no longer.
var session = map[string]string{
	"application_name":                    "perigee",
	"client_encoding":                     "UTF8",
	"TimeZone":                            "UTC",
	"DateStyle":                           "ISO",
	"bytea_output":                        "hex",
	"standard_conforming_strings":         "on",
	"default_transaction_isolation":       "read committed",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "5s",
	"tcp_keepalives_idle":                 "10",
	"tcp_keepalives_interval":             "5",
	"tcp_keepalives_count":                "3",
}

// connection makes the driver's configuration.
func (c *Config) connection() (*pgconn.Config, error) {
	host, port, err := c.server()
	if err != nil {
		return nil, err
	}
	settings := map[string]string{"host": host, "port": port, "database": c.Database, "user": c.User}
	var words []string
	for name, value := range c.Params {
		if _, ours := settings[name]; ours || name == "password" || session[name] != "" {
			return nil, fmt.Errorf("params: the sink sets %s itself; remove it", name)
		}
		settings[name] = value
	}
	if err := c.TLS.Apply(settings, "sslmode", map[sqlsink.TLS]string{sqlsink.RequireTLS: "require", sqlsink.VerifyTLS: "verify-full"}); err != nil {
		return nil, err
	}
	for name, value := range settings {
		words = append(words, name+"='"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)+"'")
	}
	pc, err := pgconn.ParseConfig(strings.Join(words, " "))
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	if c.Password != "" { // not among the settings, which the driver's errors quote
		pc.Password = string(c.Password)
	}
	for name, value := range session {
		pc.RuntimeParams[name] = value
	}
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = dialTimeout
	}
	return pc, nil
}

// server splits the address.
func (c *Config) server() (host, port string, err error) {
	if strings.HasPrefix(c.Address, "/") {
		folder, port, found := strings.Cut(c.Address, ":")
		if !found {
			port = "5432"
		}
		return folder, port, nil
	}
	host, port, err = net.SplitHostPort(c.Address)
	if err != nil {
		return "", "", fmt.Errorf("address: %w; write it as host:port", err)
	}
	return host, port, nil
}

// mayBePlain reports whether the connection may not be encrypted: the driver prefers
// encryption and does without when the server has none.
func (c *Config) mayBePlain() bool {
	switch c.Params["sslmode"] {
	case "require", "verify-ca", "verify-full":
		return false
	}
	return c.TLS == ""
}
