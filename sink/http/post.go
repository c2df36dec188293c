package http

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// The formats of a body.
const (
	ndjson = "ndjson"
	array  = "array"
	each   = "each"
)

// answerBytes of what a receiver says go into an error.
const answerBytes = 200

// refused is what a receiver minds about the content of a body.
type refused struct{ status, answer string }

func (r *refused) Error() string {
	if r.answer == "" {
		return "the receiver refused it: " + r.status
	}
	return "the receiver refused it: " + r.status + ": " + r.answer
}

// Write implements sink.Writer.
func (w *writer) Write(ctx context.Context, out *event.Output) error {
	if w.closed.Load() {
		return errors.New("post a batch: the writer is closed")
	}
	bad, err := w.post(ctx, out, w.memory.Missing(out))
	if err != nil {
		return err
	}
	return w.memory.Record(out, bad)
}

// post posts rows, and halves what the receiver refuses until it has the rows
// that are refused alone.
func (w *writer) post(ctx context.Context, out *event.Output, rows []int) (bad []sink.RowError, err error) {
	if w.sink.config.Format == each && len(rows) > 1 {
		for i := range rows {
			b, err := w.post(ctx, out, rows[i:i+1])
			if err != nil {
				return nil, err
			}
			bad = append(bad, b...)
		}
		return bad, nil
	}
	if len(rows) == 0 {
		return nil, nil
	}
	err = w.send(ctx, out, rows)
	var minds *refused
	switch {
	case !errors.As(err, &minds):
		return nil, err
	case len(rows) == 1:
		return []sink.RowError{{Row: rows[0], Err: minds}}, nil
	}
	for _, half := range [][]int{rows[:len(rows)/2], rows[len(rows)/2:]} {
		b, err := w.post(ctx, out, half)
		if err != nil {
			return nil, err
		}
		bad = append(bad, b...)
	}
	return bad, nil
}

func (w *writer) send(ctx context.Context, out *event.Output, rows []int) error {
	body := w.body(out, rows)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.sink.config.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	w.sink.authorize(r)
	r.Header.Set("Content-Type", "application/json")
	if w.sink.config.Format == ndjson {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	if w.sink.config.Gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	r.Header.Set("Idempotency-Key", w.key(out, rows))
	resp, err := w.sink.client.Do(r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return w.sink.outward(fmt.Sprintf("post %d events to", len(rows)), err)
	}
	defer resp.Body.Close()
	return judge(resp)
}

// judge says what an answer means for what was posted.
func judge(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	answer := strings.TrimSpace(strings.ToValidUTF8(string(text), ""))
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		return &refused{resp.Status, answer}
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("the receiver answers %s: %s", resp.Status, answer)
	}
	return permanent(resp)
}

func permanent(resp *http.Response) error {
	hint := "check url and token below the http sink"
	if to, err := resp.Location(); err == nil {
		hint = fmt.Sprintf("it has moved to %s; change url below the http sink", to.Redacted())
	}
	return &event.PermanentError{Err: fmt.Errorf("the receiver answers %s", resp.Status), Hint: hint}
}

// nameBytes of a partition's name go into a key, which receivers limit.
const nameBytes = 100

// key is the same whenever the same rows of the same positions are posted.
func (w *writer) key(out *event.Output, rows []int) string {
	sum := xxhash.New()
	for _, i := range rows {
		_, _ = sum.Write(out.Doc(i))
	}
	partition := url.PathEscape(w.partition) // a header takes no control characters
	if len(partition) > nameBytes {
		partition = fmt.Sprintf("%x", sha256.Sum256([]byte(w.partition)))
	}
	return fmt.Sprintf("%s/%s/%d-%d/%016x", w.sink.pipeline, partition, out.Position(rows[0]), out.Position(rows[len(rows)-1]), sum.Sum64())
}

func (w *writer) body(out *event.Output, rows []int) []byte {
	var b bytes.Buffer
	begin, between, end := "", "\n", "\n"
	switch w.sink.config.Format {
	case array:
		begin, between, end = "[", ",", "]"
	case each:
		end = ""
	}
	b.WriteString(begin)
	for n, i := range rows {
		if n > 0 {
			b.WriteString(between)
		}
		b.Write(oneLine(out.Doc(i)))
	}
	b.WriteString(end)
	if !w.sink.config.Gzip {
		return b.Bytes()
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(b.Bytes()) // into memory
	_ = z.Close()
	return packed.Bytes()
}

// oneLine replaces line breaks, which JSON has only between tokens.
func oneLine(doc []byte) []byte {
	if !bytes.ContainsAny(doc, "\r\n") {
		return doc
	}
	return bytes.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, doc)
}

func (s *Sink) authorize(r *http.Request) {
	if s.config.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.config.Token)
	}
}
