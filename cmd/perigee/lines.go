package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source/format"
)

const (
	batchEventsMax = 1000
	batchBytesMax  = 1 << 20
	lineBytesMax   = 64 << 20 // a longer line is an error
)

// A lineReader reads lines.
type lineReader struct {
	in   *bufio.Reader
	read int // number of lines read
	long []byte
}

func newLineReader(in io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 256<<10)}
}

// An eventReader reads batches of events of a format. A batch contains the events that have
// arrived: lines of a slow stream are processed one by one, those of a fast one in large
// batches.
type eventReader struct {
	*lineReader
	decoder *format.Decoder
	scanner format.Scanner
	numbers []int // line numbers of the events in the last batch, from 1
	record  []byte
}

func newEventReader(in io.Reader, as format.Format) *eventReader {
	return &eventReader{lineReader: newLineReader(in), decoder: as.NewDecoder(), scanner: as.NewScanner()}
}

// readBatch fills b with the next events. It returns io.EOF after the last.
func (e *eventReader) readBatch(b *event.Batch) error {
	b.Reset()
	e.numbers = e.numbers[:0]
	for b.Len() < batchEventsMax && len(b.Data) < batchBytesMax && (b.Len() == 0 || e.isBuffered()) {
		number := e.read + 1
		err := e.readRecord()
		switch {
		case err != nil && (err != io.EOF || len(e.record) == 0):
		case e.decoder.IsBlank(e.record):
		case e.decoder.IsJSON():
			b.Append(bytes.TrimSpace(e.record))
			e.numbers = append(e.numbers, number)
		case e.decoder.HasHeader():
			if err := e.decoder.ReadHeader(e.record); err != nil {
				return err
			}
		default:
			b.Data = e.decoder.Append(b.Data, e.record)
			b.Ends = append(b.Ends, uint32(len(b.Data)))
			e.numbers = append(e.numbers, number)
		}
		if err == io.EOF && b.Len() > 0 {
			break
		}
		if err != nil {
			return err
		}
	}
	b.Range.Count = uint64(b.Len())
	return nil
}

// readRecord reads the next record, which may span lines, without its newline. At the end of
// the input it returns io.EOF, with the last record if it has no newline.
func (e *eventReader) readRecord() error {
	e.record = e.record[:0]
	e.scanner.Reset()
	for {
		line, err := e.readLine()
		e.record = append(e.record, line...)
		if err != nil || !e.scanner.Open(line) {
			e.record = bytes.TrimSuffix(bytes.TrimSuffix(e.record, []byte("\n")), []byte("\r"))
			return err
		}
		if len(e.record) > format.QuotedMax {
			return fmt.Errorf("line %d: a quote is not closed within %d bytes", e.read, format.QuotedMax)
		}
	}
}

// isBuffered reports whether a whole line can be read without waiting for input.
func (l *lineReader) isBuffered() bool {
	ready, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(ready, '\n') >= 0
}

// readLine returns the next line, valid until the next call.
func (l *lineReader) readLine() ([]byte, error) {
	l.read++
	line, err := l.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	l.long = append(l.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.in.ReadSlice('\n')
		if l.long = append(l.long, line...); len(l.long) > lineBytesMax {
			return nil, fmt.Errorf("line %d is longer than %d bytes", l.read, lineBytesMax)
		}
	}
	return l.long, err
}
