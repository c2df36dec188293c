package pure

import "encoding/json"

// Plain converts a value to nil, a bool, a float64, a json.Number if a float64 cannot represent the
// number, a string, an []any or a map[string]any. Its errors come from an Encoder.
func Plain(v Value) (any, error) {
	switch v.Kind {
	case False:
		return false, nil
	case True:
		return true, nil
	case Number:
		return v.Num, nil
	case Big:
		return json.Number(v.Text), nil
	case String:
		return v.Text, nil
	case Array:
		return v.Container.plainList()
	case Object:
		return v.Container.plainMap()
	case Foreign:
		return plainForeign(v.Foreign)
	}
	return nil, nil
}

func (c *Container) plainList() (any, error) {
	list := make([]any, c.Len())
	for i := range list {
		var err error
		if list[i], err = Plain(c.At(float64(i + 1))); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *Container) plainMap() (any, error) {
	fields := make(map[string]any)
	for at := -1; ; {
		next, key, v := c.Step(at)
		if next < 0 {
			return fields, nil
		}
		var err error
		if fields[key], err = Plain(v); err != nil {
			return nil, err
		}
		at = next
	}
}

func plainForeign(e Encoder) (any, error) {
	text, err := e.AppendJSON(nil)
	if err != nil {
		return nil, err
	}
	v, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return Plain(v)
}
