package script

import (
	"context"
	"testing"
	"time"
)

func TestTimeOf(t *testing.T) {
	type key struct{}
	at := time.Unix(1795861800, 0)
	ctx, cancel := context.WithCancel(WithTime(context.WithValue(t.Context(), key{}, "v"), at))
	defer cancel()
	if got, fixed := TimeOf(ctx); !fixed || !got.Equal(at) {
		t.Errorf("the time is %v, %v, want %v", got, fixed, at)
	}
	if got := ctx.Value(key{}); got != "v" {
		t.Errorf("the value of the outer context is %v, want v", got)
	}
	if got, fixed := TimeOf(t.Context()); fixed {
		t.Errorf("without a time it is %v", got)
	}
}
