package chaos

import "testing"

func TestEvents(t *testing.T) {
	e, err := NewEvents([][]byte{[]byte(`{"id":"x","a":[1, 2],"b":{"id":3}}`), []byte(` {"a":"\"id\":1"}`), []byte(`{}`)}, "id")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint64]string{
		1: `{"id":1,"a":[1, 2],"b":{"id":3}}`, 2: `{"id":2,"a":"\"id\":1"}`, 3: `{"id":3}`, 1000: `{"id":1000,"a":[1, 2],"b":{"id":3}}`,
	} {
		if got := string(e.Append(nil, n)); got != want {
			t.Errorf("event %d is %s, want %s", n, got, want)
		}
	}
}

func TestSampleMustBeObjects(t *testing.T) {
	for _, bad := range []string{`[1]`, `1`, ``, `{"a":`, `{"a"}`} {
		if _, err := NewEvents([][]byte{[]byte(bad)}, "id"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := NewEvents(nil, "id"); err == nil {
		t.Error("no sample is taken")
	}
}
