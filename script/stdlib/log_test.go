package stdlib

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(1000, 0)
	log := NewLog(slog.New(slog.NewTextHandler(&out, nil)))
	log.now = func() time.Time { return clock }
	flood := func(n int) (lines, notices int) {
		out.Reset()
		for range n {
			log.Line(slog.LevelInfo, "hello", "email.lua@1", "email.lua:12")
			log.Line(slog.LevelDebug, "quiet", "email.lua@1", "email.lua:13") // costs nothing: nobody listens
		}
		return strings.Count(out.String(), "hello"), strings.Count(out.String(), "too much")
	}
	if lines, notices := flood(3); lines != 3 || notices != 0 || !strings.Contains(out.String(), "at=email.lua:12") {
		t.Errorf("%d lines, %d notices:\n%s", lines, notices, out.String())
	}
	if lines, notices := flood(1000); lines != linesBurst-3 || notices != 0 {
		t.Errorf("%d lines, %d notices", lines, notices)
	}
	clock = clock.Add(2 * time.Second)
	if lines, notices := flood(100); lines != 2*linesSecond || notices != 1 {
		t.Errorf("%d lines, %d notices", lines, notices)
	}
	clock = clock.Add(time.Hour)
	if lines, _ := flood(1000); lines != linesBurst {
		t.Errorf("%d lines after an hour", lines)
	}
}

func TestLogShortensLines(t *testing.T) {
	var out bytes.Buffer
	NewLog(slog.New(slog.NewTextHandler(&out, nil))).Line(slog.LevelError, strings.Repeat("x", 10*lineMax), "s", "p")
	if out.Len() > 2*lineMax || !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("%d bytes", out.Len())
	}
}
