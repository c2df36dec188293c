package sourcetest

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"github.com/perigeedb/perigee/source"
)

// Kind tests how a kind offers itself to configurations: it has a name and a sentence for the
// reference, prints its settings from a struct, and decodes them before it makes a source.
func Kind(t *testing.T, kind source.Kind) {
	t.Helper()
	if kind.Name == "" || kind.Doc == "" {
		t.Errorf("the kind has the name %q and the text %q", kind.Name, kind.Doc)
	}
	if kind.Config != nil && (reflect.TypeOf(kind.Config).Kind() != reflect.Pointer || !reflect.ValueOf(kind.Config).Elem().IsZero()) {
		t.Errorf("the settings are %T with values", kind.Config)
	}
	refused := errors.New("no such setting")
	s, err := kind.New(source.Env{Pipeline: "p", Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, func(any) error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("%s: settings that cannot be decoded give %v, %v", kind.Name, s, err)
	}
}
