package publishing

import (
	"cmp"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// State describes how far a table with a lake is published.
func State(t *manifest.Table, now time.Time) catalog.LakeState {
	s := catalog.LakeState{
		Table: t.Name, LakeTable: settingsOf(t).Table, Warehouse: t.Lake.Warehouse, Catalog: t.Lake.Catalog, Metadata: t.Lake.Metadata,
		Ordered: max(t.Lake.Ordered, t.Lake.Step), Covered: t.Lake.Step, Committed: t.Lake.Committed, DeleteFiles: t.Lake.Deletes, Error: t.Lake.Error, Hint: t.Lake.Hint,
	}
	if s.Widening = wideningName(t); s.Widening != "" {
		s.WidenedFiles = len(t.Files) - len(needWiden(t))
	}
	oldest := int64(0)
	for _, f := range t.Files {
		s.Misfits += f.Misfits
		if f.Remote != nil {
			s.RemoteFiles++
			s.RemoteRows += f.Rows
			s.RemoteBytes += f.Bytes
		}
		switch {
		case f.Gone:
			s.Gone++
		case t.Publication(f) == manifest.Published:
		default:
			s.WaitingFiles++
			s.WaitingRows += f.Rows
			s.WaitingBytes += f.Bytes
			since := f.Sealed
			if since > now.Unix() { // the clock was ahead then
				since = max(0, t.Lake.Committed.Unix())
			}
			if since > 0 {
				oldest = min(cmp.Or(oldest, since), since)
			}
		}
	}
	if oldest > 0 {
		s.WaitingSince = time.Unix(oldest, 0).UTC()
	}
	return s
}
