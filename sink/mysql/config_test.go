package mysql

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
	return Config{User: "root", Password: "s3cret", Database: "mail", Table: "events", Create: true, Columns: named(60)}
}

func TestConfigIsCheckedWithoutServer(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string // in the error; empty: none
	}{
		{"valid", func(*Config) {}, ""},
		{"keys", func(c *Config) { c.PrimaryKey, c.Indexes = []string{"id"}, []string{"name, id"} }, ""},
		{"address and socket", func(c *Config) { c.Address, c.Socket = "h:1", "/s" }, "keep the one to use"},
		{"no table", func(c *Config) { c.Table = "" }, "table is empty"},
		{"long database", func(c *Config) { c.Database = strings.Repeat("d", 65) }, "longer than 64"},
		{"no columns", func(c *Config) { c.Columns = nil }, "name at least one column"},
		{"column without name", func(c *Config) { c.Columns[1].Name = "" }, "item 2 of columns: name is empty"},
		{"column twice", func(c *Config) { c.Columns[1].Name = "ID" }, `"ID" is named twice`},
		{"column without type", func(c *Config) { c.Columns[1].Type = 0 }, `"name" has no type; known: bool, int32`},
		{"broken path", func(c *Config) { c.Columns[1].Field = "a..b" }, `field "a..b" has an empty part`},
		{"key over nothing", func(c *Config) { c.PrimaryKey = []string{"idd"} }, `no column is named "idd"`},
		{"key over text", func(c *Config) { c.Columns[1].SQL, c.Indexes = "", []string{"name"} }, "such as sql: VARCHAR(100)"},
		{"key without create", func(c *Config) { c.Create, c.Indexes = false, []string{"id"} }, "add create: true"},
		{"setting of ours", func(c *Config) { c.Params = map[string]string{"sql_mode": "''"} }, "the sink sets sql_mode"},
		{"setting of the driver", func(c *Config) { c.Params = map[string]string{"tls": "preferred"} }, ""},
		{"mode", func(c *Config) { c.Mode, c.Update = sqlsink.Upsert, []string{"name"} }, ""},
		{"update of no upsert", func(c *Config) { c.Update = []string{"name"} }, "only for mode: upsert"},
		{"update of nothing", func(c *Config) { c.Mode, c.Update = sqlsink.Upsert, []string{"nmae"} }, `no column is named "nmae"`},
		{"compression", func(c *Config) { c.Params = map[string]string{"compress": "yes"} }, "compress is true or false"},
		{"wrong setting", func(c *Config) { c.Params = map[string]string{"timeout": "soon"} }, "params: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := valid()
			test.change(&config)
			s, err := New(env("p"), config)
			if err == nil {
				s.Close()
			}
			sinktest.ExpectError(t, err, test.want, "s3cret")
		})
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

func TestSecretIsNotPrinted(t *testing.T) {
	config := valid()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if printed := fmt.Sprintf(verb, config); strings.Contains(printed, "s3cret") {
			t.Errorf("%s printed %s", verb, printed)
		}
	}
}

// TestTLS holds the settings that lead to an encrypted connection, and those that are
// warned of.
func TestTLS(t *testing.T) {
	sqltest.TestTLSSettings(t, map[string]string{"tls": "preferred"}, map[string]string{"tls": "true"},
		func(host string, tls sqlsink.TLS, params map[string]string, log *slog.Logger) error {
			c, e := valid(), env("p")
			c.Address, c.TLS, c.Params, e.Log = host+":3306", tls, params, log
			s, err := New(e, c)
			if err == nil {
				s.Close()
			}
			return err
		})
	for tls, checked := range map[sqlsink.TLS]bool{sqlsink.RequireTLS: false, sqlsink.VerifyTLS: true} {
		c := valid()
		c.Address, c.TLS = "db.example.com:3306", tls
		dc, _, err := c.connection()
		if err != nil || dc.TLS == nil || dc.TLS.InsecureSkipVerify == checked {
			t.Errorf("%s: %+v, %v", tls, dc.TLS, err)
		}
	}
}

func TestKind(t *testing.T) { sinktest.Kind(t, Kind()) }
