package main

import (
	"database/sql"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/iceberg-go/catalog/rest"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// TestHints publishes to places that are not as they must be, and checks them. The errors must name
// the place, and the hints what to do.
func TestHints(t *testing.T) {
	all := catalogs(t) // starts the servers, which set the environment
	folder := t.TempDir()
	inSQLite := func(warehouse string) lake.Settings {
		return lake.Settings{Warehouse: warehouse, Catalog: "sqlite://" + filepath.Join(t.TempDir(), "catalog.db")}
	}
	text := filepath.Join(folder, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	type test struct {
		settings        lake.Settings
		variable, value string // of the environment
		want, hint      string
	}
	tests := map[string]test{
		"no folder of the catalog": {settings: lake.Settings{Warehouse: folder, Catalog: "sqlite://" + folder + "/no/catalog.db"}, want: folder + "/no/catalog.db: ", hint: "make the folder"},
		"another file":             {settings: lake.Settings{Warehouse: folder, Catalog: "sqlite://" + text}, want: "file is not a database", hint: "name another file"},
		"no server":                {settings: lake.Settings{Warehouse: folder, Catalog: "postgres://u@127.0.0.1:1/d"}, want: "127.0.0.1:1", hint: "start it, or check the address: lake.catalog"},
		"no S3":                    {settings: inSQLite("s3://plain/hints"), variable: "AWS_ENDPOINT_URL", value: "http://127.0.0.1:1", want: "127.0.0.1:1", hint: "start it, or check the address"},
	}
	if postgres, found := all["postgres"]; found {
		address := postgres.Catalog[:strings.LastIndex(postgres.Catalog, "/")]
		tests["a wrong key"] = test{settings: inSQLite("s3://plain/hints"), variable: "AWS_ACCESS_KEY_ID", value: "nobody", want: "s3://plain/hints", hint: "check AWS_ACCESS_KEY_ID"}
		tests["a wrong secret"] = test{settings: inSQLite("s3://plain/hints"), variable: "AWS_SECRET_ACCESS_KEY", value: "another", want: "s3://plain/hints", hint: "check AWS_ACCESS_KEY_ID"}
		tests["no bucket"] = test{settings: inSQLite("s3://nowhere/hints"), want: "nowhere", hint: "create the bucket"}
		published := inSQLite("s3://plain/published")
		published.Table = "sales.mails"
		if r := publish(t.Context(), orderOf(published, 1, writeFile(t, t.TempDir(), 1, 0, 9))); r.Error != "" {
			t.Fatal(r.Error)
		}
		tests["a wrong key for a table that is there"] = test{settings: published, variable: "AWS_ACCESS_KEY_ID", value: "nobody", want: "InvalidAccessKeyId", hint: "check AWS_ACCESS_KEY_ID"}
		tests["a wrong secret for a table that is there"] = test{settings: published, variable: "AWS_SECRET_ACCESS_KEY", value: "another", want: "SignatureDoesNotMatch", hint: "check AWS_ACCESS_KEY_ID"}
		tests["no keys"] = test{settings: inSQLite("s3://plain/hints"), variable: "AWS_ACCESS_KEY_ID", value: "", want: "s3://plain/hints", hint: "check AWS_ACCESS_KEY_ID"}
		tests["no database"] = test{settings: lake.Settings{Warehouse: folder, Catalog: address + "/nowhere"}, want: "nowhere", hint: "create the database"}
		tests["a wrong token"] = test{settings: lake.Settings{Warehouse: "s3://tables", Catalog: all["S3, REST"].Catalog}, variable: tokenVariable, value: "c:wrong", want: "the catalog answered", hint: "set PERIGEE_LAKE_TOKEN"}
		tests["S3 as catalog"] = test{settings: lake.Settings{Warehouse: "s3://tables", Catalog: servers.s3.Endpoint()}, want: "the catalog answered 405 Method Not Allowed", hint: "check the address: " + servers.s3.Endpoint() + "/v1/config must answer"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for name, value := range map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"} {
				if os.Getenv(name) == "" { // without servers
					t.Setenv(name, value)
				}
			}
			if test.variable != "" {
				t.Setenv(test.variable, test.value)
			}
			test.settings.Table = "sales.mails"
			o := orderOf(test.settings, 1, writeFile(t, t.TempDir(), 1, 0, 9))
			for _, o.Check = range []bool{true, false} {
				err := explain(&test.settings, publishOnce(t.Context(), o, &uploader{uploaded: map[string]uploadedFile{}}, &lake.TableReport{}))
				if hint := event.HintOf(err); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(hint, test.hint) {
					t.Errorf("check %v: got the error %v and the hint %q, want …%s… and %s…", o.Check, err, hint, test.want, test.hint)
				}
			}
		})
	}
}

// TestExplain has errors that need another user than that of most tests, or another server.
func TestExplain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, readOnly := db.ExecContext(t.Context(), "CREATE TABLE t (x)")
	settings := &lake.Settings{Warehouse: "/srv/lake", Catalog: "sqlite:///" + path}
	for _, test := range []struct {
		err        error
		want, hint string
	}{
		{readOnly, "catalog " + path + ": attempt to write a readonly database (8)", "make the folder of that file if it is missing, and allow"},
		{fmt.Errorf("make the warehouse: %w", &fs.PathError{Op: "mkdir", Path: "/srv/lake", Err: syscall.EACCES}), "make the warehouse: mkdir /srv/lake: permission denied", "allow the user of the engine to write"},
		{&net.DNSError{Err: "no such host", Name: "nowhere"}, "lookup nowhere: no such host", "start it, or check the address: lake.catalog"},
		{permanent("", "refused: %w", event.WithHint(syscall.ECONNREFUSED, "its own")), "refused: connection refused", "its own"},
		{fmt.Errorf("write: %w", syscall.ENOSPC), "write: no space left on device", "make room on the disk of lake.warehouse"},
		{fmt.Errorf("make the warehouse: %w", &fs.PathError{Op: "mkdir", Path: "/etc/passwd", Err: syscall.EEXIST}), "make the warehouse: mkdir /etc/passwd: file exists", "name a folder in lake.warehouse"},
		{fmt.Errorf("commit: %w: POST", rest.ErrEndpointNotSupported), "commit: endpoint not supported by server: POST", "name a catalog that can be written"},
		{net.ErrClosed, net.ErrClosed.Error(), ""},
	} {
		got := explain(settings, test.err)
		if hint := event.HintOf(got); got.Error() != test.want || !strings.HasPrefix(hint, test.hint) || (hint == "") != (test.hint == "") {
			t.Errorf("got the error %q and the hint %q, want %q and %q…", got, hint, test.want, test.hint)
		}
		if event.IsPermanent(got) != event.IsPermanent(test.err) {
			t.Errorf("%v: a hint changes whether it is permanent", got)
		}
	}
	if explain(settings, nil) != nil {
		t.Error("no error is one")
	}
}
