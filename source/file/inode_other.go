//go:build !unix

package file

import "io/fs"

// inode falls back to the name where files have no inode.
func inode(info fs.FileInfo) string { return info.Name() }
