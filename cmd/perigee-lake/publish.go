package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
)

const (
	attempts = 6
	// firstWait is the wait before the second attempt. Each further one waits twice as
	// long.
	firstWait = 100 * time.Millisecond
)

// publish carries out an order. Between two attempts it keeps nothing but the order and which
// files it has uploaded: each one starts from what the table has then.
func publish(ctx context.Context, o *lake.TableOrder) lake.TableReport {
	report := lake.TableReport{Table: o.Table}
	wait, w := firstWait, &uploader{uploaded: map[string]uploadedFile{}}
	for attempt := 1; ; attempt++ {
		err := publishOnce(ctx, o, w, &report)
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		err = explain(&o.Settings, err)
		report.Columns = o.Columns
		if err == nil {
			progress(ctx)
			report.Error, report.Hint = "", ""
			if o.Tidy != nil && report.Covered == o.Step {
				allowStall(ctx, tidyStall)
				report.Tidied = tidy(ctx, o, &report)
			}
			return report
		}
		report.Error, report.Hint = err.Error(), ""
		var widened errWidened
		switch {
		case errors.Is(err, lake.ErrRolledBack):
			report.RolledBack = true
			return report
		case errors.As(err, &widened):
			report.Widened, report.Hint = widened, "nothing need be done: the store writes its files again, and then publishes them"
			return report
		case errors.Is(err, lake.ErrSuperseded):
			report.Hint = "give this copy another table of the lake, or remove lake from one of the two"
			return report
		case errors.Is(err, lake.ErrDropped):
			report.Hint = "set another lake.table; or, if nobody needs those rows, drop the table in the lake, with its files (PURGE)"
			return report
		case errors.Is(err, lake.ErrRewritten), errors.Is(err, errDeleteFiles):
			report.Hint = "drop the table in the lake, with its files (PURGE): it is then published again"
			return report
		case event.IsPermanent(err), errors.Is(err, errUploadTime), attempt == attempts, o.Check, ctx.Err() != nil:
			report.Hint = event.HintOf(err)
			return report
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// onPoint is called between steps at which another committer may intervene. Tests replace it.
var onPoint = func(string) {}

// errDeleteFiles reports rows that another engine has deleted without rewriting their files.
var errDeleteFiles = errors.New("another engine deleted rows with delete files; replacing the data files would restore those rows")

func publishOnce(ctx context.Context, o *lake.TableOrder, w *uploader, report *lake.TableReport) error {
	if o.Check {
		return check(ctx, o)
	}
	c, err := openCatalog(ctx, &o.Settings, !o.Look)
	if err != nil {
		return err
	}
	defer closeCatalog(c)
	progress(ctx)
	t, err := loadTable(ctx, c, o)
	if err != nil {
		return err
	}
	progress(ctx)
	report.UUID, report.Metadata = t.Metadata().TableUUID().String(), t.MetadataLocation()
	current, err := readTable(ctx, t)
	if err != nil {
		return err
	}
	report.Location, report.Deletes = t.Location(), current.deletes
	plan, err := lake.Reconcile(o, current.state)
	if err != nil {
		return err
	}
	onPoint("loaded")
	report.Gone, report.Lost, report.Foreign = plan.Gone, plan.Lost, plan.Foreign
	switch {
	case len(plan.Lost) > 0 || o.Look:
		return nil
	case plan.Properties == nil:
		if err := syncMetadata(t); err != nil {
			return err
		}
		report.Covered = o.Step
		return nil
	case plan.Foreign > 0 && slices.ContainsFunc(o.Columns, func(c lake.Column) bool {
		field, found := t.Schema().FindFieldByName(c.Name)
		return found && isPending(&c, field)
	}):
		return permanent("give the table another name in the lake (lake.table): it is then published again, with the present types", "other engines have written files of the table, which would lose the column that is widened")
	case current.deletes > 0 && len(plan.Remove) > 0:
		return errDeleteFiles
	}
	objects, err := openObjects(t.Location())
	if err != nil {
		return err
	}
	var add, remove []iceberg.DataFile
	misfits := int64(0)
	location := strings.TrimSuffix(t.Location(), "/") + "/"
	for i, f := range plan.Add {
		published, err := readPublished(f.Path, o.Columns)
		if err != nil {
			return permanent("", "file %s: %w", f.Path, err)
		}
		if published.rows != f.Rows {
			return permanent("", "file %s has %d rows, not %d", f.Path, published.rows, f.Rows)
		}
		if err := w.put(ctx, objects, location, lake.DataFolder+f.Name, published); errors.Is(err, errUploadTime) {
			return fmt.Errorf("uploaded %d of %d new files: %w", i, len(plan.Add), err)
		} else if err != nil {
			return err
		}
		entry, err := published.entry(location + lake.DataFolder + f.Name)
		if err != nil {
			return err
		}
		add, misfits = append(add, entry), misfits+f.Misfits
	}
	for _, f := range plan.Add { // not before all are there: a copy for each order would be many
		if err := w.renew(ctx, objects, location, lake.DataFolder+f.Name); err != nil {
			return err
		}
	}
	for _, name := range plan.Remove {
		remove = append(remove, current.files[name])
	}
	onPoint("put")
	summary := iceberg.Properties{misfitsProperty: strconv.FormatInt(misfits, 10)}
	metadata, err := commitFiles(ctx, c, t, o.Columns, remove, add, plan.Properties, summary)
	if err != nil {
		return err
	}
	report.Metadata = metadata
	report.Covered, report.Added, report.Removed = o.Step, len(add), len(remove)
	return nil
}

func closeCatalog(c catalog.Catalog) {
	if closer, ok := c.(catalog.Closer); ok {
		_ = closer.Close()
	}
}

// contents is what a table has.
type contents struct {
	state   lake.State
	files   map[string]iceberg.DataFile // by the names in state
	deletes int                         // number of delete files
}

// readTable reads the newest snapshot of a table.
func readTable(ctx context.Context, t *table.Table) (*contents, error) {
	c := &contents{state: lake.State{UUID: t.Metadata().TableUUID().String(), Location: t.Location(), Properties: t.Properties()}, files: map[string]iceberg.DataFile{}}
	snapshot := t.CurrentSnapshot()
	if snapshot == nil {
		return c, nil
	}
	fs, err := t.FS(ctx)
	if err != nil {
		return nil, err
	}
	manifests, err := snapshot.Manifests(fs)
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(t.Location(), "/") + "/" + lake.DataFolder
	for _, m := range manifests {
		entries, err := m.FetchEntries(fs, true)
		if err != nil {
			return nil, err
		}
		progress(ctx)
		for _, entry := range entries {
			f := entry.DataFile()
			if f.ContentType() != iceberg.EntryContentData {
				c.deletes++
				continue
			}
			name := strings.TrimPrefix(f.FilePath(), prefix)
			c.state.Files = append(c.state.Files, name)
			c.files[name] = f
		}
	}
	return c, nil
}

// misfitsProperty is the property in the summary of a snapshot with the number of values in the
// added files that do not fit the types of their columns.
const misfitsProperty = "perigee.misfits"

// commitFiles removes and adds files, swaps columns and sets properties in one commit, unless anything was
// committed since t was loaded. summary is for the snapshot. It returns the location of the
// table's metadata.
func commitFiles(ctx context.Context, c catalog.Catalog, t *table.Table, columns []lake.Column, remove, add []iceberg.DataFile, properties map[string]string, summary iceberg.Properties) (metadata string, err error) {
	transaction := t.NewTransaction()
	if err := transaction.AssertRefSnapshotID(""); err != nil {
		return "", err
	}
	if err := transaction.SetProperties(properties); err != nil {
		return "", err
	}
	if err := swapColumns(transaction, t, columns); err != nil {
		return "", err
	}
	if err := transaction.ReplaceDataFilesWithDataFiles(ctx, remove, add, summary); err != nil {
		return "", err
	}
	return commitOnce(ctx, c, transaction, properties)
}
