package ndjson

import "testing"

func TestAppendLine(t *testing.T) {
	buf := []byte("before\n")
	for _, doc := range []string{`{"a":"\n"}`, "{\r\n\t\"a\":\n1}", ""} {
		buf = AppendLine(buf, []byte(doc))
	}
	if got, want := string(buf), "before\n{\"a\":\"\\n\"}\n{  \t\"a\": 1}\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
