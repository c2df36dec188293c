//go:build !unix

package file

import (
	"errors"
	"os"
)

var errInvalid = errors.New("unused")

// lockFile does nothing: where there is no flock, one process writes a folder.
func lockFile(*os.File) error { return nil }

func unlockFile(*os.File) {}
