package redis_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source/redis"
)

func TestEntriesBecomeDocuments(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	for i, fields := range [][]string{
		{"data", `{"a":1}`},
		{"any", `{"b":2}`},
		{"a", "1", "data", `{"c":3}`},
		{"a", "x\"\\\n\x01é\xff", "b", ""},
		{"data", `{"d":4}`},
		{"data", ""},
	} {
		do(t, client, append([]string{"XADD", "s", fmt.Sprintf("1-%d", i+1)}, fields...)...)
	}
	twoTexts := `{"a":"x\"\\\n\u0001é` + "\ufffd" + `","b":""}`
	for field, want := range map[string][]string{
		"": {`{"a":1}`, `{"b":2}`, `{"a":"1","data":"{\"c\":3}"}`, twoTexts, `{"d":4}`, ""},
		"data": {`{"a":1}`, `entry 1-2 has no field "data": {"any":"{\"b\":2}"}`, `{"c":3}`,
			`entry 1-4 has no field "data": ` + twoTexts, `{"d":4}`, ""},
	} {
		for how, address := range map[string]string{"at once": server.Address(), "in pieces": inPieces(t, server.Address())} {
			r := newRun(t, redis.Config{Address: address, Stream: "s", Field: field, UntilEmpty: true})
			r.mustOpen()
			b := r.mustRead()
			var got []string
			for i := range b.Len() {
				got = append(got, string(b.Doc(i)))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("field %q, %s: %s", field, how, diff)
			}
			r.close()
		}
	}
}

// TestConnectionEndsInAnEntry: the connection ends in the middle of the last document of a reply,
// which must not become an event.
func TestConnectionEndsInAnEntry(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	for i, doc := range []string{`{"a":1}`, `{"a":2}`, `{"last":"the connection ends here, not there"}`} {
		do(t, client, "XADD", "s", fmt.Sprintf("1-%d", i+1), "data", doc)
	}
	r := newRun(t, redis.Config{Address: endsBehind(t, server.Address(), "ends here"), Stream: "s"})
	r.mustOpen()
	defer r.close()
	if b, err := r.read(); err == nil || event.IsPermanent(err) || !strings.Contains(err.Error(), "redis closed the connection") {
		t.Errorf("a reply that is not whole is read as %d events, %v: %s", b.Len(), err, b.Data)
	}
}

// inPieces forwards a server's replies in pieces of a few bytes, so that nothing is
// buffered as a whole. It returns the address to connect to.
func inPieces(t *testing.T, server string) string {
	t.Helper()
	seed := testseed.Seed(t)
	return forward(t, server, func(client io.Writer, replies io.Reader) {
		random := rand.New(rand.NewPCG(seed, 0))
		var text [4096]byte
		for {
			n, err := replies.Read(text[:])
			for from := 0; from < n; {
				to := min(n, from+1+random.IntN(16))
				if _, err := client.Write(text[from:to]); err != nil {
					return
				}
				from = to
				time.Sleep(100 * time.Microsecond)
			}
			if err != nil {
				return
			}
		}
	})
}

// endsBehind forwards a server's replies up to a text in them. It returns the address to connect to.
func endsBehind(t *testing.T, server, text string) string {
	t.Helper()
	return forward(t, server, func(client io.Writer, replies io.Reader) {
		var last []byte
		for in := bufio.NewReader(replies); !bytes.HasSuffix(last, []byte(text)); {
			b, err := in.ReadByte()
			if err != nil {
				return
			}
			last = append(last[max(0, len(last)-len(text)):], b)
			if _, err := client.Write([]byte{b}); err != nil {
				return
			}
		}
	})
}

// forward passes requests to a server. replies passes on what the server says; when it returns, the
// connection is closed.
func forward(t *testing.T, server string, replies func(client io.Writer, replies io.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); group.Wait() })
	pass := func(client net.Conn) {
		defer client.Close()
		conn, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(conn, client); _ = conn.Close() }()
		replies(client, conn)
	}
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { pass(client) })
		}
	})
	return l.Addr().String()
}
