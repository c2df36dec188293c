package script

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Bounds of what a script requires.
const (
	moduleNameMax    = 200      // bytes of a name
	RequiredFilesMax = 500      // files that one version of a script may require
	RequiredBytesMax = 32 << 20 // of all of them
)

// ErrLoaded is returned by Code.Files once the script is loaded, where files can be read
// only until then.
var ErrLoaded = errors.New("files are read only while the script loads")

var moduleName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// ModulePath returns the path of the file for require "lib.name", for Code.Files.
func ModulePath(name string) (string, error) {
	if len(name) > moduleNameMax || !moduleName.MatchString(name) {
		const shown = 50
		return "", fmt.Errorf("invalid module name %q; use \"name\", or \"folder.name\" for the file folder/name.lua", name[:min(len(name), shown)])
	}
	return strings.ReplaceAll(name, ".", "/") + moduleSuffix, nil
}

const moduleSuffix = ".lua"

// IsModulePath reports whether a path is one that ModulePath returns.
func IsModulePath(path string) bool {
	name, isLua := strings.CutSuffix(path, moduleSuffix)
	if !isLua || strings.Contains(name, ".") {
		return false
	}
	again, err := ModulePath(strings.ReplaceAll(name, "/", "."))
	return err == nil && again == path
}
