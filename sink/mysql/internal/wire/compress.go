package wire

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
)

// A compressor is a stream of packets that are compressed on their way. Around
// one or several packets, or a part of one, the protocol puts
//
//	length (3)  number (1)  length before compression (3)  zlib stream
//
// where a length before compression of zero says that what follows is not
// compressed. Numbers start from zero with each command and count both ways.
type compressor struct {
	conn   io.Writer
	in     *bufio.Reader
	number byte

	plain   bytes.Buffer // read and not yet asked for
	packed  []byte
	inflate io.ReadCloser
	deflate *zlib.Writer
	out     bytes.Buffer
}

const (
	compressedHeader = 7
	maxCompressed    = 1<<24 - 1 // bytes that its lengths can count
	minCompressed    = 150       // fewer are not worth it
	compressionLevel = 2         // as the driver has it: more takes longer than it saves
)

func newCompressor(conn io.ReadWriter) *compressor {
	deflate, err := zlib.NewWriterLevel(nil, compressionLevel)
	if err != nil {
		panic(err) // of the level
	}
	return &compressor{conn: conn, in: bufio.NewReader(conn), deflate: deflate}
}

// Write implements io.Writer, for whole packets.
func (c *compressor) Write(packets []byte) (written int, err error) {
	if len(packets) >= header && packets[3] == 0 {
		c.number = 0
	}
	for len(packets) > 0 {
		part := packets[:min(len(packets), maxCompressed)]
		if err := c.writePart(part); err != nil {
			return written, err
		}
		written += len(part)
		packets = packets[len(part):]
	}
	return written, nil
}

func (c *compressor) writePart(part []byte) error {
	c.out.Reset()
	c.out.Write(make([]byte, compressedHeader))
	before := 0
	if len(part) >= minCompressed {
		c.deflate.Reset(&c.out)
		if _, err := c.deflate.Write(part); err != nil {
			return err
		}
		if err := c.deflate.Close(); err != nil {
			return err
		}
		before = len(part)
	}
	if before == 0 || c.out.Len()-compressedHeader >= len(part) {
		c.out.Truncate(compressedHeader)
		c.out.Write(part)
		before = 0
	}
	packet := c.out.Bytes()
	putSize(packet, len(packet)-compressedHeader)
	packet[3] = c.number
	putSize(packet[4:], before)
	c.number++
	_, err := c.conn.Write(packet)
	return err
}

func putSize(b []byte, n int) { b[0], b[1], b[2] = byte(n), byte(n>>8), byte(n>>16) }

// Read implements io.Reader.
func (c *compressor) Read(p []byte) (int, error) {
	for c.plain.Len() == 0 {
		if err := c.readPart(); err != nil {
			return 0, err
		}
	}
	return c.plain.Read(p)
}

func (c *compressor) readPart() error {
	var head [compressedHeader]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	c.number = head[3] + 1
	length, before := packetSize(head[:]), packetSize(head[4:])
	c.plain.Reset()
	if before == 0 {
		_, err := io.CopyN(&c.plain, c.in, int64(length))
		return err
	}
	if cap(c.packed) < length {
		c.packed = make([]byte, length)
	}
	packed := c.packed[:length]
	if _, err := io.ReadFull(c.in, packed); err != nil {
		return err
	}
	if err := c.inflatePart(packed); err != nil {
		return fmt.Errorf("%w: %w", errReply, err)
	}
	if c.plain.Len() != before {
		return fmt.Errorf("%w: %d bytes decompressed to %d, not to %d", errReply, length, c.plain.Len(), before)
	}
	return nil
}

func (c *compressor) inflatePart(packed []byte) (err error) {
	from := bytes.NewReader(packed)
	if c.inflate == nil {
		c.inflate, err = zlib.NewReader(from)
	} else {
		err = c.inflate.(zlib.Resetter).Reset(from, nil)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(&c.plain, io.LimitReader(c.inflate, maxCompressed))
	return err
}
