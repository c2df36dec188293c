package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/release"
)

func TestReadOrder(t *testing.T) {
	const tables = `"tables":[{"warehouse":"/lake","table":"a.b","incarnations":[],"step":1,"columns":[],"files":[]}]`
	order, err := readOrder(strings.NewReader(`{"version":"` + release.Version + `",` + tables + `}`))
	if err != nil || len(order.Tables) != 1 || order.Tables[0].Table != "a.b" {
		t.Errorf("an order of this version: %+v, %v", order, err)
	}
	for _, test := range []struct {
		name, order, want string
		version           bool
	}{
		{"another version", `{"version":"9.8.7",` + tables + `}`, "and the engine is perigee 9.8.7", true},
		{"another version with other fields", `{"version":"9.8.7","more":1,"tables":{"other":[]}}`, "and the engine is perigee 9.8.7", true},
		{"no version", `{` + tables + `}`, "and the engine is perigee of an unknown version", true},
		{"another field", `{"version":"` + release.Version + `","more":1}`, `unknown field "more"`, false},
		{"no JSON", `{"version":`, "read the order", false},
	} {
		_, err := readOrder(strings.NewReader(test.order))
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, errVersion) != test.version {
			t.Errorf("%s: %v, want …%s", test.name, err, test.want)
		}
	}
}
