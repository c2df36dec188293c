//go:build linux && cgo

package eventservice

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/datafolder"
)

// TestTailEnds ends with the error of the function that gets the batches, while an engine goes on
// to send them, which then ends, too.
func TestTailEnds(t *testing.T) {
	data := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(data, datafolder.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	server := http.Server{Handler: admin.Handler(func(w io.Writer, r *http.Request) error {
		for {
			if err := writeBatch(w, &catalog.TailBatch{Rows: make([]byte, 100_000), Count: 1}); err != nil {
				sent <- err
				return err
			}
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	enough, batches := errors.New("enough"), 0
	ended := make(chan error, 1)
	go func() {
		ended <- Tail(t.Context(), data, catalog.TailRequest{Table: "t"}, func(b *catalog.TailBatch) error {
			if batches++; batches < 3 {
				return nil
			}
			time.Sleep(50 * time.Millisecond) // in which more batches come
			return enough
		})
	}()
	deadline := time.After(30 * time.Second)
	select {
	case err := <-ended:
		if !errors.Is(err, enough) || batches != 3 {
			t.Errorf("ended after %d batches with %v", batches, err)
		}
	case <-deadline:
		t.Fatal("the tail continues after an error")
	}
	select {
	case <-sent:
	case <-deadline:
		t.Error("the engine still sends")
	}
}
