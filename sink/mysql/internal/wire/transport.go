package wire

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	mysql "github.com/go-sql-driver/mysql"
)

// A transport is the connection to a server that the driver reads and writes.
// Until the server has authenticated the driver, it reads packet by packet and
// changes what the two negotiate:
//
//	server  greeting            what the server offers
//	client  TLS request         sent by the transport, followed by the TLS handshake
//	client  handshake response  with the capabilities that the transport adds
//	both    authentication      up to the server's OK
//
// The TLS request makes all packets after it count one higher than the driver
// knows. After the OK packets pass unchanged, compressed if that was negotiated.
type transport struct {
	net.Conn // to the server; Close and deadlines work on it whatever lies above
	options

	driver  *mysql.Config // of the driver's connection
	stream  io.ReadWriter // Conn, or the layers above it: TLS, compression
	phase   phase
	offered capabilities
	pending []byte // of a packet that the driver has not read to its end
	shift   byte   // by which the server's packet numbers are ahead of the driver's
	failure error  // why the connection could not be made

	encrypted, compressed bool
	bulk                  bool // arrays of parameters were negotiated
	separateEOF           bool // an EOF packet follows a list of columns
}

type phase uint8

const (
	handshake phase = iota // up to the handshake response
	authentication
	established
)

// Capabilities that client and server negotiate, by their bits. MariaDB's own
// are in the upper half.
type capabilities uint64

const (
	capMySQL        capabilities = 1 << 0 // there are none of MariaDB's own
	capCompress     capabilities = 1 << 5
	capTLS          capabilities = 1 << 11
	capDeprecateEOF capabilities = 1 << 24 // no EOF packet follows a list of columns
	capBulk         capabilities = 1 << 34
)

const (
	header           = 4 // bytes before each packet: three of its length, one of its number
	maxGreeting      = 64 << 10
	handshakeTimeout = 10 * time.Second // for a server to complete the TLS handshake
)

// packetSize is the length that a header announces.
func packetSize(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// Read implements net.Conn.
func (t *transport) Read(p []byte) (int, error) {
	if len(t.pending) == 0 && t.phase != established {
		if err := t.readHandshakePacket(); err != nil {
			return 0, t.fail(err)
		}
	}
	if len(t.pending) > 0 {
		n := copy(p, t.pending)
		t.pending = t.pending[n:]
		return n, nil
	}
	return t.stream.Read(p)
}

// Write implements net.Conn. The driver writes each packet at once.
func (t *transport) Write(p []byte) (int, error) {
	switch t.phase {
	case established:
		return t.stream.Write(p)
	case handshake:
		if err := t.respond(p); err != nil {
			return 0, t.fail(err)
		}
		t.phase = authentication
		return len(p), nil
	}
	return t.stream.Write(t.renumber(p, t.shift))
}

// fail keeps the first error, which the driver does not return.
func (t *transport) fail(err error) error {
	if t.failure == nil {
		t.failure = err
	}
	return err
}

// renumber returns a packet whose number is higher by shift.
func (t *transport) renumber(packet []byte, shift byte) []byte {
	if len(packet) < header || shift == 0 {
		return packet
	}
	packet = slices.Clone(packet)
	packet[3] += shift
	return packet
}

// readHandshakePacket reads the next packet for the driver.
func (t *transport) readHandshakePacket() error {
	var head [header]byte
	if _, err := io.ReadFull(t.stream, head[:]); err != nil {
		return err
	}
	size := packetSize(head[:])
	if size > maxGreeting {
		return fmt.Errorf("%w: a packet of %d bytes before the connection is established", errReply, size)
	}
	packet := append(make([]byte, 0, header+size), head[:]...)
	packet = packet[:header+size]
	if _, err := io.ReadFull(t.stream, packet[header:]); err != nil {
		return err
	}
	switch t.phase {
	case handshake:
		t.offered = parseGreeting(packet[header:])
		if t.wantsTLS() {
			hidePlugin(packet[header:])
		}
	case authentication:
		packet[3] -= t.shift
		if size > 0 && packet[header] == replyOK {
			t.phase = established
			if t.compressed {
				t.stream = newCompressor(t.stream)
			}
		}
		packet = keepNonce(packet)
	}
	t.pending = packet
	return nil
}

// keepNonce adds a zero to a request to sign a nonce that ends in one. The driver
// takes a zero at the end for a terminator, which MariaDB does not send here, and
// without this could not sign one nonce of 256.
func keepNonce(packet []byte) []byte {
	const request, nonce = "\xfeclient_ed25519\x00", 32
	body := packet[header:]
	if len(body) != len(request)+nonce || !bytes.HasPrefix(body, []byte(request)) || body[len(body)-1] != 0 {
		return packet
	}
	packet = append(packet, 0)
	putSize(packet, len(packet)-header)
	return packet
}

// Offsets in a greeting after the server's version: thread (4), scramble (8), a
// zero, capabilities (2), character set (1), status (2), capabilities (2), length
// of the scramble (1), reserved (6), MariaDB's capabilities (4), scramble, plugin.
const (
	greetingLow      = 13
	greetingHigh     = 18
	greetingMariaDB  = 27
	greetingScramble = 31
	scrambleRest     = 13
)

// parseGreeting returns what a server offers; nothing if it is not a greeting.
func parseGreeting(body []byte) capabilities {
	rest := afterVersion(body)
	if rest == nil {
		return 0
	}
	c := capabilities(binary.LittleEndian.Uint16(rest[greetingLow:])) |
		capabilities(binary.LittleEndian.Uint16(rest[greetingHigh:]))<<16
	if c&capMySQL == 0 {
		c |= capabilities(binary.LittleEndian.Uint32(rest[greetingMariaDB:])) << 32
	}
	return c
}

// afterVersion returns a greeting from behind the server's version, or nil if it
// is cut short before its scramble.
func afterVersion(body []byte) []byte {
	end := bytes.IndexByte(body, 0)
	if end < 0 || body[0] != 10 || len(body) < end+1+greetingScramble {
		return nil
	}
	return body[end+1:]
}

// hidePlugin takes the name of the authentication plugin out of a greeting if the
// driver's first answer to that plugin depends on whether it uses TLS, which it
// learns with the response. The server then asks for the plugin again.
func hidePlugin(body []byte) {
	if rest := afterVersion(body); len(rest) > greetingScramble+scrambleRest {
		if plugin := rest[greetingScramble+scrambleRest:]; bytes.HasPrefix(plugin, []byte("sha256_password\x00")) {
			plugin[0] = 0
		}
	}
}

func (t *transport) wantsTLS() bool {
	return t.tls != nil && (t.offered&capTLS != 0 || !t.tlsOptional)
}

// Offsets in a handshake response, behind its header.
const (
	responseMariaDB = 4 + 4 + 1 + 19 // capabilities, longest packet, character set, filler
	responseFixed   = responseMariaDB + 4
)

// respond sends the driver's handshake response with what the transport adds to it.
func (t *transport) respond(packet []byte) error {
	if len(packet) < header+responseFixed {
		return fmt.Errorf("a handshake response of %d bytes", len(packet))
	}
	packet = slices.Clone(packet)
	body := packet[header:]
	caps := capabilities(binary.LittleEndian.Uint32(body))
	if caps&capMySQL == 0 {
		t.bulk = t.offered&capBulk != 0
		body[responseMariaDB] |= byte(t.offered & capBulk >> 32)
	}
	t.separateEOF = caps&capDeprecateEOF == 0
	if t.compress && t.offered&capCompress != 0 {
		t.compressed = true
		caps |= capCompress
	}
	if t.wantsTLS() {
		caps |= capTLS
	}
	binary.LittleEndian.PutUint32(body, uint32(caps))
	if caps&capTLS != 0 {
		if err := t.startTLS(packet); err != nil {
			return err
		}
	}
	_, err := t.stream.Write(t.renumber(packet, t.shift))
	return err
}

// startTLS asks for TLS with the beginning of the handshake response.
func (t *transport) startTLS(response []byte) error {
	if t.offered&capTLS == 0 {
		return mysql.ErrNoTLS
	}
	request := slices.Clone(response[:header+responseFixed])
	request[0], request[1], request[2] = responseFixed, 0, 0
	if err := t.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if _, err := t.Conn.Write(request); err != nil {
		return err
	}
	conn := tls.Client(t.Conn, t.tls)
	if err := conn.Handshake(); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	t.stream, t.shift, t.encrypted = conn, 1, true
	if t.driver != nil {
		t.driver.TLS = t.tls // it may send passwords in the clear from here on
	}
	return t.SetDeadline(time.Time{})
}

// SyscallConn implements syscall.Conn, by which the driver finds out whether the
// server has closed the connection.
func (t *transport) SyscallConn() (syscall.RawConn, error) {
	if c, ok := t.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
