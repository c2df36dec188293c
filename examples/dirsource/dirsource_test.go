package dirsource

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/sourcetest"
)

func TestSuite(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
		folder := t.TempDir()
		place := sourcetest.Place{NoLag: true}
		for n := range events {
			doc := fmt.Sprintf(`{"n":%d}`, n)
			place.Events = append(place.Events, doc)
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.json", n)), []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		place.Open = func(_ *testing.T, limits source.Limits) source.Source {
			return &dir{Config{Path: folder, Once: true}, limits}
		}
		place.Wait = func(_ *testing.T, limits source.Limits) source.Source {
			return &dir{Config{Path: folder}, limits}
		}
		return place
	})
}
