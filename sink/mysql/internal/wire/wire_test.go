package wire

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/internal/testserver"
)

var shared = testserver.SharedMariaDB{}

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	os.Exit(code)
}

// connect makes a connection to a database with an empty table t (n INT, s VARCHAR(10)).
func connect(t *testing.T, change func(*mysql.Config)) (*sql.Conn, *Conn) {
	t.Helper()
	server := shared.Server(t)
	config, err := mysql.ParseDSN(server.DSN(server.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	config.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES'"}
	change(config)
	connector, err := NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "CREATE OR REPLACE TABLE t (n INT, s VARCHAR(10)) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
	var c *Conn
	_ = conn.Raw(func(raw any) error {
		c = raw.(*Conn)
		return nil
	})
	return conn, c
}

func prepare(t *testing.T, c *Conn) Statement {
	t.Helper()
	s, err := c.PrepareArrays(t.Context(), "INSERT INTO t VALUES (?, ?)", []Kind{Int32, Text})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appendRow(b []byte, n int32, text string) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, Given), uint32(n))
	return append(AppendLength(append(b, Given), len(text)), text...)
}

// sum is how many rows there are, and what their numbers add up to. The driver asks.
func sum(t *testing.T, conn *sql.Conn) string {
	t.Helper()
	var rows, all int
	if err := conn.QueryRowContext(t.Context(), "SELECT COUNT(*), COALESCE(SUM(n), 0) FROM t").Scan(&rows, &all); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(rows, " ", all)
}

// TestTurns lets the driver and a statement with arrays take turns on one
// connection, with errors on both sides.
func TestTurns(t *testing.T) {
	conn, c := connect(t, func(*mysql.Config) {})
	if !c.TakesArrays() {
		t.Fatal("MariaDB takes no arrays")
	}
	s := prepare(t, c)
	var packet []byte
	for round := range 3 {
		packet = s.Begin(packet[:0])
		for n := range int32(1000) {
			packet = appendRow(packet, n, "row")
		}
		packet = append(packet, Null, Null)
		if err := c.ExecuteArrays(t.Context(), packet); err != nil {
			t.Fatal(err)
		}
		if got, want := sum(t, conn), fmt.Sprint((round+1)*1001, " ", (round+1)*499500); got != want {
			t.Fatalf("there are %s, want %s", got, want)
		}
		refused := appendRow(appendRow(s.Begin(nil), 1, "good"), 2, "more than ten")
		err := c.ExecuteArrays(t.Context(), refused)
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1406 || string(e.SQLState[:]) != "22001" || !strings.Contains(e.Message, "'s'") {
			t.Fatalf("a text that is too long: %v", err)
		}
		if got, want := sum(t, conn), fmt.Sprint((round+1)*1001, " ", (round+1)*499500); got != want {
			t.Fatalf("after what was refused there are %s, want %s", got, want)
		}
		if _, err := c.PrepareArrays(t.Context(), "INSERT INTO nowhere VALUES (?)", []Kind{Int32}); !strings.Contains(fmt.Sprint(err), "1146") {
			t.Fatalf("a table that is not there: %v", err)
		}
	}
}

// TestManyPackets sends more than the buffers between the two take at once.
func TestManyPackets(t *testing.T) {
	conn, c := connect(t, func(*mysql.Config) {})
	packet := prepare(t, c).Begin(nil)
	const rows = 800_000
	for range rows {
		packet = appendRow(packet, 1, "0123456789")
	}
	if len(packet) < 12<<20 {
		t.Fatalf("only %d bytes", len(packet))
	}
	if err := c.ExecuteArrays(t.Context(), packet); err != nil {
		t.Fatal(err)
	}
	if got, want := sum(t, conn), fmt.Sprint(rows, " ", rows); got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	if err := c.ExecuteArrays(t.Context(), make([]byte, LongestPacket+header+1)); err == nil {
		t.Error("a packet was sent that no header can announce")
	}
}

// TestColumnsAreSkipped prepares over a connection whose lists have an end of
// their own, as clients of old have them.
func TestColumnsAreSkipped(t *testing.T) {
	for _, ends := range []bool{false, true} {
		reply := preparedReply(2, ends)
		c := replying(reply)
		c.wire.ends = ends
		if id, err := c.prepared(2); err != nil || id != 7 || c.replies.Buffered() != 0 {
			t.Errorf("ends %v: %d, %v, %d bytes are left", ends, id, err, c.replies.Buffered())
		}
	}
}

// preparedReply is the answer that statement 7 has so many parameters.
func preparedReply(parameters int, ends bool) []byte {
	reply := []byte{12, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0, byte(parameters), 0, 0, 0, 0}
	for i := range parameters {
		reply = append(reply, 3, 0, 0, byte(2+i), 3, 'd', 'e')
	}
	if ends {
		reply = append(reply, 5, 0, 0, byte(2+parameters), 0xfe, 0, 0, 2, 0)
	}
	return reply
}

func replying(reply []byte) *Conn {
	return &Conn{wire: &wire{}, replies: bufio.NewReader(bytes.NewReader(reply))}
}

// TestCancelled gives up a statement that waits for a lock. The connection is of
// no use then, and says so.
func TestCancelled(t *testing.T) {
	conn, c := connect(t, func(*mysql.Config) {})
	s := prepare(t, c)
	var database string
	if err := conn.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", shared.Server(t).DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "LOCK TABLES t WRITE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.ExecuteArrays(ctx, appendRow(s.Begin(nil), 1, "row")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("giving up returned %v", err)
	}
}

// TestHungUp sends to a server that has ended the connection.
func TestHungUp(t *testing.T) {
	conn, c := connect(t, func(*mysql.Config) {})
	s := prepare(t, c)
	if _, err := conn.ExecContext(t.Context(), "KILL CONNECTION_ID()"); err == nil {
		t.Fatal("the connection is still there")
	}
	err := c.ExecuteArrays(t.Context(), appendRow(s.Begin(nil), 1, "row"))
	if _, said := errors.AsType[*mysql.MySQLError](err); err == nil || said {
		t.Errorf("sending into nothing returned %v", err)
	}
}

// TestInTheOpen uses connections of which only the driver knows what is sent.
func TestInTheOpen(t *testing.T) {
	_, compressed := connect(t, func(c *mysql.Config) {
		if err := c.Apply(mysql.EnableCompression(true)); err != nil {
			t.Fatal(err)
		}
	})
	if compressed.TakesArrays() {
		t.Error("a compressed connection takes arrays")
	}
	if err := compressed.ExecuteArrays(t.Context(), make([]byte, 20)); err == nil {
		t.Error("they were sent all the same")
	}
}

// TestUnixSocket speaks through a socket of the file system.
func TestUnixSocket(t *testing.T) {
	conn, _ := connect(t, func(*mysql.Config) {})
	var path, data string
	if err := conn.QueryRowContext(t.Context(), "SELECT @@socket, @@datadir").Scan(&path, &data); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(path, "/") {
		path = data + path
	}
	conn, c := connect(t, func(c *mysql.Config) { c.Net, c.Addr = "unix", path })
	if err := c.ExecuteArrays(t.Context(), appendRow(prepare(t, c).Begin(nil), 1, "row")); err != nil {
		t.Fatal(err)
	}
	if got := sum(t, conn); got != "1 1" {
		t.Errorf("there are %s", got)
	}
}

// greeting is one of a MariaDB that takes arrays.
func greeting() []byte {
	body := append([]byte{10}, "5.5.5-10.11.19-MariaDB\x00"...)
	body = append(body, 1, 0, 0, 0)
	body = append(body, "scramble\x00"...)
	body = append(body, 0xfe, 0xff, 45, 2, 0, 0xff, 0x81, 21)
	body = append(body, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0)
	body = append(body, "another part\x00mysql_native_password\x00"...)
	return append([]byte{byte(len(body)), 0, 0, 0}, body...)
}

func TestGreetings(t *testing.T) {
	change := func(at int, to byte) []byte {
		b := greeting()
		b[at] = to
		return b
	}
	const abilities, ours = 4 + 1 + 23 + 13, 4 + 1 + 23 + 27
	tests := []struct {
		name     string
		greeting []byte
		offers   bool
	}{
		{"MariaDB", greeting(), true},
		{"with more behind it", append(greeting(), 0, 0), true},
		{"MySQL", change(abilities, 0xff), false},
		{"an old MariaDB", change(ours, 0x1b), false},
		{"another protocol", change(4, 9), false},
		{"an error", []byte("\x17\x00\x00\x00\xff\x10\x04Too many connections"), false},
		{"nothing", nil, false},
	}
	for n := range len(greeting()) - 22 - 13 { // what is cut before the abilities end
		tests = append(tests, struct {
			name     string
			greeting []byte
			offers   bool
		}{fmt.Sprintf("the first %d bytes", n), greeting()[:n], false})
	}
	for _, test := range tests {
		if got := offersArrays(test.greeting); got != test.offers {
			t.Errorf("%s: offers arrays: %v", test.name, got)
		}
	}
}

func TestAnswers(t *testing.T) {
	answer := make([]byte, 60)
	for _, test := range []struct {
		name      string
		abilities uint32
		accepts   bool
	}{{"plain", noEnds, true}, {"as MySQL's", isMySQL, false}, {"compressed", compresses, false}, {"encrypted", encrypts, false}} {
		binary.LittleEndian.PutUint32(answer[answerAbilities:], test.abilities)
		before := slices.Clone(answer)
		sent, accepted := acceptArrays(answer)
		if accepted != test.accepts || (sent[answerOurs] == takesArrays) != test.accepts || !bytes.Equal(before, answer) {
			t.Errorf("%s: accepted %v, sent %x", test.name, accepted, sent)
		}
		if hidesEnds(sent) != (test.abilities == noEnds) {
			t.Errorf("%s: lists have no end: %v", test.name, hidesEnds(sent))
		}
	}
	if _, accepted := acceptArrays(answer[:leastAnswer-1]); accepted || hidesEnds(answer[:3]) {
		t.Error("an answer without abilities accepts something")
	}
}

// FuzzServer reads what a server may say, in its greeting and in its answers.
func FuzzServer(f *testing.F) {
	f.Add(greeting(), 2, true)
	f.Add(preparedReply(2, true), 2, true)
	f.Add(preparedReply(2, false), 2, false)
	f.Add([]byte("\x07\x00\x00\x01\x00\x01\x00\x02\x00\x00\x00"), 0, false)
	f.Add([]byte("\x09\x00\x00\x01\xff\x7e\x05#22001x"), 0, false)
	f.Add([]byte("\x03\x00\x00\x01\xff\x7e\x05"), 0, false)
	f.Fuzz(func(t *testing.T, said []byte, parameters int, ends bool) {
		offersArrays(said)
		c := replying(said)
		c.wire.ends = ends
		if _, err := c.prepared(parameters); err == nil && len(said) < header+12 {
			t.Errorf("%x was taken for a prepared statement", said)
		}
		c = replying(said)
		if err := c.done(); err == nil && said[header] != 0 {
			t.Errorf("%x was taken for a success", said)
		}
	})
}

func TestLengths(t *testing.T) {
	for n, want := range map[int]string{
		0: "00", 250: "fa", 251: "fcfb00", 65535: "fcffff", 65536: "fd000001", 1<<24 - 1: "fdffffff", 1 << 24: "fe0000000100000000",
	} {
		if got := fmt.Sprintf("%x", AppendLength(nil, n)); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestCalendar spells times on both sides of midnight, of 1970, and of what fits.
func TestCalendar(t *testing.T) {
	var c Calendar
	random := rand.New(rand.NewPCG(1, 2))
	const first, end = -62135596800 * perSecond, 253402300800 * perSecond
	times := []int64{0, -1, 1, perDay - 1, perDay, -perDay, -perDay - 1, first, end - 1, 951782400 * perSecond, 951868800*perSecond - 1}
	for range 10_000 {
		at := first + random.Int64N(end-first)
		times = append(times, at, at+random.Int64N(perDay))
	}
	for _, micros := range times {
		if micros >= end {
			continue
		}
		u := time.UnixMicro(micros).UTC()
		want := []byte{11, byte(u.Year()), byte(u.Year() >> 8), byte(u.Month()), byte(u.Day()), byte(u.Hour()), byte(u.Minute()), byte(u.Second())}
		want = binary.LittleEndian.AppendUint32(want, uint32(u.Nanosecond()/1000))
		if got := c.AppendDatetime(nil, micros); !bytes.Equal(got, want) {
			t.Fatalf("%v: %x, want %x", u, got, want)
		}
	}
}

// pipe is a connection from which one reads what was written to it.
type pipe struct {
	net.Conn
	bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) { return p.Buffer.Write(b) }
func (p *pipe) Read(b []byte) (int, error)  { return p.Buffer.Read(b) }

// TestGreetingInPieces reads a greeting byte by byte, and one without an end.
func TestGreetingInPieces(t *testing.T) {
	p := &pipe{}
	w := &wire{Conn: p}
	p.Buffer.Write(greeting())
	for b := make([]byte, 1); ; {
		if n, _ := w.Read(b); n == 0 {
			break
		}
	}
	if _, err := w.Write(make([]byte, 60)); err != nil || !w.arrays || w.greeting != nil {
		t.Errorf("arrays are not accepted: %v", err)
	}
	w = &wire{Conn: p}
	p.Buffer.Reset()
	p.Buffer.Write(make([]byte, 3*longestGreeting))
	for b := make([]byte, 100); ; {
		if n, _ := w.Read(b); n == 0 {
			break
		}
	}
	if len(w.greeting) > 2*longestGreeting {
		t.Errorf("%d bytes of a greeting are kept", len(w.greeting))
	}
}
