package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// locations returns new locations in each kind of store that does not ask for a table.
func locations(t *testing.T) []string {
	all := []string{t.TempDir(), "file://" + t.TempDir()}
	for name, settings := range catalogs(t) {
		if strings.HasPrefix(name, "S3") && settings.Warehouse != "s3://tables" {
			all = append(all, fmt.Sprintf("%s/objects%d", settings.Warehouse, servers.tables.Add(1)))
		}
	}
	return all
}

// TestPut stores a file under a name that nobody has, that the same file has, and that another
// one has, and looks for it.
func TestPut(t *testing.T) {
	local := t.TempDir()
	publishedOf := func(number, first, end int) *publishedFile {
		columns := columns()
		for i := range columns {
			columns[i].Lake = int32(i + 1)
		}
		p, err := readPublished(writeFile(t, local, number, first, end).Path, columns)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	file, longer, other := publishedOf(1, 0, 30), publishedOf(2, 0, 40), publishedOf(3, 30, 60)
	for _, location := range locations(t) {
		t.Run(location, func(t *testing.T) {
			objects, err := openObjects(location)
			if err != nil {
				t.Fatal(err)
			}
			name := lake.FileName("data/2026-11-29/0000000001-0.parquet", strings.Repeat("a", 16))
			if _, found, err := objects.find(t.Context(), name, file); found || err != nil {
				t.Errorf("before it is put: found %v, error %v", found, err)
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if err := objects.put(t.Context(), name, file); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if err := objects.put(t.Context(), name, file); err != nil {
				t.Error(err)
			}
			// A file that was renewed counts as new, so that nobody removes it.
			old := time.Now().Add(-time.Hour)
			switch store := objects.(type) {
			case *folder:
				err = os.Chtimes(filepath.Join(store.path, name), old, old)
			case *bucket:
				old = time.Now()
				time.Sleep(1100 * time.Millisecond)
			}
			if err = errors.Join(err, objects.renew(t.Context(), name)); err != nil {
				t.Fatal(err)
			}
			if modified, found, err := objects.find(t.Context(), name, file); !modified.After(old.Add(-time.Second)) || !found || err != nil { // a header has no fractions
				t.Errorf("after it was renewed: modified %v, found %v, error %v, want after %v", modified, found, err, old)
			}
			if all, err := objects.list(t.Context(), lake.DataFolder); err != nil || !slices.ContainsFunc(all, func(o lake.Object) bool { return o.Modified.After(old) }) {
				t.Errorf("after it was renewed: %+v, %v", all, err)
			}
			for _, p := range []*publishedFile{longer, other} {
				_, _, err := objects.find(t.Context(), name, p)
				for _, err := range []error{err, objects.put(t.Context(), name, p)} {
					if err == nil || !strings.Contains(err.Error(), "another file has this name") {
						t.Errorf("another file: got the error %v", err)
					}
				}
			}
		})
	}
}

// TestFolderLinks lists and removes objects of a folder in which there are symbolic links.
func TestFolderLinks(t *testing.T) {
	for name, test := range map[string]struct {
		link func(path, disk string) error
		want string // the objects, or the error
		left bool   // the link is there after all objects were removed
	}{
		"no folder": {func(string, string) error { return nil }, "[]", false},
		"a folder on another disk": {func(path, disk string) error {
			return errors.Join(os.MkdirAll(path, 0o755), os.Symlink(disk, filepath.Join(path, "data")))
		}, "[data/day/a.parquet data/b.parquet]", true},
		"a missing disk": {func(path, disk string) error {
			return errors.Join(os.MkdirAll(path, 0o755), os.Symlink(disk+"/missing", filepath.Join(path, "data")))
		}, "no such file", true},
		"a day on another disk": {func(path, disk string) error {
			return errors.Join(os.MkdirAll(filepath.Join(path, "data"), 0o755), os.Symlink(disk+"/day", filepath.Join(path, "data", "day")))
		}, "data/day is a symbolic link", true},
		"a file in place of the folder": {func(path, disk string) error { return os.Symlink(disk+"/b.parquet", filepath.Join(path, "data")) }, "is not a folder", true},
	} {
		t.Run(name, func(t *testing.T) {
			path, disk := t.TempDir(), t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(disk, "day"), 0o755), os.WriteFile(filepath.Join(disk, "day", "a.parquet"), nil, 0o600),
				os.WriteFile(filepath.Join(disk, "b.parquet"), nil, 0o600), test.link(path, disk)); err != nil {
				t.Fatal(err)
			}
			store := &folder{path}
			all, err := store.list(t.Context(), lake.DataFolder)
			var names []string
			for _, object := range all {
				names = append(names, object.Name)
			}
			slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
			got := fmt.Sprint(names)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("listed %s, want %s", got, test.want)
			}
			if n, _, refused, err := store.remove(t.Context(), all); n != len(all) || len(refused) > 0 || err != nil {
				t.Errorf("removed %d of %d, refused %v, %v", n, len(all), refused, err)
			}
			if _, err := os.Lstat(filepath.Join(path, "data")); (err == nil) != test.left {
				t.Errorf("the folder data: %v, want that it is there: %v", err, test.left)
			}
		})
	}
}

// TestRemoveVersions removes objects of a bucket with versions: those that somebody has deleted,
// whose older versions remain, and one that the bucket refuses to remove.
func TestRemoveVersions(t *testing.T) {
	if _, found := catalogs(t)["S3, REST"]; !found {
		t.Skip("needs PERIGEE_SEAWEEDFS, which make test-lake sets")
	}
	client, err := newS3Client()
	if err != nil {
		t.Fatal(err)
	}
	const name = "locked"
	if err := client.Client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
		t.Fatal(err)
	}
	put := func(key string, options minio.PutObjectOptions) {
		t.Helper()
		if _, err := client.Client.PutObject(t.Context(), name, "table/data/"+key, strings.NewReader("a file"), 6, options); err != nil {
			t.Fatal(err)
		}
	}
	put("a", minio.PutObjectOptions{})
	put("a", minio.PutObjectOptions{})
	put("b", minio.PutObjectOptions{})
	put("locked", minio.PutObjectOptions{Mode: minio.Governance, RetainUntilDate: time.Now().Add(time.Hour)})
	if err := client.Client.RemoveObject(t.Context(), name, "table/data/a", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	objects, err := openObjects("s3a://" + name + "/table")
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects.list(t.Context(), lake.DataFolder)
	if err != nil || len(all) != 5 || !slices.ContainsFunc(all, func(o lake.Object) bool { return o.Name == "data/a" && o.Deleted }) {
		t.Fatalf("%+v, %v", all, err)
	}
	n, size, refused, err := objects.remove(t.Context(), all)
	if err != nil || n != 4 || size < 18 || len(refused) != 1 || !strings.Contains(refused[0], "s3://locked/table/data/locked version ") {
		t.Errorf("removed %d of %d bytes, refused %q, %v", n, size, refused, err)
	}
	if all, err = objects.list(t.Context(), lake.DataFolder); err != nil || len(all) != 1 {
		t.Errorf("left: %+v, %v", all, err)
	}
}
