//go:build !unix

package file

import "os"

// lockFile does nothing: without flock only one process may write to a folder.
func lockFile(*os.File) error { return nil }

func unlockFile(*os.File) {}
