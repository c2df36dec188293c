package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder is the environment variable with the folder of a lake that is recorded. The file
// ordersFile beside it has the orders.
const (
	powercutFolder = "PERIGEE_LAKE_POWERCUT"
	ordersFile     = "orders.json"
)

func publishOrders(folder string) error {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(folder), ordersFile))
	if err != nil {
		return err
	}
	var orders []*lake.TableOrder
	if err := json.Unmarshal(text, &orders); err != nil {
		return err
	}
	for _, o := range orders {
		if r := publish(context.Background(), o); r.Error != "" || r.Covered != o.Step {
			return fmt.Errorf("step %d: %+v", o.Step, r)
		}
		fmt.Println("covered", o.Step)
	}
	return nil
}

// TestPublishPowerCut cuts the power at every moment of two orders and loses one unsynced write,
// name or file. The table must then have the rows of the last order that was covered, or of the one
// after it, and take the next order.
func TestPublishPowerCut(t *testing.T) {
	for _, name := range []string{"folder", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := t.TempDir()
			folder := filepath.Join(place, "recorded")
			settings := lake.Settings{Warehouse: filepath.Join(folder, "lake"), Table: "sales.mails"}
			if name == "sqlite" {
				settings.Catalog = "sqlite://" + filepath.Join(folder, "catalog.db")
			}
			a, b := writeFile(t, place, 1, 0, 10), writeFile(t, place, 2, 10, 20)
			first := orderOf(settings, 1, a)
			second := orderOf(settings, 2, first.Files[0], b)
			text, err := json.Marshal([]*lake.TableOrder{first, second})
			if err := errors.Join(err, os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(place, ordersFile), text, 0o600)); err != nil {
				t.Fatal(err)
			}
			run := powercut.SelfRun("", powercutFolder+"="+folder)
			run.LeaveOut = []string{"catalog.db-shm"}
			powercut.Record(t, folder, run).EachLoss(t, func(t *testing.T, left string, said []string) {
				// The metadata has the addresses of the recorded folder.
				if err := errors.Join(os.RemoveAll(folder), os.Symlink(left, folder), ageClaims(left)); err != nil {
					t.Fatal(err)
				}
				if n := len(said); n > 0 { // else there may be no table
					if got := sums(t, orderOf(settings, 1)); got != sumsOf(0, 10*n) && got != sumsOf(0, min(10*n+10, 20)) {
						t.Errorf("after step %d the table has %s, want %s", n, got, sumsOf(0, 10*n))
					}
				}
				if r := publish(t.Context(), orderOf(settings, 3, second.Files...)); r.Covered != 3 {
					t.Errorf("the next order: %+v", r)
				} else if got := sums(t, orderOf(settings, 3)); got != sumsOf(0, 20) {
					t.Errorf("after the next order the table has %s, want %s", got, sumsOf(0, 20))
				}
			})
		})
	}
}

// TestTornMetadata leaves the newest metadata of a table as a power cut leaves it that another
// program has not synced. The error must say which file to move away, and that must help.
func TestTornMetadata(t *testing.T) {
	for _, test := range []struct {
		catalog string
		size    int64
	}{{"folder", 0}, {"folder", 100}, {"sqlite", 0}} {
		t.Run(fmt.Sprint(test.catalog, test.size), func(t *testing.T) {
			settings := catalogs(t)[test.catalog]
			folder := t.TempDir()
			first := orderOf(settings, 1, writeFile(t, folder, 1, 0, 10))
			var last lake.TableReport
			for _, o := range []*lake.TableOrder{first, orderOf(settings, 2, first.Files[0], writeFile(t, folder, 2, 10, 20))} {
				if last = publish(t.Context(), o); last.Error != "" {
					t.Fatal(last.Error)
				}
			}
			newest, _ := localPath(last.Metadata)
			if err := os.Truncate(newest, test.size); err != nil {
				t.Fatal(err)
			}
			o := orderOf(settings, 3, first.Files[0], writeFile(t, folder, 2, 10, 20))
			r := publish(t.Context(), o)
			want, hint := newest, "move that file away"
			if test.catalog == "sqlite" {
				want, hint = "is truncated", "drop the table there"
			}
			if !strings.Contains(r.Error, want) || !strings.Contains(r.Hint, hint) {
				t.Fatalf("got the error %q and the hint %q, want …%s… and …%s…", r.Error, r.Hint, want, hint)
			}
			if test.catalog == "sqlite" {
				return
			}
			if err := os.Remove(newest); err != nil {
				t.Fatal(err)
			}
			if r := publish(t.Context(), o); r.Covered != 3 {
				t.Fatalf("without the file: %+v", r)
			}
			if got := sums(t, o); got != sumsOf(0, 20) {
				t.Errorf("the table has %s, want %s", got, sumsOf(0, 20))
			}
		})
	}
}

// ageClaims lets the minute pass for which the catalog of a folder respects the claims of others.
func ageClaims(folder string) error {
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".claim") {
			old := time.Now().Add(-time.Hour)
			err = os.Chtimes(path, old, old)
		}
		return err
	})
}
