package engine

import (
	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/tap"
)

// tappedSinks says how a tap shows the rows of each sink: as its columns, or as documents.
func (p *Pipeline) tappedSinks() (sinks []tap.RowSink) {
	for _, s := range p.Sinks {
		columns := s.Sink.Traits().Columns
		sinks = append(sinks, tap.RowSink{Name: s.Config.Name, AppendRow: func(to []byte, out *event.Output, i int) []byte {
			return rowtext.AppendRow(to, columns, false, "", out, i)
		}})
	}
	return sinks
}
