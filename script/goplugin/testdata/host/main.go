// Command host opens and builds plugins, as a binary that has a module in common
// with them: host open FILE, host build FOLDER FILE.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/script/goplugin"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if args[0] == "build" {
		return goplugin.Build(context.Background(), args[1], args[2])
	}
	p, err := goplugin.Open(args[1], "")
	if err != nil {
		return err
	}
	value, err := p.Row(map[string]any{"equal": cmp.Equal(1, 1)})
	fmt.Println(value)
	return err
}
