package lake

import "testing"

func TestAddress(t *testing.T) {
	for location, want := range map[string]string{
		"s3://bucket/lake/test.db/events":  "s3://bucket/lake/test.db/events/data/n",
		"s3://bucket/lake/test.db/events/": "s3://bucket/lake/test.db/events/data/n",
		"file:///tmp/lake/events":          "/tmp/lake/events/data/n",
		"/tmp/lake/events":                 "/tmp/lake/events/data/n",
	} {
		if got := Address(location, "n"); got != want {
			t.Errorf("%s: %s, want %s", location, got, want)
		}
	}
}
