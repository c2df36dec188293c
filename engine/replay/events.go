package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// eventsName is the file with the events of a replay: frames, compressed.
const eventsName = "events.zst"

const eventsBuffer = 256 << 10

// writeEvents copies events into the folder and returns their number. The file exists only
// once all events are durable.
func writeEvents(folder string, read func(add func([]byte) error) error) (count uint64, err error) {
	name := filepath.Join(folder, eventsName)
	file, err := durable.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("copy the events: %w", err)
	}
	defer file.Close()
	packed, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	out, buffer := bufio.NewWriterSize(packed, eventsBuffer), []byte(nil)
	err = read(func(event []byte) error {
		buffer = append(frame.Begin(buffer[:0]), event...)
		if len(event) == 0 { // a frame has at least one byte; an event of a space fails to parse as well
			buffer = append(buffer, ' ')
		}
		frame.Finish(buffer)
		count++
		_, err := out.Write(buffer)
		return err
	})
	for _, step := range []func() error{out.Flush, packed.Close, file.Sync, func() error { return os.Rename(name+".tmp", name) }, func() error { return durable.SyncDir(folder) }} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("copy the events: %w", err), os.Remove(name+".tmp"))
	}
	return count, err
}

// An eventReader reads the events that writeEvents has written.
type eventReader struct {
	file   *os.File
	packed *zstd.Decoder
	in     *bufio.Reader
	buffer []byte
}

func openEvents(folder string) (*eventReader, error) {
	file, err := durable.Open(filepath.Join(folder, eventsName))
	if err != nil {
		return nil, fmt.Errorf("open the copy of the events: %w", err)
	}
	packed, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &eventReader{file: file, packed: packed, in: bufio.NewReaderSize(packed, eventsBuffer)}, nil
}

// next returns the next event, which is valid until the next call.
func (r *eventReader) next() (event []byte, err error) {
	event, err = frame.Read(r.in, r.buffer)
	switch {
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // the caller knows the number of events
	case err == nil:
		r.buffer = event[:0]
	}
	return event, err
}

func (r *eventReader) close() error {
	r.packed.Close()
	return r.file.Close()
}
