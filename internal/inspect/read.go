package inspect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/decompress"
)

const eventBytesMax = 64 << 20 // a longer event is an error

// Read passes the events of in to add: lines of JSON, or the elements of one JSON array, plain or
// compressed with gzip or zstd. An event is valid until add returns. An error of add ends Read,
// which returns it as it is.
func Read(in io.Reader, add func(event []byte) error) error {
	content, err := decompress.NewReader(in)
	if err != nil {
		return err
	}
	defer content.Close()
	lines := bufio.NewReaderSize(content, 256<<10)
	begin, err := skipSpace(lines)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	case begin == '[':
		return readArray(lines, add)
	}
	return readLines(lines, add)
}

// skipSpace reads white space and returns the byte after it, which is the next to read.
func skipSpace(in *bufio.Reader) (byte, error) {
	for {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, in.UnreadByte()
		}
	}
}

func readLines(in *bufio.Reader, add func([]byte) error) error {
	var long []byte
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if long, err = readLong(in, append(long[:0], line...)); err == errTooLong {
				return fmt.Errorf("line %d is longer than %d MiB: put each event on a line of its own", number, eventBytesMax>>20)
			}
			line = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if doc := bytes.TrimSpace(line); len(doc) > 0 {
			if failed := add(doc); failed != nil {
				return failed
			}
		}
		if err != nil {
			return nil
		}
	}
}

var errTooLong = errors.New("the line is too long")

// readLong reads the rest of a line.
func readLong(in *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > eventBytesMax {
			return line, errTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// readArray reads the elements of an array.
func readArray(in io.Reader, add func([]byte) error) error {
	limited := &io.LimitedReader{R: in, N: eventBytesMax}
	dec := json.NewDecoder(limited)
	if _, err := dec.Token(); err != nil {
		return err
	}
	var element json.RawMessage
	for number := 1; ; number++ {
		limited.N = eventBytesMax
		more := dec.More()
		if !more {
			break
		}
		if err := dec.Decode(&element); err != nil {
			if limited.N == 0 {
				return fmt.Errorf("element %d of the array is longer than %d MiB", number, eventBytesMax>>20)
			}
			return arrayError(number, err)
		}
		if err := add(element); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return event.WithHint(fmt.Errorf("the JSON array is not closed: %w", err), "the file may be cut short")
	}
	rest := io.MultiReader(dec.Buffered(), in)
	if c, err := skipSpace(bufio.NewReader(rest)); err == nil {
		return event.WithHint(fmt.Errorf("data after the JSON array, beginning with %q", c), "write one array, or one object per line")
	}
	return nil
}

func arrayError(number int, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return event.WithHint(fmt.Errorf("element %d of the JSON array ends too early", number), "the file may be cut short")
	}
	return fmt.Errorf("element %d of the JSON array is not JSON: %w", number, err)
}
