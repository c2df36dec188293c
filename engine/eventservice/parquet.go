//go:build linux && cgo

package eventservice

import (
	"context"

	"github.com/perigeedb/perigee/eventstore/fileimport"
)

// OpenParquet opens a Parquet file. A separate process reads it.
func OpenParquet(ctx context.Context, name string) (fileimport.File, error) {
	file, err := fileimport.OpenParquet(ctx, name)
	if err != nil {
		return nil, err
	}
	return file, nil
}
