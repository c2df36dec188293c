package state

import (
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// folderNameMax is shorter than what file systems allow, for the files of backups beside it.
const folderNameMax = 200

// folderOf returns the folder of a unit's copy.
func (c *Config) folderOf(unit string) string { return filepath.Join(c.Folder, folderName(unit)) }

// folderName is the name of a unit's folder, here and in the archive. Only names that Perigee gives
// contain ~.
func folderName(unit string) string {
	name := strings.ReplaceAll(url.PathEscape(unit), "~", "%7E")
	if name[0] == '.' {
		name = "%2E" + name[1:]
	}
	if len(name) > folderNameMax {
		name = name[:folderNameMax-17] + "~" + strconv.FormatUint(xxhash.Sum64String(unit), 16)
	}
	return name
}
