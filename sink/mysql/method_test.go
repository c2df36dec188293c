package mysql

import "testing"

func TestMethods(t *testing.T) {
	for text, want := range map[string]string{"auto": "multi-row INSERT", "insert": "multi-row INSERT", "bulk": "INSERT with arrays of parameters"} {
		var m Method
		if err := m.UnmarshalText([]byte(text)); err != nil || m.describe() != want {
			t.Errorf("%s is %s, %v, want %s", text, m.describe(), err, want)
		}
	}
	if err := new(Method).UnmarshalText([]byte("fast")); err == nil || err.Error() != `unknown method "fast"; known: auto, insert, bulk` {
		t.Errorf("an unknown method: %v", err)
	}
}
