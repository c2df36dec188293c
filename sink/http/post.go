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
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	lines "github.com/perigeedb/perigee/sink/internal/ndjson"
)

// The formats of a body.
const (
	ndjson = "ndjson"
	array  = "array"
	each   = "each"
)

// answerBytesMax is how much of a receiver's answer an error quotes.
const answerBytesMax = 200

// A rejection is the answer of a receiver to a body that it will never take.
type rejection struct{ status, answer string }

func (r *rejection) Error() string {
	if r.answer == "" {
		return "the receiver rejected it: " + r.status
	}
	return "the receiver rejected it: " + r.status + ": " + r.answer
}

// Write implements sink.Writer.
func (w *writer) Write(ctx context.Context, out *event.Output) error {
	if w.closed.Load() {
		return errors.New("post a batch: the writer is closed")
	}
	rejected, err := w.post(ctx, out, w.written.Missing(out))
	if err != nil {
		return err
	}
	return w.written.Record(out, rejected)
}

// post posts rows, in their order. When the receiver rejects them, it splits them
// until the rejected rows are isolated, and returns those.
func (w *writer) post(ctx context.Context, out *event.Output, rows []int) ([]sink.RowError, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if len(rows) > 1 && w.sink.config.Format == each {
		return w.postParts(ctx, out, slices.Collect(slices.Chunk(rows, 1)))
	}
	err := w.send(ctx, out, rows)
	rejected, ok := errors.AsType[*rejection](err)
	switch {
	case !ok:
		return nil, err
	case len(rows) == 1:
		return []sink.RowError{{Row: rows[0], Err: rejected}}, nil
	}
	return w.postParts(ctx, out, [][]int{rows[:len(rows)/2], rows[len(rows)/2:]})
}

func (w *writer) postParts(ctx context.Context, out *event.Output, parts [][]int) (rejected []sink.RowError, err error) {
	for _, rows := range parts {
		some, err := w.post(ctx, out, rows)
		if err != nil {
			return nil, err
		}
		rejected = append(rejected, some...)
	}
	return rejected, nil
}

func (w *writer) send(ctx context.Context, out *event.Output, rows []int) error {
	body := w.encodeBody(out, rows)
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
	r.Header.Set("Idempotency-Key", w.idempotencyKey(out, rows))
	resp, err := w.sink.client.Do(r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return w.sink.wrap(fmt.Sprintf("post %d events to", len(rows)), err)
	}
	defer resp.Body.Close()
	return checkAnswer(resp)
}

// checkAnswer turns the answer to a post into an error, or nil if it succeeded.
func checkAnswer(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // which lets the connection be reused
	answer := strings.TrimSpace(strings.ToValidUTF8(string(text), ""))
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		return &rejection{resp.Status, answer}
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("the receiver answers %s: %s", resp.Status, answer)
	}
	return permanentError(resp)
}

func permanentError(resp *http.Response) error {
	hint := "check url and token below the http sink"
	if to, err := resp.Location(); err == nil {
		hint = fmt.Sprintf("the receiver has moved to %s; change url below the http sink", to.Redacted())
	}
	return &event.PermanentError{Err: fmt.Errorf("the receiver answers %s", resp.Status), Hint: hint}
}

// nameBytesMax bounds the part of a partition's name in a key: receivers limit keys.
const nameBytesMax = 100

// idempotencyKey is the same whenever the same rows of the same positions are posted.
func (w *writer) idempotencyKey(out *event.Output, rows []int) string {
	sum := xxhash.New()
	for _, i := range rows {
		_, _ = sum.Write(out.Doc(i))
	}
	partition := url.PathEscape(w.partition) // a header takes no control characters
	if len(partition) > nameBytesMax {
		partition = fmt.Sprintf("%x", sha256.Sum256([]byte(w.partition)))
	}
	return fmt.Sprintf("%s/%s/%d-%d/%016x", w.sink.pipeline, partition, out.Position(rows[0]), out.Position(rows[len(rows)-1]), sum.Sum64())
}

func (w *writer) encodeBody(out *event.Output, rows []int) []byte {
	var body []byte
	switch w.sink.config.Format {
	case ndjson:
		for _, i := range rows {
			body = lines.AppendLine(body, out.Doc(i))
		}
	case array:
		for n, i := range rows {
			body = append(body, "[,"[min(n, 1)])
			body = append(body, out.Doc(i)...)
		}
		body = append(body, ']')
	case each:
		body = bytes.Clone(out.Doc(rows[0])) // the client may read it after a cancelled request
	}
	if !w.sink.config.Gzip {
		return body
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	_, _ = z.Write(body) // into memory
	_ = z.Close()
	return compressed.Bytes()
}

func (s *Sink) authorize(r *http.Request) {
	if s.config.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.config.Token)
	}
}
