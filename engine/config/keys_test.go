package config

import (
	"fmt"
	"slices"
	"testing"
)

// words reads itself from one word, and is a list.
type words []string

func (w *words) UnmarshalText(text []byte) error {
	*w = words{string(text)}
	return nil
}

func TestListOrItsOnlyItem(t *testing.T) {
	for text, want := range map[string]words{`"emails:*"`: {"emails:*"}, "[a, b]": {"a", "b"}, "[a]": {"a"}} {
		c, err := Parse("perigee.yaml", fmt.Sprintf(`
pipelines:
  mails:
    source: {redis: {lists: %s}}
    sink: {stdout: {}}
`, text), known, lookup)
		if err != nil {
			t.Fatal(err)
		}
		var settings struct {
			Lists words `yaml:"lists"`
		}
		if err := c.Pipelines[0].Source.Decode(&settings); err != nil || !slices.Equal(settings.Lists, want) {
			t.Errorf("%s is read as %q, %v", text, settings.Lists, err)
		}
	}
}
