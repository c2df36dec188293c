package nearest

import "testing"

func TestName(t *testing.T) {
	known := []string{"address", "list", "password", "redis", "Table"}
	for given, want := range map[string]string{
		"adress": "address", "addres": "address", "ADDRESS": "address", "lsit": "list",
		"pasword": "password", "rediss": "redis", "tabel": "Table", "colour": "", "": "", "x": "",
	} {
		if got := Name(given, known); got != want {
			t.Errorf("Name(%q) = %q, want %q", given, got, want)
		}
	}
}
