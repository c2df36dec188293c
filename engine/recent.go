package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	recentRecords = 1000    // that are kept
	recentBytes   = 4 << 10 // of the message, and of the attributes, of each
)

// A LogRecord is a record of the engine's log.
type LogRecord struct {
	Number     uint64 // counted from 1
	Time       time.Time
	Level      slog.Level
	Message    string
	Attributes json.RawMessage // an object; the key of an attribute in a group is GROUP.KEY
}

// A recentLog keeps the last records of a log. It is safe for concurrent use.
type recentLog struct {
	mu      sync.Mutex
	records []LogRecord // a ring once it is full: the next record replaces that at last % recentRecords
	last    uint64
}

// newLog returns a log that passes records to another, and keeps them, and warnings and
// errors in any case.
func (l *recentLog) newLog(next *slog.Logger) *slog.Logger {
	return slog.New(&recentHandler{next: next.Handler(), recent: l})
}

func (l *recentLog) add(r LogRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := int(l.last % recentRecords)
	l.last++
	r.Number = l.last
	if at == len(l.records) {
		l.records = append(l.records, r)
		return
	}
	l.records[at] = r
}

// list returns the records, oldest first.
func (l *recentLog) list() []LogRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.records) < recentRecords {
		return slices.Clone(l.records)
	}
	oldest := int(l.last % recentRecords)
	return append(slices.Clone(l.records[oldest:]), l.records[:oldest]...)
}

// A recentHandler is the slog.Handler of a recentLog.
type recentHandler struct {
	next   slog.Handler
	recent *recentLog
	group  string      // in front of keys
	attrs  []slog.Attr // of the logger, with their groups
}

// Enabled implements slog.Handler.
func (h *recentHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *recentHandler) Handle(ctx context.Context, r slog.Record) error {
	object := []byte{'{'}
	for _, a := range h.attrs {
		object = appendAttr(object, "", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		object = appendAttr(object, h.group, a)
		return true
	})
	h.recent.add(LogRecord{Time: r.Time, Level: r.Level, Message: clip(r.Message), Attributes: append(object, '}')})
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *recentHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.next, with.attrs = h.next.WithAttrs(attrs), slices.Clip(h.attrs)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		with.attrs = append(with.attrs, a)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (h *recentHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.next = h.next.WithGroup(name)
	if name != "" {
		with.group += name + "."
	}
	return &with
}

// appendAttr appends an attribute to an object in JSON, unless it then has too many bytes.
func appendAttr(object []byte, group string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range value.Group() {
			object = appendAttr(object, group, inner)
		}
		return object
	}
	var plain any
	switch value.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64:
		plain = value.Any()
	default:
		plain = clip(value.String())
	}
	member, err := json.Marshal(map[string]any{group + a.Key: plain})
	if err != nil || len(object)+len(member) > recentBytes {
		return object
	}
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(object, member[1:len(member)-1]...)
}

// clip cuts a text that is too long.
func clip(text string) string {
	const maxBytes = recentBytes / 2
	if len(text) <= maxBytes {
		return text
	}
	return text[:maxBytes] + "…"
}
