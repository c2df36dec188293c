//go:build linux && cgo

package queryhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/eventstoretest"
)

// post sends a request and returns the status and the answer.
func post(t *testing.T, address, contentType, body string) (int, string, http.Header) {
	t.Helper()
	res, err := http.Post(address, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range res.Trailer {
		res.Header[name] = values
	}
	return res.StatusCode, string(answer), res.Header
}

func TestRequests(t *testing.T) {
	s := eventstoretest.Open(t, eventstore.TableConfig{Time: "time"},
		`{"time":"2026-01-02T03:04:05Z","id":1,"name":"x"}`, `{"time":"2026-01-02T03:04:06Z","id":9007199254740993,"name":"it's"}`)
	server := httptest.NewServer(Handler(s, eventstore.Limits{Time: time.Minute}))
	defer server.Close()
	const types = `SELECT typeof($a) AS a, typeof($b) AS b, typeof($c) AS c, typeof($d) AS d, typeof($e) AS e, typeof($f) AS f`
	for _, test := range []struct {
		name, query, contentType, body string
		status                         int
		want                           string
	}{
		{"by place", "?format=csv", "application/json", `{"sql":"SELECT id FROM events WHERE name = ? AND id > $2","params":["it's", 1]}`, 200, "id\n9007199254740993\n"},
		{"whole numbers", "?format=csv", "application/json", `{"sql":"SELECT name FROM events WHERE id = $id","params":{"id":9007199254740993}}`, 200, "name\nit's\n"},
		{"types", "?format=csv", "application/json", `{"sql":"` + types + `","params":{"a":1,"b":1.5,"c":"1","d":true,"e":null,"f":{"type":"timestamp","value":"2026-01-02"}}}`, 200,
			"a,b,c,d,e,f\nBIGINT,DOUBLE,VARCHAR,BOOLEAN,\"\"\"NULL\"\"\",TIMESTAMP\n"},
		{"nanoseconds", "?format=csv", "application/json", `{"sql":"SELECT typeof($1) AS type, epoch_ns($1) AS ns","params":[{"type":"timestamp_ns","value":"2026-01-02T03:04:05.123456789Z"}]}`, 200,
			"type,ns\nTIMESTAMP_NS,1767323045123456789\n"},
		{"nanoseconds out of reach", "?param.a:timestamp_ns=2262-04-12", "", `SELECT $a`, 400, `{"error":"parameter a: \"2262-04-12\" is not between the years 1677 and 2262, as a timestamp_ns must be","hint":"types are bool, int32, int64, float64, decimal, string, timestamp, timestamp_ns, json, bytes"}` + "\n"},
		{"in the address", "?format=csv&param.id:int64=1&param.name=x", "", `SELECT id FROM events WHERE id = $id AND name = $name`, 200, "id\n1\n"},
		{"text beside a number", "?format=csv&param.id=1", "", `SELECT id FROM events WHERE id = $id`, 200, "id\n1\n"},
		{"text beside a time", "?format=csv&param.t=2026-01-02T03:04:06Z", "", `SELECT name FROM events WHERE time >= $t`, 200, "name\nit's\n"},
		{"a text stays a text", "?format=csv", "application/json", `{"sql":"SELECT count(*) AS n FROM events WHERE name = $n","params":{"n":"' OR true --"}}`, 200, "n\n0\n"},
		{"all in the body", "", "application/json", `{"sql":"SELECT i FROM range(9) t(i)","format":"ndjson","rows":2,"time":"5s","memory":"32MiB"}`, 200, "{\"i\":0}\n{\"i\":1}\n"},
		{"too many", "", "application/json", `{"sql":"SELECT $1","params":[1,2]}`, 400, `{"error":"the query has 1 parameters, and 2 values are given"}` + "\n"},
		{"unknown name", "", "application/json", `{"sql":"SELECT $a","params":{"b":1}}`, 400, `{"error":"the query has no parameter $b"}` + "\n"},
		{"unknown type", "?param.a:number=1", "", `SELECT $a`, 400, `{"error":"parameter a: unknown type \"number\"","hint":"types are bool, int32, int64, float64, decimal, string, timestamp, timestamp_ns, json, bytes"}` + "\n"},
		{"no number", "?param.a:int64=1.5", "", `SELECT $a`, 400, `{"error":"parameter a: \"1.5\" is not a whole number of 64 bits","hint":"types are bool, int32, int64, float64, decimal, string, timestamp, timestamp_ns, json, bytes"}` + "\n"},
		{"number too wide", "", "application/json", `{"sql":"SELECT $1","params":[9223372036854775808]}`, 400, `{"error":"parameter 1: \"9223372036854775808\" is not a whole number of 64 bits","hint":"types are bool, int32, int64, float64, decimal, string, timestamp, timestamp_ns, json, bytes"}` + "\n"},
		{"unknown key", "", "application/json", `{"SQL":"SELECT 1","parms":[]}`, 400, `{"error":"the body is not the JSON of a request: json: unknown field \"parms\"","hint":"send {\"sql\": \"…\", \"params\": {…}}, or the SQL alone as text/plain"}` + "\n"},
		{"unknown setting", "?limit=1", "", `SELECT 1`, 400, `{"error":"unknown setting \"limit\": format, rows, time, memory and param.NAME are known"}` + "\n"},
		{"time beyond the limit", "?time=2m", "", `SELECT 1`, 400, `{"error":"the query asks for 2m0s; the limit is 1m0s","hint":"raise time below query in the engine's configuration"}` + "\n"},
		{"memory beyond the limit", "?memory=1GiB", "", `SELECT 1`, 400, `{"error":"the query asks for 1024 MiB of memory; the limit is 256 MiB","hint":"raise memory below query in the engine's configuration"}` + "\n"},
		{"too little time", "?time=50ms", "", endless, 400, `{"error":"the query took longer than 50ms","hint":"narrow it by time"}` + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, body, _ := post(t, server.URL+test.query, test.contentType, test.body)
			if status != test.status || body != test.want {
				t.Errorf("got %d %s\nwant %d %s", status, body, test.status, test.want)
			}
		})
	}
}

func TestTruncatedIsSaid(t *testing.T) {
	s := eventstoretest.Open(t, eventstore.TableConfig{})
	server := httptest.NewServer(Handler(s, eventstore.Limits{}))
	defer server.Close()
	for rows, want := range map[string]string{"2": "true", "3": "false"} {
		for _, format := range eventstore.Formats()[:5] {
			_, _, header := post(t, server.URL+"?rows="+rows+"&format="+string(format), "", `FROM range(3)`)
			if got := header.Get("Perigee-Truncated"); got != want {
				t.Errorf("%s rows of 3 as %s: %q", rows, format, got)
			}
		}
	}
}

func TestBinaryFormats(t *testing.T) {
	s := eventstoretest.Open(t, eventstore.TableConfig{})
	server := httptest.NewServer(Handler(s, eventstore.Limits{}))
	defer server.Close()
	status, body, _ := post(t, server.URL+"?format=arrow", "", `SELECT i, 'row ' || i AS name FROM range(100000) t(i);`)
	reader, err := ipc.NewReader(strings.NewReader(body))
	if status != 200 || err != nil {
		t.Fatalf("got status %d, error %v and body %.200q, want 200 and Arrow", status, err, body)
	}
	rows := int64(0)
	for reader.Next() {
		rows += reader.RecordBatch().NumRows()
	}
	if reader.Err() != nil || rows != 100_000 {
		t.Errorf("%d rows, %v", rows, reader.Err())
	}
	for _, query := range []string{"?format=arrow&rows=3", "?format=arrow&rows=9"} {
		// A stream needs its end marker; without it, a reader keeps waiting.
		if _, body, _ := post(t, server.URL+query, "", `FROM range(9)`); !strings.HasSuffix(body, "\xff\xff\xff\xff\x00\x00\x00\x00") {
			t.Errorf("%s: the stream has no end: %q", query, body[max(0, len(body)-16):])
		}
	}
	status, body, _ = post(t, server.URL+"?format=parquet&param.1:int64=100000", "", `SELECT i, 'row ' || i AS name FROM range($1) t(i); -- all`)
	if status != 200 || !strings.HasPrefix(body, "PAR1") || !strings.HasSuffix(body, "PAR1") || len(body) < 100_000 {
		t.Errorf("status %d, a Parquet file of %d bytes: %.200s", status, len(body), body)
	}
	for sql, want := range map[string]string{
		`SELECT error('no')`:                    `{"error":"no"}`,
		`SELECT nope`:                           `{"error":"Referenced column \"nope\" was not found`,
		`COPY (SELECT 1) TO '/tmp/x'`:           `{"error":"only reading statements are allowed"`,
		`SELECT 1) TO '/tmp/x' (FORMAT csv) --`: `{"error":"syntax error`,
		`SELECT 1; SELECT 2`:                    `{"error":"2 statements at once"`,
		`SHOW QUERIES`:                          `{"error":"SHOW QUERIES is not answered as parquet"`,
	} {
		if status, body, _ := post(t, server.URL+"?format=parquet", "", sql); status != 400 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d %s", sql, status, body)
		}
	}
	// A Parquet file that is not read does not block the worker.
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"?format=parquet", strings.NewReader(`SELECT hash(i) FROM range(1000000000) t(i)`))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	awaitQueries(t, s, 0)
	if got := eventstoretest.Ask(t, s, "SELECT 1"); got != "1" {
		t.Errorf("afterwards SELECT 1 is %s", got)
	}
}

func TestDisconnectEndsAQuery(t *testing.T) {
	s := eventstoretest.Open(t, eventstore.TableConfig{})
	server := httptest.NewServer(Handler(s, eventstore.Limits{}))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader(endless))
		_, err := http.DefaultClient.Do(req)
		done <- err
	}()
	awaitQueries(t, s, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	awaitQueries(t, s, 0)
}

// withoutTypes returns the text of an error without the hint that lists the types.
func withoutTypes(err error) string {
	return strings.TrimSuffix(err.Error(), " (types are "+strings.Join(paramTypes, ", ")+")")
}

func TestParseParam(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		name, text string
		want       any
		err        string
	}{
		{"a", "it's", "it's", ""},
		{"a:string", "1", "1", ""},
		{"a:decimal", "1.50", "1.50", ""},
		{"a:json", "{}", "{}", ""},
		{"a:bool", "true", true, ""},
		{"a:bool", "false", false, ""},
		{"a:bool", "TRUE", nil, `parameter a: "TRUE" is not true or false`},
		{"a:int32", "-2147483648", int64(-2147483648), ""},
		{"a:int32", "2147483647", int64(2147483647), ""},
		{"a:int32", "2147483648", nil, `parameter a: "2147483648" is not a whole number of 32 bits`},
		{"a:int64", "-9223372036854775808", int64(-9223372036854775808), ""},
		{"a:int64", "9223372036854775808", nil, `parameter a: "9223372036854775808" is not a whole number of 64 bits`},
		{"a:float64", "1e300", 1e300, ""},
		{"a:float64", "one", nil, `parameter a: "one" is not a number`},
		{"a:timestamp", "2026-01-02T03:04:05Z", at, ""},
		{"a:timestamp", "2026-01-02T04:04:05+01:00", at, ""},
		{"a:timestamp", "2026-01-02T03:04:05.000000001", at.Add(1), ""},
		{"a:timestamp", "2026-01-02 03:04:05-01:00", at.Add(time.Hour), ""},
		{"a:timestamp", "2026-01-02 03:04:05.5", at.Add(time.Second / 2), ""},
		{"a:timestamp", "2026-01-02", at.Truncate(24 * time.Hour), ""},
		{"a:timestamp", "yesterday", nil, `parameter a: "yesterday" is not a time such as 2026-01-02T03:04:05Z`},
		{"a:timestamp_ns", "2026-01-02T03:04:05.000000001Z", eventstore.TimestampNS(at.UnixNano() + 1), ""},
		{"a:timestamp_ns", "2262-04-11T23:47:16.854775807Z", eventstore.TimestampNS(1<<63 - 1), ""},
		{"a:timestamp_ns", "2262-04-11T23:47:16.854775808Z", nil, `parameter a: "2262-04-11T23:47:16.854775808Z" is not between the years 1677 and 2262, as a timestamp_ns must be`},
		{"a:bytes", "AAE=", []byte{0, 1}, ""},
		{"a:bytes", "AAE", nil, `parameter a: "AAE" is not base64`},
		{"a:", "x", "x", ""},
		{"7", "x", "x", ""},
		{"", "x", nil, "a parameter has no name"},
		{":int64", "1", nil, "a parameter has no name"},
		{"a:text", "x", nil, `parameter a: unknown type "text"`},
	} {
		p, err := ParseParam(test.name, test.text)
		if err != nil || test.err != "" {
			if err == nil || withoutTypes(err) != test.err {
				t.Errorf("%s=%s: %v, want %q", test.name, test.text, err, test.err)
			}
			continue
		}
		if name, _, _ := strings.Cut(test.name, ":"); p.Name != name || !reflect.DeepEqual(p.Value, test.want) {
			t.Errorf("%s=%s is %s %#v, want %#v", test.name, test.text, p.Name, p.Value, test.want)
		}
	}
}

func TestDecodeParams(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", " null ": "[]", "[]": "[]", "{}": "[]",
		`[1]`: "[{ 1}]", ` [1, "x", null, true, 1.5, 1e2]`: "[{ 1} { x} { <nil>} { true} { 1.5} { 100}]",
		`{"a": -9223372036854775808}`:               "[{a -9223372036854775808}]",
		`{"a": {"type": "bytes", "value": "AAE="}}`: "[{a [0 1]}]",
		`7`:                                    "params are neither an array nor an object",
		`"x"`:                                  "params are neither an array nor an object",
		`[[1]]`:                                "parameter 1: a list is not a value",
		`[1, {"type": "int64"}]`:               `parameter 2: an object must be {"type": "…", "value": "…"}, with the value as text`,
		`{"a": {"type": "int64", "value": 1}}`: `parameter a: an object must be {"type": "…", "value": "…"}, with the value as text`,
		`{"a": {"type": 1, "value": "1"}}`:     `parameter a: an object must be {"type": "…", "value": "…"}, with the value as text`,
		`{"a": {"type": "x", "value": "1", "b": ""}}`: `parameter a: an object must be {"type": "…", "value": "…"}, with the value as text`,
		`{"a": {"type": "int32", "value": "x"}}`:      `parameter a: "x" is not a whole number of 32 bits`,
		`[1e999]`:                                     `parameter 1: "1e999" is not a number`,
	} {
		params, err := DecodeParams(json.RawMessage(text))
		got := fmt.Sprint(params)
		if err != nil {
			got = withoutTypes(err)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestReadStatement parses requests with settings in the URL, the headers and the body, and
// checks their precedence.
func TestReadStatement(t *testing.T) {
	for _, test := range []struct {
		address, contentType, accept, body string
		want                               eventstore.Statement
		err                                string
	}{
		{"/", "", "", "SELECT 1", eventstore.Statement{SQL: "SELECT 1", Format: eventstore.FormatJSON}, ""},
		{"/?rows=1&time=1ms&memory=1MiB&format=csv", "", "", "", eventstore.Statement{Format: eventstore.FormatCSV, Limits: eventstore.Limits{Rows: 1, Time: time.Millisecond, Memory: 1 << 20}}, ""},
		{"/", "", "text/html, text/csv", "", eventstore.Statement{Format: eventstore.FormatCSV}, ""},
		{"/?format=json", "", "text/csv", "", eventstore.Statement{Format: eventstore.FormatJSON}, ""},
		{"/", "application/json; charset=utf-8", "", `{"sql": "a", "format": "csv", "rows": 7, "time": "2s", "memory": "2MiB"}`,
			eventstore.Statement{SQL: "a", Format: eventstore.FormatCSV, Limits: eventstore.Limits{Rows: 7, Time: 2 * time.Second, Memory: 2 << 20}}, ""},
		{"/?rows=9", "application/json", "", `{"sql": "a", "rows": 7}`, eventstore.Statement{SQL: "a", Format: eventstore.FormatJSON, Limits: eventstore.Limits{Rows: 9}}, ""},
		{"/", "text/plain", "", `{"sql": "a"}`, eventstore.Statement{SQL: `{"sql": "a"}`, Format: eventstore.FormatJSON}, ""},
		{"/?rows=0", "", "", "", eventstore.Statement{}, `invalid rows "0": use a whole number above 0`},
		{"/?rows=x", "", "", "", eventstore.Statement{}, `invalid rows "x": use a whole number above 0`},
		{"/?time=0s", "", "", "", eventstore.Statement{}, `invalid time "0s": use a duration such as 10s`},
		{"/?time=10", "", "", "", eventstore.Statement{}, `invalid time "10": use a duration such as 10s`},
		{"/?memory=lots", "", "", "", eventstore.Statement{}, `memory: `},
		{"/?format=xml", "", "", "", eventstore.Statement{}, `unknown format "xml"`},
		{"/?param=1", "", "", "", eventstore.Statement{}, `unknown setting "param"`},
		{"/", "application/json", "", `{"rows": -1}`, eventstore.Statement{}, `invalid rows "-1": use a whole number above 0`},
		{"/", "application/json", "", `{"params": 1}`, eventstore.Statement{}, "params are neither"},
		{"/", "application/json", "", `{} {}`, eventstore.Statement{}, "the body has more than one JSON object"},
		{"/", "application/json", "", `SELECT 1`, eventstore.Statement{}, "the body is not the JSON of a request"},
		{"/", "", "", strings.Repeat("x", bodyMax+1), eventstore.Statement{}, "read the SQL: http: request body too large"},
	} {
		req := httptest.NewRequest("POST", test.address, strings.NewReader(test.body))
		req.RemoteAddr = "1.2.3.4:5"
		req.Header.Set("Content-Type", test.contentType)
		req.Header.Set("Accept", test.accept)
		got, err := readStatement(httptest.NewRecorder(), req)
		if err != nil || test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) || test.err == "" {
				t.Errorf("%s %.40s: %v, want %q", test.address, test.body, err, test.err)
			}
			continue
		}
		test.want.Client = "1.2.3.4:5"
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %s: %+v, want %+v", test.address, test.body, got, test.want)
		}
	}
	if q, err := readStatement(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", bodyMax)))); err != nil || len(q.SQL) != bodyMax {
		t.Errorf("the longest body: %v", err)
	}
	for address, want := range map[string]string{"": "socket", "@": "socket", "[::1]:9": "[::1]:9"} {
		if got := ClientOf(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("a client at %q is %q", address, got)
		}
	}
}

func TestCheckLimits(t *testing.T) {
	for _, test := range []struct {
		asked, limits eventstore.Limits
		allowed       bool
	}{
		{eventstore.Limits{}, eventstore.Limits{}, true},
		{eventstore.Limits{Rows: 1 << 60, Time: time.Hour}, eventstore.Limits{}, true},
		{eventstore.Limits{Rows: 5, Time: time.Minute}, eventstore.Limits{Rows: 5, Time: time.Minute}, true},
		{eventstore.Limits{Rows: 6}, eventstore.Limits{Rows: 5}, false},
		{eventstore.Limits{Time: time.Minute + 1}, eventstore.Limits{Time: time.Minute}, false},
		{eventstore.Limits{}, eventstore.Limits{Rows: 1, Time: 1}, true},
	} {
		if err := checkLimits(test.asked, test.limits); (err == nil) != test.allowed {
			t.Errorf("%+v of %+v: %v", test.asked, test.limits, err)
		}
	}
}
