package mysql

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/internal/address"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// Config says where rows go and what they are made of.
type Config struct {
	Address    string            `yaml:"address" default:"(127.0.0.1:3306, unless socket is set)" example:"db.example.com:3306" help:"host and port of the server"`
	Socket     string            `yaml:"socket" example:"/run/mysqld/mysqld.sock" help:"path of the server's socket, instead of address"`
	User       string            `yaml:"user,required" example:"perigee" help:"account that writes"`
	Password   sqlsink.Secret    `yaml:"password,secret" example:"${MYSQL_PASSWORD}" help:"its password; take it from the environment: ${MYSQL_PASSWORD}"`
	Database   string            `yaml:"database,required" example:"mail" help:"database of the table"`
	Table      string            `yaml:"table,required" example:"emails" help:"table that rows are inserted into"`
	Create     bool              `yaml:"create" help:"create the table from the columns if it does not exist"`
	Columns    []Column          `yaml:"columns,required" help:"the columns to fill, in any order"`
	PrimaryKey []string          `yaml:"primary_key" example:"[id]" help:"columns of the primary key of a table that the sink creates"`
	Indexes    []string          `yaml:"indexes" example:"[\"user_id, at\"]" help:"indexes of a table that the sink creates: names of columns, separated by commas"`
	Mode       sqlsink.Mode      `yaml:"mode" default:"insert" choices:"insert,upsert,ignore" example:"upsert" help:"for a row whose key exists already: insert rejects it, upsert replaces the existing row, ignore keeps it"`
	Update     []string          `yaml:"update" default:"(all that are part of no key)" example:"[opened, at]" help:"columns that an upsert replaces"`
	Method     Method            `yaml:"method" default:"auto" choices:"auto,insert,bulk" example:"insert" help:"how rows are inserted: bulk (arrays of parameters, MariaDB only), insert (statements of several rows), or auto for bulk where the server has it"`
	TLS        sqlsink.TLS       `yaml:"tls" choices:"require,verify" example:"verify" help:"encryption of the connection: require (the certificate is not checked) or verify (it must be valid for the host); a plain connection beyond this machine is logged"`
	Params     map[string]string `yaml:"params" example:"{compress: true}" help:"further settings of the connection"`
}

// The types of a Config's fields, for callers that make one in Go.
type (
	Column = sqlsink.Column
	Type   = sqlsink.Type
)

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "mysql",
		Doc:       "Inserts rows into a table of MySQL or MariaDB, each exactly once.",
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
	if c.Address == "" && c.Socket == "" {
		c.Address = "127.0.0.1:3306"
	}
	if c.Mode == "" {
		c.Mode = sqlsink.Insert
	}
	if c.Method == "" {
		c.Method = Auto
	}
}

// target is the table as package sqlsink knows it.
func (c *Config) target() *sqlsink.Target {
	return &sqlsink.Target{
		Dialect: dialect, Place: "database " + c.Database, Table: c.Table, Name: quote(c.Database) + "." + quote(c.Table),
		Create: c.Create, Columns: c.Columns, PrimaryKey: c.PrimaryKey, Indexes: c.Indexes, Mode: c.Mode, Update: c.Update, FitsKey: fitsKey,
	}
}

// check finds what is wrong with the settings, without a connection.
func (c *Config) check(target *sqlsink.Target) error {
	if c.Address != "" && c.Socket != "" {
		return errors.New("address and socket are both given: keep the one to use")
	}
	if c.Socket == "" {
		if err := address.Validate(c.Address); err != nil {
			return err
		}
	}
	if err := checkName(c.Database); err != nil {
		return fmt.Errorf("database %w", err)
	}
	return target.Check()
}

func fitsKey(c Column) error {
	if unlimited := sqlType(c); unlimited == "TEXT" || unlimited == "JSON" {
		return fmt.Errorf("a column of type %s cannot be part of it; give %q a length, such as sql: VARCHAR(100)", unlimited, c.Name)
	}
	return nil
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
	ioTimeout   = time.Minute // after which a silent server counts as gone
)

// settings are those of every connection. Strict mode rejects what does not fit
// instead of changing it, and leaves the backslash an escape. The server ends a
// session that is silent for wait_timeout, also inside a transaction: the locks of a
// frozen worker last no longer, even if no other worker takes over and ends it.
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

// connection makes the driver's configuration. Compression is left to package wire.
func (c *Config) connection() (dc *driver.Config, compress bool, err error) {
	query := url.Values{}
	params := maps.Clone(c.Params)
	if params == nil {
		params = map[string]string{}
	}
	if err := c.TLS.Apply(params, "tls", map[sqlsink.TLS]string{sqlsink.RequireTLS: "skip-verify", sqlsink.VerifyTLS: "true"}); err != nil {
		return nil, false, err
	}
	for name, value := range params {
		if name != "compress" {
			query.Set(name, value)
		} else if compress, err = strconv.ParseBool(value); err != nil {
			return nil, false, fmt.Errorf("params: compress is true or false, not %q", value)
		}
	}
	// The address is among what is parsed: a certificate is checked against its host.
	network, address := "tcp", c.Address
	if c.Socket != "" {
		network, address = "unix", c.Socket
	}
	if dc, err = driver.ParseDSN(network + "(" + address + ")/?" + query.Encode()); err != nil {
		return nil, false, fmt.Errorf("params: %w", err)
	}
	for name := range settings {
		if _, given := dc.Params[name]; given {
			return nil, false, fmt.Errorf("params: the sink sets %s itself; remove it", name)
		}
	}
	dc.User, dc.Passwd, dc.DBName = c.User, string(c.Password), c.Database
	if dc.Params == nil {
		dc.Params = map[string]string{}
	}
	maps.Copy(dc.Params, settings)
	dc.Collation = "utf8mb4_general_ci"
	dc.MultiStatements, dc.InterpolateParams = true, true
	dc.ClientFoundRows = true
	dc.MaxAllowedPacket = 1 << 30 // the sink stays below the server's own limit
	dc.Timeout, dc.ReadTimeout, dc.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	dc.Logger = &driver.NopLogger{}
	return dc, compress, nil
}

// mayBePlain reports whether the connection may not be encrypted.
func (c *Config) mayBePlain() bool {
	switch c.Params["tls"] {
	case "", "false", "preferred":
		return c.TLS == "" && c.Socket == ""
	}
	return false
}
