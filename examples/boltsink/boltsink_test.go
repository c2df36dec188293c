package boltsink

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestSuite holds the sink to the contract. A database of bbolt has one process at a
// time, so all sinks of a place share it.
func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		db, err := bbolt.Open(filepath.Join(t.TempDir(), "events.db"), 0o600, &bbolt.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return sinktest.Place{
			Guarantee: sink.ExactlyOnce,
			NoVerify:  true,
			Sink: func(_ *testing.T, pipeline string) sink.Sink {
				return &boltSink{db, pipeline}
			},
			Rows: func(t *testing.T) (all []sinktest.Row) {
				err := db.View(func(tx *bbolt.Tx) error {
					bucket := tx.Bucket(rows)
					if bucket == nil {
						return nil
					}
					return bucket.ForEach(func(_, doc []byte) error {
						var row sinktest.Row
						all = append(all, row)
						return json.Unmarshal(doc, &all[len(all)-1])
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				return all
			},
		}
	})
}
