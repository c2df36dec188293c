package event

import "testing"

func TestTypeAsText(t *testing.T) {
	for typ := Type(0); typ <= JSON; typ++ {
		text, err := typ.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got := Type(99)
		if err := got.UnmarshalText(text); err != nil || got != typ {
			t.Errorf("%v came back from %q as %v, %v", typ, text, got, err)
		}
	}
	if err := new(Type).UnmarshalText([]byte("int")); err == nil {
		t.Error("an unknown type was taken")
	}
}
