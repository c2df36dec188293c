//go:build !unix

package file

import "io/fs"

// device falls back on the name, where files have no inode.
func device(info fs.FileInfo) string { return info.Name() }
