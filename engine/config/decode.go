package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/internal/nearest"
)

// A Field is one key of a config struct.
type Field struct {
	Key      string
	Kind     string // "string", "duration", "size", "list of …", …
	Required bool
	Secret   bool     // no command shows the value
	Choices  []string // the only values of a string; empty for any value
	Pattern  string   // regular expression that a string must match; other code checks it, with a better error
	Unit     string   // of a number
	Default  string   // as in YAML, or a description in parentheses; empty for none
	Env      string   // environment variable that is the default
	Example  string   // as in YAML
	Since    string   // first version with the key
	Help     string
	Fields   []Field // of a mapping, or of the mappings in a list
	typ      reflect.Type
	index    []int
	size     bool
	known    bool // other code checks the choices, which are names in Known
	apart    bool // decodeStruct leaves the key to another reader
	moved    bool // the key is refused, with Help as hint
}

// FirstVersion is the version with every key that names no other.
const FirstVersion = "0.1"

var unmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// Fields lists the keys of a config struct, or of the struct that a pointer points to,
// from its tags:
//
//	Address string `yaml:"address,required" example:"localhost:6379" help:"host and port"`
//	Token   string `yaml:"token,secret" example:"${TOKEN}" help:"token of the client"`
//	Memory  int    `yaml:"memory,size" default:"64MiB" example:"1GiB" help:"memory limit"`
//	Order   string `yaml:"order" default:"source" choices:"source,any" help:"order of rows"`
//
// The tags are the only description of a key: the reference, the JSON Schema, "perigee list"
// and "perigee config show" print them. Tag default holds YAML, or a description in
// parentheses; tag since names the first version, if that is not FirstVersion; tag env
// names the environment variable that is the default. The decoder refuses a value that is
// not among the choices, except if the choices are "@types" or "@column_types", which
// stand for names in Known.
//
// A tag "kind" describes the values of a field whose type does not, such as Any.
//
// A field without a yaml tag is not part of the configuration, except the fields of an
// embedded struct. A key of earlier versions is tagged "moved": the configuration is refused,
// and the help of the key names the new place of the setting.
func Fields(config any) []Field {
	t := reflect.TypeOf(config)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return slices.DeleteFunc(fieldsOf(t), func(f Field) bool { return f.moved })
}

func fieldsOf(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		if embedded := t.Field(i); embedded.Anonymous && embedded.Type.Kind() == reflect.Struct {
			for _, f := range fieldsOf(embedded.Type) {
				f.index = append([]int{i}, f.index...)
				fields = append(fields, f)
			}
			continue
		}
		tag, ok := t.Field(i).Tag.Lookup("yaml")
		if !ok || tag == "-" || !t.Field(i).IsExported() {
			continue
		}
		key, options, _ := strings.Cut(tag, ",")
		text := t.Field(i).Tag.Get
		f := Field{
			Key: key, Pattern: text("pattern"), Unit: text("unit"), Default: text("default"), Env: text("env"), Example: text("example"),
			Since: orElse(text("since"), FirstVersion), Help: text("help"), typ: t.Field(i).Type, index: []int{i},
		}
		if choices := text("choices"); choices != "" {
			f.Choices, f.known = strings.Split(choices, ","), choices[0] == '@'
		}
		for option := range strings.SplitSeq(options, ",") {
			f.Required = f.Required || option == "required"
			f.Secret = f.Secret || option == "secret"
			f.size = f.size || option == "size"
			f.apart = f.apart || option == "apart"
			f.moved = f.moved || option == "moved"
		}
		if !f.moved {
			f.Kind, f.Fields = describeType(t.Field(i).Type, f.size)
			f.Kind = orElse(text("kind"), f.Kind)
		}
		fields = append(fields, f)
	}
	return fields
}

// describeType describes a type for users.
func describeType(t reflect.Type, size bool) (string, []Field) {
	switch {
	case t == anyType:
		return "value", nil
	case size:
		return "size", nil
	case isDuration(t):
		return "duration", nil
	case reflect.PointerTo(t).Implements(unmarshaler):
		return "string", nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return describeType(t.Elem(), size)
	case reflect.Slice:
		kind, fields := describeType(t.Elem(), false)
		return "list of " + kind, fields
	case reflect.Map:
		kind, fields := describeType(t.Elem(), false)
		return "mapping to " + kind, fields
	case reflect.Struct:
		return "mapping", fieldsOf(t)
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Float32, reflect.Float64:
		return "number", nil
	}
	return "integer", nil
}

// decode fills v from n. name is the name of the value in errors.
func (d *document) decode(n *node, v reflect.Value, name string, size bool) {
	if v.Type() == anyType && !n.broken {
		v.Set(reflect.ValueOf(Any{node: n, origin: origin{d, n.at}}))
		return
	}
	if n.shape == null || n.broken {
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		d.decode(n, p.Elem(), name, size)
		v.Set(p)
		return
	}
	_, textual := v.Addr().Interface().(encoding.TextUnmarshaler)
	if v.Kind() == reflect.Slice && n.shape == sequence {
		textual = false // a single item may replace such a list
	}
	switch {
	case textual || shapeOf(v.Kind()) == scalar:
		if d.hasShape(n, scalar, name) {
			d.decodeScalar(n, v, name, size)
		}
	case v.Kind() == reflect.Slice:
		if d.hasShape(n, sequence, name) {
			d.decodeList(n, v, name)
		}
	case v.Kind() == reflect.Map:
		if d.hasShape(n, mapping, name) {
			d.decodeMap(n, v)
		}
	case v.Kind() == reflect.Struct:
		if n.shape == mapping {
			d.decodeStruct(n, v, name)
		} else {
			hint := orElse(structHint(n, v.Type(), name), shapeHint(n, mapping, name))
			d.addFault(n.at, hint, "%s must be a mapping, not %s", name, n.describe())
		}
	default:
		panic(fmt.Sprintf("config: %s cannot be decoded into %s", name, v.Type()))
	}
}

func shapeOf(k reflect.Kind) shape {
	switch k {
	case reflect.Slice, reflect.Map, reflect.Struct:
		return mapping
	}
	return scalar
}

// hasShape reports whether n has a shape, and adds a fault otherwise.
func (d *document) hasShape(n *node, want shape, name string) bool {
	if n.shape == want {
		return true
	}
	d.addFault(n.at, shapeHint(n, want, name), "%s must be %s, not %s", name, shapeNames[want], n.describe())
	return false
}

// describe returns a scalar as it is written, or the shape of another value.
func (n *node) describe() string {
	if n.shape == scalar {
		return quoteShort(n.raw)
	}
	return shapeNames[n.shape]
}

func (d *document) decodeList(n *node, v reflect.Value, name string) {
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		one := fmt.Sprintf("item %d of %s", i+1, name)
		if item.shape == null {
			d.addFault(item.at, "write a value, or remove the item", "%s is empty", one)
			continue
		}
		d.decode(item, v.Index(i), one, false)
	}
}

func (d *document) decodeMap(n *node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range n.entries {
		one := reflect.New(v.Type().Elem()).Elem()
		d.decode(e.value, one, e.key, false)
		v.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), one)
	}
}

// decodeStruct fills a struct by its tags, except for keys that are apart. also lists further
// valid keys of n.
func (d *document) decodeStruct(n *node, v reflect.Value, name string, also ...string) {
	fields := fieldsOf(v.Type())
	known := slices.Clone(also)
	var moved []string
	for _, f := range fields {
		if f.moved {
			moved = append(moved, f.Key)
		} else {
			known = append(known, f.Key)
		}
	}
	meant := d.reportUnknown(n, name, known, moved)
	for _, f := range fields {
		e := n.get(f.Key)
		switch {
		case f.moved && e != nil:
			d.addFault(e.at, f.Help, "key %q is no longer part of %s", f.Key, name)
		case f.moved, f.apart:
		case e != nil && (f.typ == anyType || e.value.shape != null && !(f.Required && e.value.isBlank())):
			faults := len(d.faults)
			if d.isChoice(e.value, f) {
				d.decode(e.value, v.FieldByIndex(f.index), f.Key, f.size)
			}
			d.addRemedy(f, e.value, faults)
		case e != nil && e.value.broken:
		case f.Required && !slices.Contains(meant, f.Key):
			d.reportMissing(n, e, f, name)
		}
	}
}

// isBlank reports whether a scalar is an empty text.
func (n *node) isBlank() bool { return n.shape == scalar && n.text == "" && !n.broken }

// isChoice reports whether a value is among the choices of its key, and adds a fault otherwise.
// An empty variable means the default.
func (d *document) isChoice(n *node, f Field) bool {
	if n.shape != scalar || n.broken || len(f.Choices) == 0 || f.known ||
		slices.Contains(f.Choices, n.text) || n.text == "" && n.raw != "" {
		return true
	}
	wanted := "one of " + strings.Join(f.Choices, ", ")
	if len(f.Choices) == 1 {
		wanted = f.Choices[0]
	}
	d.addFault(n.at, orElse(suggestNear(n.text, f.Choices), "remove the key for its default"), "%s must be %s, not %s", f.Key, wanted, quoteShort(n.raw))
	return false
}

func (d *document) reportMissing(n *node, e *entry, f Field, name string) {
	hint := orElse(f.Help, f.suggestExample())
	if example := f.suggestExample(); example != "" && f.Help != "" {
		hint = f.Help + "; " + example
	}
	if e != nil {
		d.addFault(e.at, hint, "key %q of %s has no value", f.Key, name)
		return
	}
	d.addFault(n.at, hint, "key %q is missing in %s", f.Key, name)
}

// reportUnknown adds a fault for every unknown key, and returns the most similar known keys.
func (d *document) reportUnknown(n *node, name string, known, moved []string) (meant []string) {
	for _, e := range n.entries {
		if !slices.Contains(known, e.key) && !slices.Contains(moved, e.key) {
			hint := suggestName(e.key, known)
			if level := d.suggestLevel(e.key); level != "" && suggestNear(e.key, known) == "" {
				hint = level
			}
			if key, value, found := strings.Cut(e.key, ":"); found && slices.Contains(known, key) && e.value.shape == null {
				hint = fmt.Sprintf("write a space after the colon: %s: %s", key, value)
				meant = append(meant, key)
			}
			d.addFault(e.at, hint, "unknown key %q in %s", e.key, name)
			meant = append(meant, nearest.Name(e.key, known))
		}
	}
	return meant
}
