//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testserver"
)

// TestDeletedBytes deletes the rows of a user from a table in a lake, in a bucket that keeps old
// versions, and searches for the user in every version of every object. make test-lake runs it.
func TestDeletedBytes(t *testing.T) {
	program, python := os.Getenv("PERIGEE_LAKE"), os.Getenv("PERIGEE_LAKE_PYTHON")
	if program == "" || os.Getenv("PERIGEE_SEAWEEDFS") == "" {
		t.Skip("needs PERIGEE_LAKE and PERIGEE_SEAWEEDFS: make test-lake")
	}
	server, err := testserver.StartS3(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	impatient := t.TempDir() // a committer that expires snapshots and removes objects soon
	script := fmt.Sprintf(`#!/bin/sh
sed 's/"tidy":{"age":[0-9]*,"keep":10,"grace":[0-9]*,"foreign_grace":[0-9]*/"tidy":{"age":%d,"keep":10,"grace":%d,"foreign_grace":%d/' | %s "$@"
`, time.Hour, 2*time.Second, time.Hour, program)
	if err := os.WriteFile(filepath.Join(impatient, "perigee-lake"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", impatient+":"+os.Getenv("PATH"))
	t.Setenv("AWS_ENDPOINT_URL", server.Endpoint())
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", testserver.S3AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testserver.S3SecretKey)
	client, err := s3client.New(s3client.Settings{}, os.LookupEnv, func(*s3client.Client) http.RoundTripper { return http.DefaultTransport })
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if err := client.Client.MakeBucket(t.Context(), "lake", minio.MakeBucketOptions{}); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := client.Client.EnableVersioning(t.Context(), "lake"); err != nil {
		t.Fatal(err)
	}
	// found returns the objects that have a text, and the number of all.
	found := func(text string) (names []string, all int) {
		t.Helper()
		folder := t.TempDir()
		for object := range client.Client.ListObjects(t.Context(), "lake", minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
			if object.Err != nil {
				t.Fatal(object.Err)
			}
			if object.IsDeleteMarker || strings.HasSuffix(object.Key, "/") {
				continue
			}
			o, err := client.Client.GetObject(t.Context(), "lake", object.Key, minio.GetObjectOptions{VersionID: object.VersionID})
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(o)
			if err == nil {
				path := filepath.Join(folder, object.VersionID, filepath.FromSlash(object.Key))
				if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
					err = os.WriteFile(path, content, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			all++
		}
		command := exec.CommandContext(t.Context(), python, "../tools/lake/search.py", folder, text)
		command.Stderr = os.Stderr
		out, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out)), all
	}
	folder := t.TempDir()
	s := openStore(t, filepath.Join(folder, "store"))
	config := TableConfig{
		Time: "at", TimeUnit: event.Seconds, Event: "kind", Unknown: catalog.KeepUnknown, Columns: []event.Column{{Name: "name", Path: []string{"name"}, Type: event.String}},
		Lake: &catalog.Lake{Warehouse: "s3://lake/house", Catalog: "sqlite://" + filepath.Join(folder, "catalog.db"), Table: "test.events"},
	}
	p := take(t, openTable(t, s, config))
	const user = "Aaron-7f3c91d2" // the least name of each file, which bounds have
	next := 0
	grow := func(name string) {
		t.Helper()
		var docs []string
		for i := range 20 {
			who := fmt.Sprintf("Zoe-%d", i)
			if i == 7 {
				who = name
			}
			docs = append(docs, fmt.Sprintf(`{"at":%d,"kind":"mail","name":%q,"other%d":%q}`, 1_790_000_000+86_400*(next%2)+i, who, i%2, who))
		}
		appendDocs(t, p, uint64(next*20), docs...)
		next++
		seal(t, s)
	}
	publish := func(at time.Duration) {
		t.Helper()
		if err := s.publish(t.Context(), time.Now().Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		grow(user)
		publish(time.Hour)
	}
	grow("Bob")
	publish(20 * time.Hour) // merged files, perhaps
	before, _ := found(user)
	if t.Log("before the delete: ", before); len(before) < 6 {
		t.Fatalf("only %d objects have the rows", len(before))
	}
	d, err := s.Delete(t.Context(), "events", "name = '"+user+"'")
	if err == nil {
		err = s.WaitDeleted(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	entry, err := s.Tables()
	if err != nil || len(entry[0].Deletes) != 1 || entry[0].Deletes[0].Lake == "" {
		t.Fatalf("the state of the delete: %+v, %v", entry[0].Deletes, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waited := make(chan error)
	isPurging := func() bool { // the lake may have rows of the delete
		return slices.ContainsFunc(s.current().Tables, func(t *manifest.Table) bool {
			return t.Lake != nil && slices.ContainsFunc(t.Lake.Purges, func(p manifest.LakePurge) bool { return p.Number == d.Number })
		})
	}
	go func() {
		waited <- s.awaitChange(ctx, func() bool { return !s.isDeleting(d.Number) && !isPurging() })
	}()
	said := map[string]bool{}
	for isPurging() && ctx.Err() == nil {
		for _, p := range s.current().Tables[0].Lake.Purges {
			said[p.Waits] = true
		}
		grow("Carl") // meanwhile, the table goes on
		publish(time.Hour)
		time.Sleep(time.Second)
	}
	if err := <-waited; err != nil {
		t.Fatalf("%v: %v", err, said)
	}
	names, all := found(user)
	if len(names) > 0 || all < 5 {
		t.Errorf("%v of %d objects have the rows", names, all)
	}
	if names, _ := found("Zoe-3"); len(names) < 3 {
		t.Errorf("rows of others are in %v only", names)
	}
	t.Log("it waited for ", said)
	fmt.Printf("figure deleted_bytes_found %d\n", len(names))
}
