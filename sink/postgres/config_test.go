package postgres

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink/sqltest"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func valid() Config {
	return Config{User: "postgres", Password: "s3c'r\\et", Database: "mail", Table: "events", Create: true, Columns: named(60)}
}

func TestConfigIsCheckedWithoutServer(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string // in the error; empty: none
	}{
		{"valid", func(*Config) {}, ""},
		{"keys", func(c *Config) { c.PrimaryKey, c.Indexes = []string{"id"}, []string{"name, id"} }, ""},
		{"socket", func(c *Config) { c.Address = "/var/run/postgresql" }, ""},
		{"address without port", func(c *Config) { c.Address = "localhost" }, "write it as host:port"},
		{"no table", func(c *Config) { c.Table = "" }, "table is empty"},
		{"long schema", func(c *Config) { c.Schema = strings.Repeat("d", 64) }, "longer than 63"},
		{"NUL", func(c *Config) { c.Table = "a\x00" }, "contains a NUL"},
		{"no columns", func(c *Config) { c.Columns = nil }, "name at least one column"},
		{"column without name", func(c *Config) { c.Columns[1].Name = "" }, "item 2 of columns: name is empty"},
		{"column twice", func(c *Config) { c.Columns[1].Name = "id" }, `"id" is named twice`},
		{"column in another case", func(c *Config) { c.Columns[1].Name = "ID" }, ""},
		{"column without type", func(c *Config) { c.Columns[1].Type = 0 }, `"name" has no type; known: bool, int32`},
		{"broken path", func(c *Config) { c.Columns[1].Field = "a..b" }, `field "a..b" has an empty part`},
		{"key over nothing", func(c *Config) { c.PrimaryKey = []string{"idd"} }, `no column is named "idd"`},
		{"key over JSON", func(c *Config) { c.Columns[1].SQL, c.Indexes = "JSON", []string{"name"} }, "such as sql: JSONB"},
		{"key without create", func(c *Config) { c.Create, c.Indexes = false, []string{"id"} }, "add create: true"},
		{"update without upsert", func(c *Config) { c.Update = []string{"name"} }, "only for mode: upsert"},
		{"update of nothing", func(c *Config) { c.Mode, c.Update = sqlsink.Upsert, []string{"nmae"} }, `no column is named "nmae"`},
		{"column of ours", func(c *Config) { c.Mode, c.Columns[1].Name = sqlsink.Ignore, ordinal }, "mode: ignore needs for itself"},
		{"setting of ours", func(c *Config) { c.Params = map[string]string{"TimeZone": "UTC"} }, "the sink sets TimeZone"},
		{"address in params", func(c *Config) { c.Params = map[string]string{"host": "h"} }, "the sink sets host"},
		{"setting of the driver", func(c *Config) { c.Params = map[string]string{"sslmode": "require"} }, ""},
		{"wrong setting", func(c *Config) { c.Params = map[string]string{"sslmode": "maybe"} }, "params: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := valid()
			test.change(&config)
			s, err := New(env("p"), config)
			if err == nil {
				s.Close()
			}
			sinktest.ExpectError(t, err, test.want, "s3c", `\et`)
		})
	}
}

func TestConnectionIsSetUp(t *testing.T) {
	config := valid()
	config.Address, config.Params = "[::1]:5433", map[string]string{"sslmode": "disable"}
	c, err := config.connection()
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "::1" || c.Port != 5433 || c.User != "postgres" || c.Password != `s3c'r\et` || c.Database != "mail" || c.TLSConfig != nil {
		t.Errorf("host %s, port %d, user %s, database %s", c.Host, c.Port, c.User, c.Database)
	}
	config.Address = "/run/socket:5434"
	if c, err = config.connection(); err != nil || c.Host != "/run/socket" || c.Port != 5434 {
		t.Errorf("host %s, port %d, %v", c.Host, c.Port, err)
	}
}

func TestKindDecodesItsConfig(t *testing.T) {
	decode := func(into any) error {
		*into.(*Config) = valid()
		return nil
	}
	s, err := Kind().New(env("p"), decode)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	columns := s.(*Sink).columns
	if len(columns) != 2 || columns[0].Type != event.Int64 || !columns[0].Required || columns[1].Path[0] != "name" {
		t.Errorf("columns %+v", columns)
	}
	if _, err := Kind().New(env("p"), func(any) error { return fmt.Errorf("no") }); err == nil {
		t.Error("an error of decode was lost")
	}
}

// TestTLS holds the settings that lead to an encrypted connection, and those that are
// warned of.
func TestTLS(t *testing.T) {
	sqltest.TestTLSSettings(t, map[string]string{"sslmode": "prefer"}, map[string]string{"sslmode": "verify-full"},
		func(host string, tls sqlsink.TLS, params map[string]string, log *slog.Logger) error {
			c, e := valid(), env("p")
			c.Address, c.TLS, c.Params, e.Log = host+":5432", tls, params, log
			s, err := New(e, c)
			if err == nil {
				s.Close()
			}
			return err
		})
	for tls, checked := range map[sqlsink.TLS]bool{sqlsink.RequireTLS: false, sqlsink.VerifyTLS: true} {
		c := valid()
		c.Address, c.TLS = "db.example.com:5432", tls
		dc, err := c.connection()
		if err != nil || dc.TLSConfig == nil || dc.TLSConfig.InsecureSkipVerify == checked {
			t.Errorf("%s: %+v, %v", tls, dc.TLSConfig, err)
		}
	}
}

func TestKind(t *testing.T) { sinktest.Kind(t, Kind()) }
