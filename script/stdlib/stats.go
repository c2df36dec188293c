package stdlib

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/script"
)

// StatKinds returns the functions of the module stats by the kind of their
// measurements.
func StatKinds() map[string]script.StatKind {
	return map[string]script.StatKind{
		"count": script.Counter, "counter": script.Counter, "gauge": script.Gauge, "histogram": script.Histogram,
	}
}

// Measurement reads the arguments of the module's functions: a name, a value (default 1
// for counters), and labels, a table of names and values or a list of strings such as
// "name:value".
func Measurement(kind script.StatKind, args []any) (name string, amount float64, labels []script.Label, err error) {
	name, isText := value(args, 0).(string)
	if !isText {
		return "", 0, nil, wrong(0, "a string", value(args, 0))
	}
	if kind == script.Counter {
		amount, err = optional(args, 1, 1)
	} else {
		amount, err = number(args, 1)
	}
	if err == nil {
		labels, err = Labels(value(args, 2))
	}
	return name, amount, labels, err
}

var errLabels = errors.New(`argument 3 must be labels: {name = "value"} or {"name:value"}`)

// Labels reads the labels of a measurement.
func Labels(v any) (labels []script.Label, err error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		for i := range v {
			tag, isText := v[i].(string)
			name, value, _ := strings.Cut(tag, ":")
			if !isText {
				return nil, errLabels
			}
			labels = append(labels, script.Label{Name: name, Value: value})
		}
		return labels, nil
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch value := v[name].(type) {
			case string, bool, float64:
				labels = append(labels, script.Label{Name: name, Value: fmt.Sprint(value)})
			default:
				return nil, errLabels
			}
		}
		return labels, nil
	}
	return nil, errLabels
}
