package postgres

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// Config says where rows go and what they are made of.
type Config struct {
	Address    string            `yaml:"address" help:"host and port of the server, or the folder of its socket (127.0.0.1:5432)"`
	User       string            `yaml:"user,required" help:"role that writes"`
	Password   table.Secret      `yaml:"password" help:"its password; take it from the environment: ${POSTGRES_PASSWORD}"`
	Database   string            `yaml:"database,required" help:"database of the table"`
	Schema     string            `yaml:"schema" help:"schema of the table, and of the tables that remember what is committed (public)"`
	Table      string            `yaml:"table,required" help:"table that rows are copied into"`
	Create     bool              `yaml:"create" help:"make the table from the columns when it is absent"`
	Columns    []table.Column    `yaml:"columns,required" help:"the columns to fill, in any order"`
	PrimaryKey []string          `yaml:"primary_key" help:"columns of the primary key of a table that is made"`
	Indexes    []string          `yaml:"indexes" help:"indexes of a table that is made: names of columns, separated by commas"`
	Mode       table.Mode        `yaml:"mode" help:"of a row whose key is there already: insert refuses it, upsert replaces, ignore keeps what is there (insert)"`
	Update     []string          `yaml:"update" help:"columns that an upsert replaces (all that are not part of the key)"`
	Params     map[string]string `yaml:"params" help:"further settings of the connection, such as sslmode: verify-full"`
}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "postgres",
		Doc:       "Copies rows into a table of PostgreSQL, each exactly once.",
		Guarantee: sink.ExactlyOnce,
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

// naming is PostgreSQL's. Names are quoted, so that case counts.
var naming = table.Naming{Check: checkName, Same: func(a, b string) bool { return a == b }}

// longestName is where the server cuts names, in silence.
const longestName = 63

// checkName refuses what can't be the name of a table or a column.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > longestName:
		return fmt.Errorf("%q is longer than %d bytes", name, longestName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%q holds a NUL, which no name may", name)
	}
	return nil
}

// check finds what is wrong with the settings without asking the server.
func (c *Config) check() error {
	for _, given := range [][2]string{{"database", c.Database}, {"schema", c.Schema}, {"table", c.Table}} {
		if err := checkName(given[1]); err != nil {
			return fmt.Errorf("%s %w", given[0], err)
		}
	}
	if err := naming.CheckColumns(c.Columns); err != nil {
		return err
	}
	if c.staged() && slices.ContainsFunc(c.Columns, func(column table.Column) bool { return column.Name == ordinal }) {
		return fmt.Errorf("column %q has a name that mode: %s needs for itself", ordinal, c.Mode)
	}
	if err := table.CheckUpdate(c.Mode, c.Update, c.Columns); err != nil {
		return err
	}
	return c.checkKeys()
}

// checkKeys holds the keys of a table to be made against its columns.
func (c *Config) checkKeys() error {
	if !c.Create && len(c.PrimaryKey)+len(c.Indexes) > 0 {
		return errors.New("primary_key and indexes are only for a table that is made: add create: true")
	}
	for _, key := range append(table.Keys(c.Indexes), c.PrimaryKey) {
		if err := table.CheckKey(key, c.Columns, fitsKey); err != nil {
			return err
		}
	}
	return nil
}

func fitsKey(column table.Column) error {
	if sqlType(column) == "JSON" {
		return fmt.Errorf("a column of type JSON cannot be part of it; give %q another, such as sql: JSONB", column.Name)
	}
	return nil
}

// sqlType is the type of the column in a table that is made.
func sqlType(c table.Column) string {
	if c.SQL != "" {
		return c.SQL
	}
	switch event.Type(c.Type) {
	case event.Bool:
		return "BOOLEAN"
	case event.Int32:
		return "INTEGER"
	case event.Int64:
		return "BIGINT"
	case event.Float64:
		return "DOUBLE PRECISION"
	case event.Decimal:
		return "NUMERIC"
	case event.Timestamp:
		return "TIMESTAMPTZ"
	case event.JSON:
		return "JSONB"
	}
	return "TEXT"
}

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = time.Minute      // a server that says nothing for so long is gone
	idleTimeout = 10 * time.Second // after which an idle connection is not used any more
)

// session is set on every connection. The server ends a session that is silent
// inside a transaction, or whose machine is: locks last no longer.
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
			return nil, fmt.Errorf("params: %s is set by the sink itself; remove it", name)
		}
		settings[name] = value
	}
	for name, value := range settings {
		words = append(words, name+"='"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)+"'")
	}
	pc, err := pgconn.ParseConfig(strings.Join(words, " "))
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	if c.Password != "" { // not among the settings, which the driver's errors repeat
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
