package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testserver"
)

// servers are started once for all tests of the process, by the first test that needs them.
var servers struct {
	folder     string
	s3         *testserver.S3Server
	postgreSQL *testserver.PostgreSQLServer
	tables     atomic.Int64 // names given out
}

var startServers = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if servers.s3, err = testserver.StartS3(ctx, filepath.Join(servers.folder, "s3")); err != nil {
		return err
	}
	for key, value := range map[string]string{
		"AWS_ENDPOINT_URL": servers.s3.Endpoint(), "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": testserver.S3AccessKey, "AWS_SECRET_ACCESS_KEY": testserver.S3SecretKey,
		tokenVariable: testserver.S3AccessKey + ":" + testserver.S3SecretKey,
	} {
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	if servers.postgreSQL, err = testserver.StartPostgreSQL(ctx, filepath.Join(servers.folder, "postgresql"), "-c", "fsync=off", "-c", "max_connections=30"); err != nil { // committers close theirs
		return err
	}
	client, err := newS3Client()
	if err != nil {
		return err
	}
	if err := servers.s3.CreateTableBucket(ctx, "tables"); err != nil {
		return err
	}
	return errors.Join(client.Client.MakeBucket(ctx, "plain", minio.MakeBucketOptions{}), client.Client.MakeBucket(ctx, "versioned", minio.MakeBucketOptions{}),
		client.Client.EnableVersioning(ctx, "versioned"))
})

func newS3Client() (*s3client.Client, error) {
	return s3client.New(s3client.Settings{}, os.LookupEnv, func(*s3client.Client) http.RoundTripper { return http.DefaultTransport })
}

func TestMain(m *testing.M) {
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := publishOrders(folder); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if servers.folder, err = os.MkdirTemp("", "perigee-lake-"); err == nil {
		err = os.Chmod(servers.folder, 0o755) // PostgreSQL has an account of its own
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if servers.s3 != nil {
		_ = servers.s3.Kill() // its orderly end takes 20 s
	}
	if servers.postgreSQL != nil {
		_ = servers.postgreSQL.Kill()
	}
	_ = os.RemoveAll(servers.folder)
	os.Exit(code)
}

// catalogs returns the settings of a new table in each kind of catalog and warehouse. Without
// PERIGEE_SEAWEEDFS, which make test-lake sets, it returns those that need no server.
func catalogs(t *testing.T) map[string]lake.Settings {
	t.Helper()
	folder := t.TempDir()
	all := map[string]lake.Settings{
		"folder": {Warehouse: filepath.Join(folder, "own"), Table: "sales.mails"},
		"sqlite": {Warehouse: filepath.Join(folder, "shared"), Catalog: "sqlite://" + filepath.Join(folder, "catalog.db"), Table: "sales.mails"},
	}
	if os.Getenv("PERIGEE_SEAWEEDFS") == "" {
		t.Log("without S3 and PostgreSQL, which make test-lake has")
		return all
	}
	if err := startServers(); err != nil {
		t.Fatal(err)
	}
	database := func() string {
		name, err := servers.postgreSQL.CreateDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return servers.postgreSQL.DSN(name)
	}
	number := servers.tables.Add(1)
	all["postgres"] = lake.Settings{Warehouse: filepath.Join(folder, "third"), Catalog: database(), Table: "sales.mails"}
	all["S3, postgres"] = lake.Settings{Warehouse: fmt.Sprintf("s3://plain/below/%d", number), Catalog: database(), Table: "sales.mails"}
	all["S3 with versions, postgres"] = lake.Settings{Warehouse: fmt.Sprintf("s3://versioned/%d", number), Catalog: database(), Table: "sales.mails"}
	all["S3, REST"] = lake.Settings{Warehouse: "s3://tables", Catalog: servers.s3.Catalog(), Table: fmt.Sprintf("sales.mails%d", number)}
	return all
}
