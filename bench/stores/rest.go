package stores

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	restTime = 3 * time.Second // a folder without changes is at rest
	restMax  = 5 * time.Minute
)

// AwaitRest waits until the files of a folder have not changed for a while, and returns how
// many Parquet files there are.
func AwaitRest(folder string) (parquet int, err error) {
	var before int64
	since := time.Now()
	for deadline := since.Add(restMax); time.Since(since) < restTime && time.Now().Before(deadline); time.Sleep(restTime / 10) {
		size := int64(0)
		parquet = 0
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
				return nil
			}
			if err != nil || entry.IsDir() {
				return err
			}
			if filepath.Ext(path) == ".parquet" {
				parquet++
			}
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if size != before {
			before, since = size, time.Now()
		}
	}
	return parquet, nil
}
