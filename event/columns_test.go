package event

import "testing"

func TestTypeAsText(t *testing.T) {
	for typ := Type(0); typ <= Bytes; typ++ {
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

func TestDigits(t *testing.T) {
	for _, test := range []struct {
		digits Digits
		number string
		want   bool
	}{
		{Digits{5, 2}, `0`, true}, {Digits{5, 2}, `-0.000`, true}, {Digits{5, 2}, `0e99999999999999999999`, true},
		{Digits{5, 2}, `999.99`, true}, {Digits{5, 2}, `-999.990`, true}, {Digits{5, 2}, `1000`, false}, {Digits{5, 2}, `0999`, true},
		{Digits{5, 2}, `0.01`, true}, {Digits{5, 2}, `0.001`, false}, {Digits{5, 2}, `0.010`, true}, {Digits{5, 2}, `1.005`, false},
		{Digits{5, 2}, `1e2`, true}, {Digits{5, 2}, `1e3`, false}, {Digits{5, 2}, `12345e-2`, true}, {Digits{5, 2}, `12345e-3`, false},
		{Digits{5, 2}, `12300e-4`, true}, {Digits{5, 2}, `0.00001E+5`, true}, {Digits{5, 2}, `1E-2`, true}, {Digits{5, 2}, `1E-3`, false},
		{Digits{5, 2}, `1e99999999999999999999`, false}, {Digits{5, 2}, `1e-99999999999999999999`, false}, {Digits{5, 2}, `1e9223372036854775807`, false},
		{Digits{38, 0}, `99999999999999999999999999999999999999`, true}, {Digits{38, 0}, `100000000000000000000000000000000000000`, false},
		{Digits{2, 2}, `0.99`, true}, {Digits{2, 2}, `1`, false}, {Digits{2, 2}, `1.0`, false},
	} {
		if got := test.digits.Holds([]byte(test.number)); got != test.want {
			t.Errorf("DECIMAL%s holds %s: %t", test.digits, test.number, got)
		}
	}
}
