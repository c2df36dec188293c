package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// countSent passes connections on to S3 for the rest of a test, and counts the bytes that are sent
// there.
func countSent(t *testing.T) *atomic.Int64 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	sent := new(atomic.Int64)
	pass := func(in net.Conn) {
		defer in.Close()
		out, err := net.Dial("tcp", servers.s3.Address())
		if err != nil {
			return
		}
		defer out.Close()
		go func() {
			_, _ = io.Copy(in, out)
			_ = in.Close()
		}()
		_, _ = io.Copy(io.MultiWriter(out, counter{sent}), in)
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in)
		}
	}()
	t.Setenv("AWS_ENDPOINT_URL", "http://"+l.Addr().String())
	return sent
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// TestPutsOnce counts what goes to S3 for a file whose commit fails twice, and for one whose order
// was ended before its commit. No file may go there twice.
func TestPutsOnce(t *testing.T) {
	settings, found := catalogs(t)["S3, postgres"]
	if !found {
		t.Skip("needs PERIGEE_SEAWEEDFS, which make test-lake sets")
	}
	sent := countSent(t)
	defer func(real func(string)) { onPoint = real }(onPoint)
	folder := t.TempDir()
	a, b := writeFileAs(t, folder, 1, 0, 8000, compress.Codecs.Uncompressed), writeFileAs(t, folder, 2, 8000, 16000, compress.Codecs.Uncompressed)
	if r := publish(t.Context(), orderOf(settings, 1)); r.Error != "" {
		t.Fatal(r.Error)
	}
	sizeOf := func(f lake.File) int64 {
		info, err := os.Stat(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	publishCounted := func(ctx context.Context, o *lake.TableOrder, least, most int64) lake.TableReport {
		t.Helper()
		before := sent.Load()
		r := publish(ctx, o)
		if got := sent.Load() - before; got < least || got > most {
			t.Errorf("step %d: sent %d bytes, want %d to %d", o.Step, got, least, most)
		}
		return r
	}
	others := []*lake.TableOrder{orderOf(settings, 2, writeFile(t, folder, 3, 0, 10)), orderOf(settings, 3)} // of another store
	for _, o := range others {
		o.Incarnations[0].ID = strings.Repeat("c", 16)
		for i := range o.Files {
			o.Files[i].Name = strings.ReplaceAll(o.Files[i].Name, strings.Repeat("a", 16), o.Incarnations[0].ID)
		}
	}
	isOther := false
	onPoint = func(at string) {
		if at != "put" || isOther || len(others) == 0 {
			return
		}
		isOther = true
		if r := publish(t.Context(), others[0]); r.Error != "" {
			t.Error(r.Error)
		}
		isOther, others = false, others[1:]
	}
	small := sizeOf(a) / 10
	if r := publishCounted(t.Context(), orderOf(settings, 2, a), sizeOf(a)-small, sizeOf(a)+small); r.Covered != 2 || len(others) > 0 {
		t.Fatalf("%+v, with %d commits of the other store left", r, len(others))
	}
	a.Step = 2
	ctx, cancel := context.WithCancel(t.Context())
	onPoint = func(at string) {
		if at == "put" {
			cancel()
		}
	}
	if r := publishCounted(ctx, orderOf(settings, 3, a, b), sizeOf(b)-small, sizeOf(b)+small); r.Covered != 0 || r.Error == "" {
		t.Fatalf("an order that was ended: %+v", r)
	}
	if r := publishCounted(t.Context(), orderOf(settings, 4, a, b), 0, small); r.Covered != 4 {
		t.Fatalf("the order after it: %+v", r)
	}
	if got := sums(t, orderOf(settings, 4)); got != sumsOf(0, 16000) {
		t.Errorf("the table has %s, want %s", got, sumsOf(0, 16000))
	}
}

// TestUploadTime publishes more files than the table has time for. Each order must upload at least
// one, and the table behind it must be published each time.
func TestUploadTime(t *testing.T) {
	folder := t.TempDir()
	settings := func(table string) lake.Settings {
		return lake.Settings{Warehouse: filepath.Join(folder, "lake"), Table: "sales." + table}
	}
	var files []lake.File
	for i := range 3 {
		files = append(files, writeFile(t, folder, i+1, 10*i, 10*i+10))
	}
	short := defaultLimits
	short.uploadTime, short.uploadTimeMin = 0, 0
	for step, want := range []string{"uploaded 1 of 3 new files", "uploaded 2 of 3 new files", ""} {
		order := &lake.Order{Tables: []lake.TableOrder{*orderOf(settings("large"), step+1, files...), *orderOf(settings("small"), step+1, writeFile(t, folder, 10+step, 0, 10))}}
		report := publishAll(t.Context(), order, short)
		if r := report.Tables[0]; !strings.HasPrefix(r.Error, want) || (r.Error == "") != (want == "") || (r.Covered > 0) != (want == "") {
			t.Errorf("order %d: got %+v, want the error %q", step+1, r, want)
		}
		if r := report.Tables[1]; r.Covered != uint64(step+1) {
			t.Errorf("order %d: the table behind it: got %+v", step+1, r)
		}
	}
	if got := sums(t, orderOf(settings("large"), 3)); got != sumsOf(0, 30) {
		t.Errorf("the table has %s, want %s", got, sumsOf(0, 30))
	}
}
