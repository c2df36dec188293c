package resp

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestPieces reads replies that arrive in pieces.
func TestPieces(t *testing.T) {
	large := strings.Repeat("0123456789", replyBufferBytes/8)
	text := "*3\r\n:-7\r\n$5\r\na\r\nb\n\r\n$-1\r\n$0\r\n\r\n$" + "327680\r\n" + large[:327680] + "\r\n+end\r\n"
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
		"with the error": iotest.DataErrReader,
	} {
		c := Conn{in: replyBuffer{from: cut(strings.NewReader(text)), data: make([]byte, replyBufferBytes)}}
		v, err := c.ReadReply()
		all, _ := v.([]any)
		if err != nil || len(all) != 3 || all[0] != int64(-7) || all[1] != "a\r\nb\n" || all[2] != nil {
			t.Fatalf("%s: the array is %v, %v", name, v, err)
		}
		if n, err := c.ReadLength('$'); n != 0 || err != nil {
			t.Fatalf("%s: the size is %d, %v", name, n, err)
		}
		if got, err := c.AppendBody([]byte("before"), 0); string(got) != "before" || err != nil {
			t.Fatalf("%s: the empty string is %q, %v", name, got, err)
		}
		n, err := c.ReadLength('$')
		got, err2 := c.AppendBody(nil, n)
		if err != nil || err2 != nil || !bytes.Equal(got, []byte(large[:327680])) {
			t.Fatalf("%s: the large string has %d bytes, %v, %v", name, len(got), err, err2)
		}
		if line, err := c.ReadHeader('+'); string(line) != "end" || err != nil {
			t.Fatalf("%s: the end is %q, %v", name, line, err)
		}
		if _, err := c.ReadHeader('+'); err == nil {
			t.Fatalf("%s: there is more", name)
		}
	}
}
