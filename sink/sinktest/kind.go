package sinktest

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"github.com/perigeedb/perigee/sink"
)

// Kind tests how a kind offers itself to configurations: it has a name, a sentence for the
// reference and a guarantee, prints its settings from a struct, and decodes them before it makes
// a sink.
func Kind(t *testing.T, kind sink.Kind) {
	t.Helper()
	if kind.Name == "" || kind.Doc == "" || kind.Guarantee != sink.ExactlyOnce && kind.Guarantee != sink.AtLeastOnce {
		t.Errorf("the kind has the name %q, the text %q and the guarantee %q", kind.Name, kind.Doc, kind.Guarantee)
	}
	if kind.Config != nil && (reflect.TypeOf(kind.Config).Kind() != reflect.Pointer || !reflect.ValueOf(kind.Config).Elem().IsZero()) {
		t.Errorf("the settings are %T with values", kind.Config)
	}
	refused := errors.New("no such setting")
	s, err := kind.New(sink.Env{Pipeline: "p", Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, func(any) error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("%s: settings that cannot be decoded give %v, %v", kind.Name, s, err)
	}
}
