//go:build cgo && (linux || darwin || freebsd)

package goplugin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/perigeedb/perigee/script/goplugin"
)

// Build a plugin and compute a value of a row with one of its functions.
func ExampleHandler() {
	folder, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "trim.so")
	if err := goplugin.Build(context.Background(), "../../examples/plugin", path); err != nil {
		log.Fatal(err)
	}

	handler, err := goplugin.Handler("Data").Load(path)
	if err != nil {
		log.Fatal(err)
	}
	row := map[string]any{"key1": "a", "key2": "b", "city": "Jakarta", "fare": 12.5}
	data, err := handler.Value(row)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s, of %d fields\n", handler, data, len(row))
	// Output: plugin {"city":"Jakarta","fare":12.5}, of 4 fields
}
