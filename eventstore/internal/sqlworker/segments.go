//go:build linux && cgo

package sqlworker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/segment"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// writeSegment writes the rows of a closed log file as Parquet files, one per table and day.
func (w *worker) writeSegment(ctx context.Context, q *protocol.Segment, in *job) error {
	m, err := w.manifests.load(q.Version)
	if err != nil {
		return err
	}
	log, err := w.log.Open(q.Log.Number, []wal.FileEnd{q.Log})
	if err != nil {
		return err
	}
	defer log.Close()
	written := []protocol.Written{}
	out := segment.NewOutput(q.Number, q.LowMemory)
	out.Level = segment.SealLevel
	for _, t := range m.Tables {
		frames := log.Of(t.ID)
		if len(frames) == 0 {
			continue
		}
		files, err := w.writeFrames(ctx, t, frames, out)
		if err != nil {
			return errors.Join(fmt.Errorf("table %s: %w", t.Name, err), out.Abandon())
		}
		for _, f := range files {
			f.Log = q.Log.Number
			written = append(written, protocol.Written{Table: t.ID, File: f})
		}
	}
	if err := out.Wait(); err != nil {
		return errors.Join(err, out.Abandon())
	}
	if err := in.out.WriteJSON(protocol.FilesMessage, written); err != nil {
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

// newWriteSession takes a database for writing files.
func (w *worker) newWriteSession(ctx context.Context) (*session, error) {
	return w.newSession(ctx, w.settings.Memory*3/4)
}

func (s *session) writer(out *segment.Output) *segment.Writer {
	return segment.NewWriter(s.ctx, s.conn, s.connect, s.worker.settings, out)
}

// explainWrite returns an error that tells the user why writing ended.
func (s *session) explainWrite(err error) error {
	s.failed = true
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	if duckdb.IsOutOfMemory(err) || err == protocol.ErrQueryMemory {
		return protocol.ErrMemory
	}
	return err
}

// writeFrames writes the rows of a table's frames as files.
func (w *worker) writeFrames(ctx context.Context, t *manifest.Table, frames []*logscan.Frame, out *segment.Output) (files []manifest.File, err error) {
	s, err := w.newWriteSession(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if files, err = s.writer(out).WriteFrames(t, frames); err != nil {
		return nil, s.explainWrite(err)
	}
	return files, nil
}

// merge merges each group of files of a table and day into one file.
func (w *worker) merge(ctx context.Context, q *protocol.Merge, in *job) error {
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	byName := map[string]*manifest.File{}
	for _, f := range t.Files {
		byName[f.Name] = f
	}
	out := segment.NewOutput(q.Number, q.LowMemory)
	merged, err := w.mergeGroups(ctx, t, q, byName, out)
	if err != nil {
		err = fmt.Errorf("table %s: %w", t.Name, err)
	}
	if failed := out.Wait(); failed != nil {
		return errors.Join(err, failed, out.Abandon())
	}
	if sent := in.out.WriteJSON(protocol.FilesMessage, merged); sent != nil || err != nil {
		return errors.Join(err, sent)
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

// mergeGroups merges groups of files until one fails.
func (w *worker) mergeGroups(ctx context.Context, t *manifest.Table, q *protocol.Merge, byName map[string]*manifest.File, out *segment.Output) (all []protocol.Merged, err error) {
	s, err := w.newWriteSession(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for _, group := range q.Groups {
		var files []*manifest.File
		for _, name := range group {
			f := byName[name]
			if f == nil {
				return all, fmt.Errorf("it has no file %s", name)
			}
			files = append(files, f)
		}
		merged, err := s.writer(out).MergeFiles(t, files, q.All)
		if err != nil {
			return all, s.explainWrite(err)
		}
		all = append(all, merged)
	}
	return all, nil
}

// recompute rewrites a file.
func (w *worker) recompute(ctx context.Context, q *protocol.Recompute, in *job) error {
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(t.Files, func(f *manifest.File) bool { return f.Name == q.File })
	if i < 0 || q.Column != 0 && t.Current().ByID(q.Column) == nil {
		return fmt.Errorf("table %s has no file %s with column %d", t.Name, q.File, q.Column)
	}
	s, err := w.newWriteSession(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	setScriptCaller(s.database.number, &scriptCaller{ctx: ctx, job: in})
	defer setScriptCaller(s.database.number, nil)
	out := segment.NewOutput(q.Number, q.LowMemory)
	files, err := s.writer(out).RecomputeFile(t, t.Files[i], q, s.database.number)
	if err != nil {
		return errors.Join(fmt.Errorf("table %s: %w", t.Name, s.explainWrite(err)), out.Abandon())
	}
	if err := out.Wait(); err != nil {
		return errors.Join(err, out.Abandon())
	}
	if err := in.out.WriteJSON(protocol.FilesMessage, files); err != nil {
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}
