package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/lines"
	"github.com/perigeedb/perigee/source/format"
)

const (
	batchEventsMax = 1000
	batchBytesMax  = 1 << 20
)

// An eventReader reads batches of events of a format. A batch contains the events that have
// arrived: lines of a slow stream are processed one by one, those of a fast one in large
// batches.
type eventReader struct {
	*lines.Reader
	decoder *format.Decoder
	scanner format.Scanner
	numbers []int // line numbers of the events in the last batch, from 1
	record  []byte
}

func newEventReader(in io.Reader, as format.Format) *eventReader {
	return &eventReader{Reader: lines.NewReader(in), decoder: as.NewDecoder(), scanner: as.NewScanner()}
}

// readBatch fills b with the next events. It returns io.EOF after the last.
func (e *eventReader) readBatch(b *event.Batch) error {
	b.Reset()
	e.numbers = e.numbers[:0]
	for b.Len() < batchEventsMax && len(b.Data) < batchBytesMax && (b.Len() == 0 || e.IsBuffered()) {
		number := e.Number() + 1
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
		line, err := e.Read()
		e.record = append(e.record, line...)
		if err != nil || !e.scanner.Open(line) {
			e.record = bytes.TrimSuffix(bytes.TrimSuffix(e.record, []byte("\n")), []byte("\r"))
			return err
		}
		if len(e.record) > format.QuotedMax {
			return fmt.Errorf("line %d: a quote is not closed within %d bytes", e.Number(), format.QuotedMax)
		}
	}
}
