//go:build linux && cgo && luajit && lmdb

package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/internal/datafolder"
)

// unpackFolder unpacks a folder of testdata/folders, with the configurations that it was made with,
// into a new working folder.
func unpackFolder(t *testing.T, name string) {
	t.Helper()
	const kept = "testdata/folders"
	work := shortDir(t)
	for _, file := range []string{"pipeline.yaml", "script.lua", "counts.yaml", "counts.lua"} {
		text, err := os.ReadFile(filepath.Join(kept, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := os.Open(filepath.Join(kept, name+".tar.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := zstd.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer unzipped.Close()
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(work, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := writeSparse(path, archive, header.Size); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(work)
}

// writeSparse writes a file without its zeros: a file of the event store's log is 64 MB.
func writeSparse(path string, from io.Reader, size int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	block, zeros := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(from, block[:min(int64(len(block)), size-at)])
		if err != nil {
			return err
		}
		if !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := file.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return file.Close()
}

// TestFoldersOfEarlierVersions opens data folders that earlier versions wrote, and goes on with them.
// testdata/folders/make.sh made them. 2026-11-26 has the first format of each file: a manifest of format
// 1, Parquet files of format 0, a node database of format 1, values of bbolt without checksums.
func TestFoldersOfEarlierVersions(t *testing.T) {
	kept, err := filepath.Glob("testdata/folders/*.tar.zst")
	if err != nil || len(kept) < 2 {
		t.Fatalf("%d folders, %v", len(kept), err)
	}
	for _, file := range kept {
		name := strings.TrimSuffix(filepath.Base(file), ".tar.zst")
		t.Run(name, func(t *testing.T) {
			unpackFolder(t, name)
			query := func(want string) {
				t.Helper()
				says(t, 0, want, "query", "--config", "pipeline.yaml", "--format", "ndjson", "SELECT count(*) AS rows, count(DISTINCT id) AS ids, min(id) AS least FROM events")
			}
			query(`{"rows":319,"ids":174,"least":1}`)
			says(t, 0, "110 dead letters", "dlq", "list", "--config", "pipeline.yaml")
			if reason, err := os.ReadFile("data/paused/emails.json"); err != nil || !strings.Contains(string(reason), "kept as it is") {
				t.Errorf("the pause is %q, %v", reason, err)
			}
			says(t, 0, "Ada", "node", "get", "nodes", `^users(7,"name")`)
			says(t, 0, "", "node", "set", "nodes", `^users(9,"name")`, "Cy")
			says(t, 0, "Cy", "node", "get", "nodes", `^users(9,"name")`)
			says(t, 0, "", "node", "check", "nodes")

			// The positions of both sinks hold: nothing is delivered again.
			says(t, 0, "emails will read", "resume", "emails", "--config", "pipeline.yaml")
			says(t, 0, "nothing new in partition generate-7-200", "run", "pipeline.yaml")
			query(`{"rows":319,"ids":174,"least":1}`)
			if err := os.WriteFile("script.lua", []byte("function main(event) return event end"), 0o644); err != nil {
				t.Fatal(err)
			}
			says(t, 0, "", "dlq", "retry", "--all", "--config", "pipeline.yaml")
			says(t, 0, "", "run", "pipeline.yaml")
			query(`{"rows":429,"ids":230,"least":1}`)
			says(t, 0, "", "table", "delete", "events", "WHERE id = 2", "--data", "data", "--yes")
			query(`{"rows":427,"ids":229,"least":1}`)
			if _, err := os.Stat("data/state"); err == nil {
				says(t, 0, "nothing new", "run", "counts.yaml")
				says(t, 0, "50", "state", "get", "counts.yaml", "counts", "^count")
			}
			if format, err := os.ReadFile("data/perigee.format"); err != nil || !strings.HasPrefix(string(format), "format ") {
				t.Errorf("perigee.format has %q, %v", format, err)
			}
		})
	}
}

// TestFoldersOfLaterVersions raises each format number in a data folder. The folder must be refused,
// with a hint at the version to use, and stay as it is.
func TestFoldersOfLaterVersions(t *testing.T) {
	const name = "0.1.0"
	later := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(old), []byte(new)) }
	}
	for _, test := range []struct {
		what, file string
		change     func([]byte) []byte
		args       []string
		want       string
	}{
		{"data folder", "data/perigee.format", later("format 1\nsince 0.1.0\n", "format 2\nsince 0.2.0\n"), []string{"run", "pipeline.yaml"}, "use perigee 0.2.0 or later"},
		{"data folder, checked", "data/perigee.format", later("format 1\nsince 0.1.0\n", "format 2\nsince 0.2.0\n"), []string{"check", "pipeline.yaml"}, "use perigee 0.2.0 or later"},
		{"data folder, queried", "data/perigee.format", later("format 1\nsince 0.1.0\n", "format 2\nsince 0.2.0\n"), []string{"query", "--data", "data", "SELECT 1"}, "use perigee 0.2.0 or later"},
		{"manifest", "data/events/manifest", later("perigee-manifest 2 ", "perigee-manifest 3 "), []string{"query", "--data", "data", "SELECT 1"}, "a later version of perigee has written this file"},
		{"log", "data/events/log/*.log", func(b []byte) []byte {
			b[8]++
			binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], crc32.MakeTable(crc32.Castagnoli)))
			return b
		}, []string{"query", "--data", "data", "SELECT 1"}, "perigee.format in the data folder may name the version to use"},
		{"node database", "nodes/data.mdb", later("perigee nodedb 2", "perigee nodedb 3"), []string{"node", "get", "nodes", "^users"}, "use the version of perigee that wrote it"},
		{"state", "data/state/*/*/data.mdb", later("perigee nodedb 2", "perigee nodedb 3"), []string{"run", "counts.yaml"}, "use the version of perigee that wrote it"},
	} {
		t.Run(test.what, func(t *testing.T) {
			unpackFolder(t, name)
			files, err := filepath.Glob(test.file)
			if err != nil || len(files) != 1 {
				t.Fatalf("%d files %s, %v", len(files), test.file, err)
			}
			before, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			changed := test.change(slices.Clone(before))
			if bytes.Equal(before, changed) {
				t.Fatal("the file has no such format")
			}
			if err := os.WriteFile(files[0], changed, 0o600); err != nil {
				t.Fatal(err)
			}
			says(t, 1, test.want, test.args...)
			if after, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(after, changed) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
	if datafolder.Format != 1 {
		t.Error("keep a folder of the format before with make.sh, and raise the numbers of this test")
	}
}
