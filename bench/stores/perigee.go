package stores

import (
	"context"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
)

type perigee struct {
	events    *dataset.Events
	store     *eventstore.Store
	partition *eventstore.Partition
}

func openPerigee(folder string, o Options) (*perigee, error) {
	store, err := eventstore.Open(folder, eventstore.Options{Memory: o.Memory})
	if err != nil {
		return nil, err
	}
	table, err := store.Table(dataset.Table, eventstore.TableConfig{Time: "time", Event: "event", Bloom: o.Bloom})
	if err != nil {
		return nil, err
	}
	partition, _, err := table.TakeOver(context.Background(), "bench", "0")
	return &perigee{events: o.Events, store: store, partition: partition}, err
}

func (p *perigee) NewWriter() (Writer, error) { return &perigeeWriter{store: p}, nil }

type perigeeWriter struct {
	store *perigee
	out   event.Output
}

func (w *perigeeWriter) Prepare(first uint64, n int) { w.store.events.Documents(&w.out, first, n) }

func (w *perigeeWriter) Commit(ctx context.Context) error {
	return w.store.partition.Append(ctx, &w.out)
}

func (w *perigeeWriter) Close() error { return nil }

func (p *perigee) Query(ctx context.Context, sql string) (r Result, err error) {
	rows, err := p.store.Query(ctx, sql)
	if err != nil {
		return r, err
	}
	defer rows.Close()
	var text []byte
	for rows.Next() {
		row := rows.Row()
		text = text[:0]
		for _, value := range row {
			switch value := value.(type) {
			case float64:
			case time.Time:
				text = fmt.Append(text, value.UnixMicro())
			default:
				text = fmt.Append(text, value)
			}
			text = append(text, '|')
		}
		if r.Rows == 0 {
			r.First = fmt.Sprint(row[0])
		}
		r.addRow(text)
	}
	return r, rows.Err()
}

func (p *perigee) TimeLiteral(us int64) string { return duckTime(us) }

func (p *perigee) Close() error { return p.store.Close() }
