package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/internal/testserver"
)

var (
	shared    testserver.SharedMariaDB
	encrypted sync.Once
	folder    string // of its certificate
)

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	os.RemoveAll(folder)
	os.Exit(code)
}

// server returns the shared server, which offers TLS.
func server(t *testing.T) *testserver.MariaDBServer {
	encrypted.Do(func() {
		var err error
		if folder, err = os.MkdirTemp("", "wire"); err != nil {
			t.Fatal(err)
		}
		certificate, key := testserver.WriteCertificate(t, folder)
		shared.Flags = []string{"--ssl-cert=" + certificate, "--ssl-key=" + key}
	})
	return shared.Server(t)
}

// A link is a way to connect.
type link struct {
	name            string
	tls, compressed bool
}

var links = []link{{"plain", false, false}, {"TLS", true, false}, {"compressed", false, true}, {"TLS, compressed", true, true}}

// overEach runs a test over each kind of connection, with a database that has an
// empty table t (n INT, s VARCHAR(10)).
func overEach(t *testing.T, test func(t *testing.T, conn *sql.Conn, c *Conn)) {
	for _, link := range links {
		t.Run(link.name, func(t *testing.T) {
			conn, c := connect(t, link, func(*mysql.Config) {})
			if !c.SupportsBulk() || c.Encrypted() != link.tls || c.Compressed() != link.compressed {
				t.Fatalf("arrays %v, TLS %v, compression %v", c.SupportsBulk(), c.Encrypted(), c.Compressed())
			}
			test(t, conn, c)
		})
	}
}

func connect(t *testing.T, link link, change func(*mysql.Config)) (*sql.Conn, *Conn) {
	t.Helper()
	maria := server(t)
	config, err := mysql.ParseDSN(maria.DSN(maria.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	config.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES'"}
	if link.tls {
		config.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	change(config)
	connector, err := NewConnector(config, link.compressed)
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

func plain(t *testing.T) (*sql.Conn, *Conn) {
	t.Helper()
	return connect(t, links[0], func(*mysql.Config) {})
}

var rowKinds = []Kind{Int32, Text}

func prepareBulk(t *testing.T, c *Conn) Statement {
	t.Helper()
	s, err := c.PrepareRaw(t.Context(), "INSERT INTO t VALUES (?, ?)", rowKinds, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appendRow(b []byte, n int32, text string) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, ValueFollows), uint32(n))
	return append(AppendLength(append(b, ValueFollows), len(text)), text...)
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

// TestTurns lets the driver and statements of this package take turns on one
// connection, with errors on both sides.
func TestTurns(t *testing.T) { overEach(t, takeTurns) }

func takeTurns(t *testing.T, conn *sql.Conn, c *Conn) {
	s := prepareBulk(t, c)
	var packet []byte
	for round := range 3 {
		packet = s.BeginBulk(packet[:0])
		for n := range int32(1000) {
			packet = appendRow(packet, n, "row")
		}
		packet = append(packet, ValueIsNull, ValueIsNull)
		if err := c.ExecuteRaw(t.Context(), packet); err != nil {
			t.Fatal(err)
		}
		if got, want := sum(t, conn), fmt.Sprint((round+1)*1001, " ", (round+1)*499500); got != want {
			t.Fatalf("there are %s, want %s", got, want)
		}
		refused := appendRow(appendRow(s.BeginBulk(nil), 1, "good"), 2, "more than ten")
		err := c.ExecuteRaw(t.Context(), refused)
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1406 || string(e.SQLState[:]) != "22001" || !strings.Contains(e.Message, "'s'") {
			t.Fatalf("a text that is too long: %v", err)
		}
		if got, want := sum(t, conn), fmt.Sprint((round+1)*1001, " ", (round+1)*499500); got != want {
			t.Fatalf("after a rejected statement there are %s, want %s", got, want)
		}
		if _, err := c.PrepareRaw(t.Context(), "INSERT INTO nowhere VALUES (?)", []Kind{Int32}, 1); !strings.Contains(fmt.Sprint(err), "1146") {
			t.Fatalf("an absent table: %v", err)
		}
	}
}

// TestRows executes statements of several rows, with nulls across the bytes of
// their bitmap.
func TestRows(t *testing.T) {
	overEach(t, func(t *testing.T, conn *sql.Conn, c *Conn) {
		const rows = 21
		s, err := c.PrepareRaw(t.Context(), "INSERT INTO t VALUES "+strings.Repeat("(?,?),", rows-1)+"(?,?)", rowKinds, rows)
		if err != nil {
			t.Fatal(err)
		}
		packet := s.BeginRows(nil, func(row, column int) bool { return column == 1 && row%3 == 0 || column == 0 && row == 20 })
		want := 0
		for row := range rows {
			if row != 20 {
				packet = binary.LittleEndian.AppendUint32(packet, uint32(row))
				want += row
			}
			if row%3 != 0 {
				packet = append(AppendLength(packet, 3), "row"...)
			}
		}
		if err := c.ExecuteRaw(t.Context(), packet); err != nil {
			t.Fatal(err)
		}
		if got := sum(t, conn); got != fmt.Sprint(rows, " ", want) {
			t.Errorf("there are %s, want %d and %d", got, rows, want)
		}
		var nulls int
		if err := conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t WHERE s IS NULL AND n % 3 = 0").Scan(&nulls); err != nil || nulls != 7 {
			t.Errorf("%d texts are null, %v", nulls, err)
		}
	})
}

// TestManyPackets sends more than the buffers between the two hold, through
// statements of both sides, and reads a long reply.
func TestManyPackets(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses tens of megabytes")
	}
	overEach(t, sendMany)
}

func sendMany(t *testing.T, conn *sql.Conn, c *Conn) {
	packet := prepareBulk(t, c).BeginBulk(nil)
	const rows = 800_000
	for range rows {
		packet = appendRow(packet, 1, "0123456789")
	}
	if len(packet) < 12<<20 {
		t.Fatalf("only %d bytes", len(packet))
	}
	if err := c.ExecuteRaw(t.Context(), packet); err != nil {
		t.Fatal(err)
	}
	if got, want := sum(t, conn), fmt.Sprint(rows, " ", rows); got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	if err := c.ExecuteRaw(t.Context(), make([]byte, MaxPacket+header+1)); err == nil {
		t.Error("a packet was sent that no header can announce")
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 8<<20) // which does not get smaller
	for i := range text {
		text[i] = byte('!' + random.IntN(90))
	}
	var back string
	if err := conn.QueryRowContext(t.Context(), "SELECT '"+strings.NewReplacer("'", "-", `\`, "-").Replace(string(text))+"'").Scan(&back); err != nil {
		t.Fatal(err)
	}
	if len(back) != len(text) {
		t.Errorf("%d bytes came back of %d", len(back), len(text))
	}
}

// TestColumnsAreSkipped prepares over a connection whose lists have an end of
// their own, as clients of old have them.
func TestColumnsAreSkipped(t *testing.T) {
	for _, ends := range []bool{false, true} {
		reply := preparedReply(2, ends)
		c := replying(reply)
		c.transport.separateEOF = ends
		if id, err := c.readPrepared(2); err != nil || id != 7 || c.replies.Buffered() != 0 {
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
	return &Conn{transport: &transport{}, replies: bufio.NewReader(bytes.NewReader(reply))}
}

// TestCancelled gives up a statement that waits for a lock. The connection is of
// no use then, and says so.
func TestCancelled(t *testing.T) {
	conn, c := plain(t)
	s := prepareBulk(t, c)
	var database string
	if err := conn.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", server(t).DSN(database))
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
	if err := c.ExecuteRaw(ctx, appendRow(s.BeginBulk(nil), 1, "row")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("giving up returned %v", err)
	}
}

// TestHungUp sends to a server that has ended the connection.
func TestHungUp(t *testing.T) {
	conn, c := plain(t)
	s := prepareBulk(t, c)
	if _, err := conn.ExecContext(t.Context(), "KILL CONNECTION_ID()"); err == nil {
		t.Fatal("the connection is still there")
	}
	err := c.ExecuteRaw(t.Context(), appendRow(s.BeginBulk(nil), 1, "row"))
	if _, said := errors.AsType[*mysql.MySQLError](err); err == nil || said {
		t.Errorf("sending into nothing returned %v", err)
	}
}

// TestTLSIsRequired connects to servers without TLS and with an unknown certificate.
func TestTLSIsRequired(t *testing.T) {
	bare := testserver.MariaDB(t)
	open := func(address string, change func(*mysql.Config)) error {
		config := mysql.NewConfig()
		config.User, config.Net, config.Addr, config.Logger = "root", "tcp", address, &mysql.NopLogger{}
		config.TLS = &tls.Config{ServerName: "127.0.0.1"}
		change(config)
		connector, err := NewConnector(config, false)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		return db.PingContext(t.Context())
	}
	if err := open(bare.Address(), func(*mysql.Config) {}); !errors.Is(err, mysql.ErrNoTLS) {
		t.Errorf("a server without TLS: %v", err)
	}
	if err := open(bare.Address(), func(c *mysql.Config) { c.AllowFallbackToPlaintext = true }); err != nil {
		t.Errorf("a server without TLS, where it is optional: %v", err)
	}
	err := open(server(t).Address(), func(*mysql.Config) {})
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// TestWrongPassword returns the server's words, also over TLS.
func TestWrongPassword(t *testing.T) {
	for _, link := range links {
		config := mysql.NewConfig()
		config.User, config.Passwd, config.Net, config.Addr = "nobody", "wrong", "tcp", server(t).Address()
		if link.tls {
			config.TLS = &tls.Config{InsecureSkipVerify: true}
		}
		connector, err := NewConnector(config, link.compressed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connector.Connect(t.Context()); !strings.Contains(fmt.Sprint(err), "1045") {
			t.Errorf("%s: connecting returned %v", link.name, err)
		}
	}
}

// TestAuthentication signs in by plugins that exchange several packets.
func TestAuthentication(t *testing.T) {
	conn, _ := plain(t)
	for _, statement := range []string{
		"INSTALL SONAME 'auth_ed25519'", "CREATE OR REPLACE USER curve@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
		"CREATE OR REPLACE USER native@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO curve@'%', native@'%'",
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, link := range links {
		for _, user := range []string{"curve", "native"} {
			_, c := connect(t, link, func(c *mysql.Config) { c.User, c.Passwd = user, "secret" })
			if err := c.ExecuteRaw(t.Context(), appendRow(prepareBulk(t, c).BeginBulk(nil), 1, "row")); err != nil {
				t.Errorf("%s over %s: %v", user, link.name, err)
			}
		}
	}
}

// TestPasswordInTheClear plays a server of MySQL that asks for the password itself,
// which the driver sends once the connection is encrypted.
func TestPasswordInTheClear(t *testing.T) {
	certificate, key := testserver.WriteCertificate(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		greets string
		asks   []byte // after the handshake response
	}{
		{"caching_sha2_password", []byte{1, 4}},
		{"sha256_password", []byte("\xfesha256_password\x0012345678901234567890\x00")},
	} {
		if got := answerOf(t, pair, test.greets, "pass", test.asks); got != "pass\x00" {
			t.Errorf("%s: the server was told %q", test.greets, got)
		}
	}
}

// TestNonceEndsInZero plays a MariaDB that asks for a signature of a nonce whose last
// byte is what the driver takes for a terminator. The password is as long as a seed of
// RFC 8032, so that the signature is the one of any implementation.
func TestNonceEndsInZero(t *testing.T) {
	certificate, key := testserver.WriteCertificate(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	password := "a password that is 32 bytes long"
	public := ed25519.NewKeyFromSeed([]byte(password)).Public().(ed25519.PublicKey)
	for _, end := range []string{"1", "\x00", "\x00\x00"} {
		nonce := "a nonce of 32 bytes, by a server"[:32-len(end)] + end
		got := answerOf(t, pair, "mysql_native_password", password, []byte("\xfeclient_ed25519\x00"+nonce))
		if !ed25519.Verify(public, []byte(nonce), []byte(got)) {
			t.Errorf("a nonce that ends in %q: got %q, which is not its signature", end, got)
		}
	}
}

// answerOf connects to a server that asks for one thing after the handshake response,
// and returns the answer.
func answerOf(t *testing.T, pair tls.Certificate, greets, password string, asks []byte) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	said := make(chan string, 1)
	go func() { said <- askForPassword(listener, pair, greets, asks) }()
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr = "root", password, "tcp", listener.Addr().String()
	config.TLS, config.MaxAllowedPacket = &tls.Config{InsecureSkipVerify: true}, 1<<20
	connector, err := NewConnector(config, false)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connector.Connect(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", greets, err)
	}
	defer conn.Close()
	return <-said
}

func askForPassword(listener net.Listener, pair tls.Certificate, greets string, asks []byte) string {
	raw, err := listener.Accept()
	if err != nil {
		return err.Error()
	}
	_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
	hello := greeting()
	hello = append(hello[:len(hello)-len("mysql_native_password\x00")], greets+"\x00"...)
	hello[0] = byte(len(hello) - header)
	hello[4+1+23+13] = 0xff // MySQL
	hello[4+1+23+14] |= byte(capTLS >> 8)
	if _, err := raw.Write(hello); err != nil {
		return err.Error()
	}
	read := func(from net.Conn) []byte {
		head := make([]byte, header)
		_, _ = io.ReadFull(from, head)
		body := make([]byte, packetSize(head))
		_, _ = io.ReadFull(from, body)
		return append(head, body...)
	}
	read(raw)
	conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}})
	number := read(conn)[3] // the handshake response
	_, _ = conn.Write(append([]byte{byte(len(asks)), 0, 0, number + 1}, asks...))
	password := read(conn)
	if len(password) == header {
		_ = raw.Close() // the client went another way, and would wait
	}
	_, _ = conn.Write([]byte{7, 0, 0, password[3] + 1, 0, 0, 0, 2, 0, 0, 0})
	return string(password[header:])
}

// TestUnixSocket connects through a socket of the file system.
func TestUnixSocket(t *testing.T) {
	conn, _ := plain(t)
	var path, data string
	if err := conn.QueryRowContext(t.Context(), "SELECT @@socket, @@datadir").Scan(&path, &data); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(path, "/") {
		path = data + path
	}
	for _, link := range links {
		conn, c := connect(t, link, func(c *mysql.Config) { c.Net, c.Addr = "unix", path })
		if err := c.ExecuteRaw(t.Context(), appendRow(prepareBulk(t, c).BeginBulk(nil), 1, "row")); err != nil {
			t.Fatal(err)
		}
		if got := sum(t, conn); got != "1 1" {
			t.Errorf("%s: there are %s", link.name, got)
		}
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
	const low, own = 4 + 1 + 23 + greetingLow, 4 + 1 + 23 + greetingMariaDB
	tests := []struct {
		name     string
		greeting []byte
		bulk     bool
	}{
		{"MariaDB", greeting(), true},
		{"with more behind it", append(greeting(), 0, 0), true},
		{"MySQL", change(low, 0xff), false},
		{"an old MariaDB", change(own, 0x1b), false},
		{"another protocol", change(4, 9), false},
		{"an error", []byte("\x17\x00\x00\x00\xff\x10\x04Too many connections"), false},
		{"nothing", make([]byte, header), false},
	}
	for n := range len(greeting()) - 22 - 13 - header { // what is cut before the scramble
		tests = append(tests, struct {
			name     string
			greeting []byte
			bulk     bool
		}{fmt.Sprintf("the first %d bytes", n), greeting()[:header+n], false})
	}
	for _, test := range tests {
		if got := parseGreeting(test.greeting[header:])&capBulk != 0; got != test.bulk {
			t.Errorf("%s: offers arrays: %v", test.name, got)
		}
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
		parseGreeting(said)
		hidePlugin(said)
		c := replying(said)
		c.transport.separateEOF = ends
		if _, err := c.readPrepared(parameters); err == nil && len(said) < header+12 {
			t.Errorf("%x was taken for a prepared statement", said)
		}
		c = replying(said)
		if _, err := c.readOK(1); err == nil && said[header] != 0 {
			t.Errorf("%x was taken for a success", said)
		}
		_, _ = io.Copy(io.Discard, newCompressor(&pipe{Buffer: *bytes.NewBuffer(said)}))
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

// TestGreetingInPieces reads a greeting byte by byte, and one that is too long.
func TestGreetingInPieces(t *testing.T) {
	p := &pipe{}
	tr := &transport{Conn: p, stream: struct {
		io.Reader
		io.Writer
	}{iotest.OneByteReader(p), p}}
	p.Buffer.Write(greeting())
	var got []byte
	for b := make([]byte, 1); len(got) < len(greeting()); {
		n, err := tr.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[:n]...)
	}
	if !bytes.Equal(got, greeting()) || tr.offered&capBulk == 0 {
		t.Errorf("read %q", got)
	}
	p.Buffer.Write([]byte{0, 0, 2, 0})
	if _, err := tr.Read(make([]byte, 100)); !errors.Is(err, errReply) {
		t.Errorf("a greeting of 128 KiB: %v", err)
	}
}

// TestCompressor sends packets of all sizes through a compressor and back.
func TestCompressor(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses tens of megabytes")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{header, minCompressed, 1 << 16, maxCompressed - 1, maxCompressed, maxCompressed + 1, maxCompressed + minCompressed} {
		for _, noise := range []bool{false, true} {
			packet := make([]byte, size)
			for i := range packet[header:] {
				if packet[header+i] = byte(i >> 8); noise {
					packet[header+i] = byte(random.Uint32())
				}
			}
			p := &pipe{}
			c := newCompressor(p)
			if n, err := c.Write(packet); n != size || err != nil {
				t.Fatal(n, err)
			}
			if sent := p.Len(); !noise && size > 1000 && sent > size/10 || sent > size+2*compressedHeader {
				t.Errorf("%d bytes became %d", size, sent)
			}
			back := make([]byte, size)
			if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, packet) {
				t.Fatalf("%d bytes, noise %v: %v", size, noise, err)
			}
		}
	}
}
