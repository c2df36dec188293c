package mysql

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// Config says where rows go and what they are made of.
type Config struct {
	Address    string            `yaml:"address" help:"host and port of the server (127.0.0.1:3306)"`
	Socket     string            `yaml:"socket" help:"path of the server's socket, instead of address"`
	User       string            `yaml:"user,required" help:"account that writes"`
	Password   table.Secret      `yaml:"password" help:"its password; take it from the environment: ${MYSQL_PASSWORD}"`
	Database   string            `yaml:"database,required" help:"database of the table"`
	Table      string            `yaml:"table,required" help:"table that rows are inserted into"`
	Create     bool              `yaml:"create" help:"make the table from the columns when it is absent"`
	Columns    []Column          `yaml:"columns,required" help:"the columns to fill, in any order"`
	PrimaryKey []string          `yaml:"primary_key" help:"columns of the primary key of a table that is made"`
	Indexes    []string          `yaml:"indexes" help:"indexes of a table that is made: names of columns, separated by commas"`
	Mode       table.Mode        `yaml:"mode" help:"of a row whose key is there already: insert refuses it, upsert replaces, ignore keeps what is there (insert)"`
	Update     []string          `yaml:"update" help:"columns that an upsert replaces (all that are part of no key)"`
	Method     Method            `yaml:"method" help:"way into the table: insert, bulk (arrays of parameters, MariaDB), load (LOAD DATA from memory), or auto for what the server does fastest (auto)"`
	Params     map[string]string `yaml:"params" help:"further settings of the connection, such as tls: preferred"`
}

// What a Config is made of, for those who make one in Go.
type (
	Column = table.Column
	Type   = table.Type
)

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "mysql",
		Doc:       "Inserts rows into a table of MySQL or MariaDB, each exactly once.",
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

// check finds what is wrong with the settings without asking the server.
func (c *Config) check() error {
	if c.Address != "" && c.Socket != "" {
		return errors.New("address and socket are both given: keep the one to use")
	}
	for what, name := range map[string]string{"database": c.Database, "table": c.Table} {
		if err := checkName(name); err != nil {
			return fmt.Errorf("%s %w", what, err)
		}
	}
	if err := naming.CheckColumns(c.Columns); err != nil {
		return err
	}
	if err := c.checkMode(); err != nil {
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

func fitsKey(column Column) error {
	if unlimited := sqlType(column); unlimited == "TEXT" || unlimited == "JSON" {
		return fmt.Errorf("a column of type %s cannot be part of it; give %q a length, such as sql: VARCHAR(100)", unlimited, column.Name)
	}
	return nil
}

// naming is that of the servers: the case of columns does not count.
var naming = table.Naming{Check: checkName, Same: strings.EqualFold}

// checkName refuses what can't be the name of a table or a column.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len([]rune(name)) > 64:
		return fmt.Errorf("%q is longer than 64 characters", name)
	case strings.HasSuffix(name, " ") || strings.ContainsRune(name, 0):
		return fmt.Errorf("%q ends in a space or holds a NUL, which no name may", name)
	}
	return nil
}

// sqlType is the type of the column in a table that is made.
func sqlType(c Column) string {
	if c.SQL != "" {
		return c.SQL
	}
	switch event.Type(c.Type) {
	case event.Bool:
		return "BOOLEAN"
	case event.Int32:
		return "INT"
	case event.Int64:
		return "BIGINT"
	case event.Float64:
		return "DOUBLE"
	case event.Decimal:
		return "DECIMAL(38,9)"
	case event.Timestamp:
		return "DATETIME(6)"
	case event.JSON:
		return "JSON"
	}
	return "TEXT"
}

// server is how messages call the server.
func (c *Config) server() string {
	if c.Socket != "" {
		return c.Socket
	}
	return c.Address
}

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = time.Minute // a server that says nothing for so long is gone
)

// settings are those of every connection. Strict mode refuses what does not fit
// instead of changing it, and leaves the backslash an escape. Notes are off so
// that what LOAD DATA warns of is what INSERT would refuse. The server ends a
// session that is silent for wait_timeout, also inside a transaction: the locks
// of a frozen worker last no longer, should nobody take over and end it.
var settings = map[string]string{
	"sql_mode": "'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE," +
		"ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
	"time_zone":                "'+00:00'",
	"autocommit":               "1",
	"innodb_lock_wait_timeout": "10",
	"lock_wait_timeout":        "30",
	"sql_notes":                "0",
	"wait_timeout":             "30",
	"net_read_timeout":         "30",
}

// connection makes the driver's configuration.
func (c *Config) connection() (*driver.Config, error) {
	query := url.Values{}
	for name, value := range c.Params {
		query.Set(name, value)
	}
	dc, err := driver.ParseDSN("/?" + query.Encode())
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	for name := range settings {
		if _, given := dc.Params[name]; given {
			return nil, fmt.Errorf("params: %s is set by the sink itself; remove it", name)
		}
	}
	dc.User, dc.Passwd, dc.DBName = c.User, string(c.Password), c.Database
	dc.Net, dc.Addr = "tcp", c.Address
	if c.Socket != "" {
		dc.Net, dc.Addr = "unix", c.Socket
	}
	if dc.Params == nil {
		dc.Params = map[string]string{}
	}
	for name, value := range settings {
		dc.Params[name] = value
	}
	dc.Collation = "utf8mb4_general_ci"
	dc.MultiStatements, dc.InterpolateParams = true, true
	dc.ClientFoundRows = true
	dc.MaxAllowedPacket = 1 << 30 // the sink keeps below the server's own limit
	dc.Timeout, dc.ReadTimeout, dc.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	dc.Logger = &driver.NopLogger{}
	return dc, nil
}
