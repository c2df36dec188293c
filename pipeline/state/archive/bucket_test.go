package archive

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testserver"
)

// newBucketPlace returns a place in a new bucket of a private S3 service. It skips the test unless
// the environment names the service.
func newBucketPlace(t *testing.T) (*bucket, *testserver.S3Server) {
	t.Helper()
	if os.Getenv("PERIGEE_SEAWEEDFS") == "" {
		t.Skip("needs PERIGEE_SEAWEEDFS: make test-s3")
	}
	server, err := testserver.StartS3(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() }) // its orderly end takes 20 s
	settings := s3client.Settings{Endpoint: server.Endpoint(), Region: "us-east-1", AccessKey: testserver.S3AccessKey, SecretKey: testserver.S3SecretKey}
	place, err := Locate("s3://states/some/prefix", "", settings, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	b := place.(*bucket)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := b.client.MakeBucket(t.Context(), b.name, minio.MakeBucketOptions{})
		if err == nil {
			return b, server
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestBucket(t *testing.T) {
	b, _ := newBucketPlace(t)
	testPlace(t, b)
}

// TestBucketUnreachable kills the service: an error names the place, and is no missing object.
func TestBucketUnreachable(t *testing.T) {
	b, server := newBucketPlace(t)
	if err := b.Put(t.Context(), "a", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := b.Get(t.Context(), "a", 10)
	if err == nil || IsUnreadable(err) || !strings.Contains(err.Error(), "archive s3://states/some/prefix: ") {
		t.Errorf("an object of a service that is killed: %v", err)
	}
	if err := b.Put(t.Context(), "b", []byte("b")); err == nil {
		t.Error("an object is put into a service that is killed")
	}
}

// TestBucketRefuses uses another key, and a bucket that does not exist.
func TestBucketRefuses(t *testing.T) {
	b, server := newBucketPlace(t)
	wrong, err := Locate("s3://states", "", s3client.Settings{Endpoint: server.Endpoint(), Region: "us-east-1", AccessKey: testserver.S3AccessKey, SecretKey: "other"}, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	if err := wrong.Put(t.Context(), "a", []byte("a")); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("another key: %v", err)
	}
	none := *b
	none.name = "nothing"
	if err := none.List(t.Context(), "a", "", func(Object) error { return nil }); err == nil || IsUnreadable(err) {
		t.Errorf("a bucket that does not exist: %v", err)
	}
}
