package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// locations returns new locations in each kind of store that does not ask for a table.
func locations(t *testing.T) []string {
	all := []string{t.TempDir(), "file://" + t.TempDir()}
	for name, settings := range catalogs(t) {
		if strings.HasPrefix(name, "S3") && settings.Warehouse != "s3://tables" {
			all = append(all, fmt.Sprintf("%s/objects%d", settings.Warehouse, servers.tables.Add(1)))
		}
	}
	return all
}

// TestPut stores a file under a name that nobody has, that the same file has, and that another
// one has.
func TestPut(t *testing.T) {
	folder := t.TempDir()
	faces := func(number, first, end int) *published {
		columns := columns()
		for i := range columns {
			columns[i].Lake = int32(i + 1)
		}
		p, err := readFaces(writeFile(t, folder, number, first, end).Path, columns)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	file, longer, other := faces(1, 0, 30), faces(2, 0, 40), faces(3, 30, 60)
	for _, location := range locations(t) {
		t.Run(location, func(t *testing.T) {
			objects, err := openObjects(location)
			if err != nil {
				t.Fatal(err)
			}
			name := lake.FileName("data/2026-11-29/0000000001-0.parquet", strings.Repeat("a", 16))
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if err := objects.put(t.Context(), name, file); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, p := range []*published{longer, other} {
				if err := objects.put(t.Context(), name, p); err == nil || !strings.Contains(err.Error(), "another file has this name") {
					t.Errorf("another file: %v", err)
				}
			}
		})
	}
}
