package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A request is one attack over connections of its own.
type request struct {
	name        string
	to          string        // "source", "metrics" or "socket"
	connections int           // 1 when 0
	text        string        // what each sends; HOST stands for the address
	drip        time.Duration // between two bytes, once text is sent
	hold        time.Duration // how long the connections are kept, without reading
	halfClose   bool          // the client says that it sends no more
	want        []int         // statuses that may answer; none means any, or no answer
}

// answerTime is how long an attacker waits for an answer.
const answerTime = 3 * time.Second

func requestCases() (all []attackCase) {
	for _, r := range requests() {
		all = append(all, attackCase{name: r.to + ": " + r.name, run: r.run})
	}
	return all
}

func (r request) run(ctx context.Context, t *target) (string, error) {
	var mu sync.Mutex
	var attacking sync.WaitGroup
	statuses := map[int]int{}
	for range max(r.connections, 1) {
		attacking.Go(func() {
			status := r.attack(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	attacking.Wait()
	for status := range statuses {
		if len(r.want) > 0 && !slices.Contains(r.want, status) {
			return fmt.Sprint(statuses), fmt.Errorf("status %d, want one of %v", status, r.want)
		}
	}
	return fmt.Sprint(statuses), nil
}

// attack uses one connection and returns the status of the first answer, 0 for none.
func (r request) attack(ctx context.Context, t *target) (status int) {
	network, address := "tcp", t.source
	switch r.to {
	case "metrics":
		address = t.metrics
	case "socket":
		network, address = "unix", t.socket
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return 0
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(r.hold + answerTime))
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		io.WriteString(conn, strings.ReplaceAll(r.text, "HOST", address))
		if half, ok := conn.(interface{ CloseWrite() error }); ok && r.halfClose {
			half.CloseWrite()
		}
		for end := time.Now().Add(r.hold); r.drip > 0 && time.Now().Before(end); time.Sleep(r.drip) {
			if _, err := io.WriteString(conn, "a"); err != nil {
				return
			}
		}
	}()
	defer func() { conn.Close(); <-sending }()
	if r.hold > 0 {
		time.Sleep(r.hold)
		return 0
	}
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if fields := strings.Fields(line); len(fields) > 1 {
		status, _ = strconv.Atoi(fields[1])
	}
	return status
}

// post returns a request with a body, and further header lines.
func post(body string, headers ...string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: %d\r\n%s\r\n%s", len(body), lines(headers), body)
}

// open returns a request whose body is said to have length bytes.
func open(length string, body string, headers ...string) string {
	return "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: " + length + "\r\n" + lines(headers) + "\r\n" + body
}

func chunked(body string, headers ...string) string {
	return "POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n" + lines(headers) + "\r\n" + body
}

func get(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: HOST\r\n" + lines(headers) + "\r\n"
}

func query1(sql string) string {
	return fmt.Sprintf("POST /query?format=ndjson HTTP/1.1\r\nHost: engine\r\nContent-Length: %d\r\n\r\n%s", len(sql), sql)
}

func lines(headers []string) string {
	var all strings.Builder
	for _, h := range headers {
		all.WriteString(h + "\r\n")
	}
	return all.String()
}

// bomb returns count times text, compressed.
func bomb(text string, count int) string {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	part := strings.Repeat(text, 1000)
	for range count / 1000 {
		io.WriteString(w, part)
	}
	w.Close()
	return out.String()
}

func numbered(count int, format string) string {
	var all strings.Builder
	for i := range count {
		fmt.Fprintf(&all, format, i)
	}
	return all.String()
}

const (
	long = 3 * time.Second
	mib  = 1 << 20
)

func requests() []request {
	gz := "Content-Encoding: gzip"
	bad := []int{400, 0}
	return []request{
		// Clients that send slowly, or nothing.
		{name: "four that announce a body and send none", to: "source", connections: 4, text: open("4194304", ""), hold: long},
		{name: "four compressed ones that send none", to: "source", connections: 4, text: open("4194304", "", gz), hold: long},
		{name: "200 that announce a body and send none", to: "source", connections: 200, text: open("4194304", ""), hold: long},
		{name: "200 chunked ones that send none", to: "source", connections: 200, text: chunked(""), hold: long},
		{name: "eight that send most of a body and stop", to: "source", connections: 8, text: open("4194304", strings.Repeat(" ", 4<<20-100)), hold: long},
		{name: "30 that send most of a body and drip", to: "source", connections: 30, text: open("4194304", strings.Repeat(" ", 4<<20-1000)), drip: 50 * time.Millisecond, hold: long},
		{name: "30 that drip a body", to: "source", connections: 30, text: open("1000000", ""), drip: 20 * time.Millisecond, hold: long},
		{name: "30 that drip compressed data", to: "source", connections: 30, text: open("1000000", bomb(" ", 2_000_000)[:1000], gz), drip: 20 * time.Millisecond, hold: long},
		{name: "200 that drip a header", to: "source", connections: 200, text: "POST / HTTP/1.1\r\nX: ", drip: 50 * time.Millisecond, hold: long},
		{name: "200 that drip a request line", to: "source", connections: 200, text: "POST /", drip: 50 * time.Millisecond, hold: long},
		{name: "500 that send nothing", to: "source", connections: 500, hold: long},
		{name: "900 that send nothing", to: "source", connections: 900, hold: long},
		{name: "200 that drip a header", to: "metrics", connections: 200, text: "GET / HTTP/1.1\r\nX: ", drip: 50 * time.Millisecond, hold: long},
		{name: "500 that send nothing", to: "metrics", connections: 500, hold: long},
		{name: "100 that announce a body and send none", to: "metrics", connections: 100, text: open("1000000", ""), hold: long},
		{name: "100 that drip a header", to: "socket", connections: 100, text: "POST /query HTTP/1.1\r\nX: ", drip: 50 * time.Millisecond, hold: long},
		{name: "100 queries whose text does not come", to: "socket", connections: 100, text: "POST /query HTTP/1.1\r\nHost: engine\r\nContent-Length: 1000\r\n\r\nSELECT", hold: long},
		{name: "20 operations whose request does not come", to: "socket", connections: 20, text: "POST /admin/pause HTTP/1.1\r\nHost: engine\r\nContent-Length: 1000\r\n\r\n{", hold: long},

		// Clients that do not read.
		{name: "eight that do not read a long list of refusals", to: "source", connections: 8, text: post(strings.Repeat("x\n", 2_000_000)), hold: long},
		{name: "50 that do not read", to: "source", connections: 50, text: strings.Repeat(post("{}\n"), 200), hold: long},
		{name: "pipelined posts that nobody reads", to: "source", connections: 10, text: strings.Repeat(post("x\n"), 5000), hold: long},
		{name: "pipelined metrics that nobody reads", to: "metrics", connections: 10, text: strings.Repeat(get("/metrics"), 500), hold: long},
		{name: "three queries whose rows nobody reads", to: "socket", connections: 3, text: query1("SELECT * FROM range(1000000000)"), hold: long},
		{name: "dead letters that nobody reads", to: "socket", connections: 10, text: "POST /admin/dead-letters HTTP/1.1\r\nHost: engine\r\nContent-Length: 2\r\n\r\n{}", hold: long},

		// Bombs.
		{name: "16 KB of compressed empty lines", to: "source", text: post(bomb("\n", 16*mib), gz), want: []int{413}},
		{name: "compressed lines that are refused", to: "source", text: post(bomb("x\n", 2_000_000), gz), want: []int{400, 413}},
		{name: "100 MB compressed", to: "source", text: post(bomb(" ", 100*mib), gz), want: []int{413}},
		{name: "ten bombs at once", to: "source", connections: 10, text: post(bomb("x\n", 2_000_000), gz), want: []int{400, 413, 503}},
		{name: "a bomb in a bomb", to: "source", text: post(bomb(bomb(" ", 1_000_000), 1000), gz), want: []int{400, 413}},
		{name: "compressed twice", to: "source", text: post(bomb(" ", 1000), "Content-Encoding: gzip, gzip"), want: []int{415}},
		{name: "two million lines that are refused", to: "source", text: post(strings.Repeat("x\n", 2_000_000)), want: []int{413}},
		{name: "a million empty objects", to: "source", text: post(strings.Repeat("{}\n", mib)), want: []int{413}},
		{name: "an array of a million numbers", to: "source", text: post("[" + strings.Repeat("1,", mib) + "1]"), want: []int{413}},
		{name: "a deep array", to: "source", text: post(strings.Repeat("[", mib) + strings.Repeat("]", mib)), want: []int{400}},
		{name: "a deep object", to: "source", text: post(strings.Repeat(`{"a":`, 500_000) + "1" + strings.Repeat("}", 500_000)), want: []int{400}},
		{name: "a deep object as a line", to: "source", text: post(strings.Repeat(`{"a":`, 500_000)+"1"+strings.Repeat("}", 500_000), "Content-Type: application/x-ndjson"), want: []int{400}},
		{name: "an object of 1,000 fields", to: "source", text: post("{" + numbered(1000, `"f%d":1,`) + `"z":1}`)},
		{name: "an object of 100,000 equal fields", to: "source", text: post("{" + strings.Repeat(`"f":1,`, 100_000) + `"f":1}`)},
		{name: "a number of a million digits", to: "source", text: post(`{"a":` + strings.Repeat("9", mib) + `}`)},
		{name: "a number with a huge exponent", to: "source", text: post(`{"a":1e999999999}`)},
		{name: "truncated gzip", to: "source", text: post(bomb("{}\n", 100_000)[:100], gz), want: []int{400}},
		{name: "gzip with a long name", to: "source", text: post("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"+strings.Repeat("n", mib), gz), want: []int{400}},
		{name: "10,000 members of gzip", to: "source", text: post(strings.Repeat(bomb(" ", 1000), 10_000), gz)},

		// Headers.
		{name: "a header of a megabyte", to: "source", text: get("/", "X: "+strings.Repeat("x", mib)), want: []int{431, 0}},
		{name: "100,000 header lines", to: "source", text: get("/", numbered(100_000, "X%d: y\r\n")+"X: y"), want: []int{431, 0}},
		{name: "a header of a megabyte", to: "metrics", text: get("/ping", "X: "+strings.Repeat("x", mib)), want: []int{431, 0}},
		{name: "50 endless headers", to: "source", connections: 50, text: "POST / HTTP/1.1\r\nX: " + strings.Repeat("x", mib), want: []int{431, 0}},
		{name: "an idempotency key of 100 KB", to: "source", text: post("{}", "Idempotency-Key: "+strings.Repeat("k", 100_000)), want: []int{400, 431, 0}},
		{name: "an idempotency key of 5 KB", to: "source", text: post("{}", "Idempotency-Key: "+strings.Repeat("k", 5000)), want: []int{400}},
		{name: "an idempotency key of control characters", to: "source", text: post("{}", "Idempotency-Key: \x1b[2J\x01"), want: bad},
		{name: "5000 idempotency keys", to: "source", text: numbered(5000, "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\nIdempotency-Key: %d\r\n\r\n{}"), want: []int{200}},
		{name: "an unknown encoding of 10 KB", to: "source", text: post("{}", "Content-Encoding: "+strings.Repeat("x", 10_000)), want: []int{415}},
		{name: "a content type of 10 KB", to: "source", text: post("{}", "Content-Type: "+strings.Repeat("a/b;", 2500))},
		{name: "folded header lines", to: "source", text: post("{}", "X: a", " b"), want: []int{200, 400}},
		{name: "a header with a NUL", to: "source", text: post("{}", "X: a\x00b"), want: bad},
		{name: "Expect: 100-continue, and nothing", to: "source", connections: 20, text: open("4194304", "", "Expect: 100-continue"), hold: long},
		{name: "an unknown Expect", to: "source", text: post("{}", "Expect: 200-ok"), want: []int{417}},
		{name: "Upgrade", to: "source", text: get("/", "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"), want: []int{404, 405}},
		{name: "the preface of HTTP/2", to: "source", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: []int{400, 404, 405, 505, 0}},

		// Lengths.
		{name: "Content-Length 2^63-1", to: "source", text: open("9223372036854775807", "{}"), want: []int{413}},
		{name: "Content-Length 2^63-1 of compressed data", to: "source", text: open("9223372036854775807", "{}", gz), want: []int{413}},
		{name: "Content-Length 2^63-4096", to: "source", text: open("9223372036854771712", "{}"), want: []int{413}},
		{name: "Content-Length 2^63", to: "source", text: open("9223372036854775808", "{}"), want: bad},
		{name: "Content-Length 2^64", to: "source", text: open("18446744073709551616", "{}"), want: bad},
		{name: "Content-Length -1", to: "source", text: open("-1", "{}"), want: bad},
		{name: "Content-Length +2", to: "source", text: open("+2", "{}"), want: bad},
		{name: "Content-Length 0x2", to: "source", text: open("0x2", "{}"), want: bad},
		{name: "two lengths", to: "source", text: open("2", "{}", "Content-Length: 3"), want: bad},
		{name: "a list of lengths", to: "source", text: open("2, 3", "{}"), want: bad},
		{name: "a length and chunks", to: "source", text: open("4", "0\r\n\r\nPOST / HTTP/1.1\r\n", "Transfer-Encoding: chunked"), want: []int{400, 200, 0}},
		{name: "chunks twice", to: "source", text: chunked("0\r\n\r\n", "Transfer-Encoding: chunked"), want: []int{400, 501, 0}},
		{name: "an unknown transfer encoding", to: "source", text: open("2", "{}", "Transfer-Encoding: xchunked"), want: []int{400, 501, 0}},
		{name: "chunked with spaces", to: "source", text: open("2", "{}", "Transfer-Encoding : chunked"), want: bad},
		{name: "a chunk of 2^64 bytes", to: "source", text: chunked("ffffffffffffffff0\r\n{}"), want: bad},
		{name: "a chunk of a negative size", to: "source", text: chunked("-1\r\n{}"), want: bad},
		{name: "a chunk size of a megabyte", to: "source", text: chunked(strings.Repeat("0", mib)), want: bad},
		{name: "a chunk with long extensions", to: "source", text: chunked("2;" + strings.Repeat("x", mib) + "\r\n{}\r\n0\r\n\r\n"), want: bad},
		{name: "a million chunks of one byte", to: "source", text: chunked(strings.Repeat("1\r\n \r\n", mib) + "0\r\n\r\n")},
		{name: "endless trailers", to: "source", text: chunked("2\r\n{}\r\n0\r\n"+numbered(100_000, "X%d: y\r\n"), "Trailer: X1"), want: []int{400, 200, 0}},
		{name: "a smuggled request", to: "source", text: open("2", "{}POST /admin HTTP/1.1\r\nHost: HOST\r\n\r\n"), want: []int{200}},
		{name: "a body that ends early", to: "source", connections: 20, text: open("1000", "{}"), halfClose: true, want: bad},
		{name: "a half closed request", to: "source", text: post("{}"), halfClose: true, want: []int{200, 0}},
		{name: "half a header, half closed", to: "source", text: "POST / HTT", halfClose: true, want: bad},

		// Hosts, paths and methods.
		{name: "another host", to: "source", text: "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}", want: []int{403}},
		{name: "another host", to: "metrics", text: "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", want: []int{403}},
		{name: "another host with our port", to: "metrics", text: "GET /metrics HTTP/1.1\r\nHost: evil.example:4290\r\n\r\n", want: []int{403}},
		{name: "a host that looks like ours", to: "metrics", text: "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", want: []int{403}},
		{name: "an absolute address with another host", to: "metrics", text: "GET http://evil.example/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", want: []int{403}},
		{name: "no host", to: "metrics", text: "GET /metrics HTTP/1.1\r\n\r\n", want: bad},
		{name: "two hosts", to: "metrics", text: "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", want: bad},
		{name: "HTTP/1.0 without a host", to: "metrics", text: "GET /ping HTTP/1.0\r\n\r\n", want: []int{200}},
		{name: "HTTP/0.9", to: "metrics", text: "GET /ping\r\n\r\n", want: bad},
		{name: "HTTP/9.9", to: "metrics", text: "GET /ping HTTP/9.9\r\nHost: HOST\r\n\r\n", want: []int{400, 505, 0}},
		{name: "a page of another site posts", to: "source", text: post("{}", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"), want: []int{403}},
		{name: "a page of another site asks for metrics", to: "metrics", text: "GET /metrics HTTP/1.1\r\nHost: HOST\r\nSec-Fetch-Site: cross-site\r\n\r\n", want: []int{403}},
		{name: "a page of another port asks for readiness", to: "metrics", text: "GET /ready HTTP/1.1\r\nHost: HOST\r\nOrigin: http://localhost:3000\r\n\r\n", want: []int{403}},
		{name: "a page without an origin posts", to: "source", text: post("{}", "Origin: null"), want: []int{403}},
		{name: "a path that is not UTF-8", to: "source", text: "POST /\xff\xfe HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\n{}", want: []int{400, 404, 405, 200, 0}},
		{name: "an escaped path that is not UTF-8", to: "source", text: "POST /%ff%00 HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "a path of 10 KB", to: "metrics", text: get("/" + strings.Repeat("x", 10_000)), want: []int{404}},
		{name: "a path of 1,000 folders up", to: "metrics", text: get("/" + strings.Repeat("../", 1000) + "etc/passwd"), want: []int{301, 307, 308, 404}},
		{name: "an unknown method", to: "source", text: "HAX / HTTP/1.1\r\nHost: HOST\r\n\r\n", want: []int{405, 404, 200, 400}},
		{name: "CONNECT", to: "source", text: "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{name: "the path *", to: "source", text: "OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{name: "queries on the port", to: "metrics", text: "POST /query HTTP/1.1\r\nHost: HOST\r\nContent-Length: 8\r\n\r\nSELECT 1", want: []int{404}},
		{name: "operations on the port", to: "metrics", text: "POST /admin/status HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\n{}", want: []int{404}},
		{name: "binary data", to: "source", text: strings.Repeat("\x00\xff\x16\x03\x01", 1000), want: bad},
		{name: "the start of TLS", to: "source", text: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 500), want: bad},
		{name: "a query of two megabytes", to: "socket", text: query1("SELECT '" + strings.Repeat("x", 2*mib) + "'"), want: []int{400}},
		{name: "deep JSON for an operation", to: "socket", text: "POST /admin/pause HTTP/1.1\r\nHost: engine\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("[", 200_000), want: []int{500}},
		{name: "huge JSON for an operation", to: "socket", text: "POST /admin/pause HTTP/1.1\r\nHost: engine\r\nContent-Length: 104857600\r\n\r\n{\"pipeline\":\"" + strings.Repeat("x", 100*mib), want: []int{500, 413, 0}},
		{name: "an endless retry of dead letters", to: "socket", text: "POST /admin/retry-dead-letters HTTP/1.1\r\nHost: engine\r\nContent-Length: 100\r\n\r\n{\"pipeline\":\"\x1b[2J\"", hold: long},
	}
}
