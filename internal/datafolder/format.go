package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/release"
)

// Format is the format of data folders that this version writes. It is raised, and Since with
// it, when a file in the folder gets a format that earlier versions cannot read. The first
// versions wrote folders without a format; they count as 0, and this version reads them.
const (
	Format = 1
	Since  = "0.1.0" // the first version that reads Format
)

// formatName is the file in a data folder that has its format, and the first version that reads
// it. Files with a format of their own check that too.
const formatName = "perigee.format"

const formatText = "format %d\nsince %s\n"

// checkFormat returns a *FolderError if a later version has written the folder.
func checkFormat(folder string) error {
	format, since, err := readFormat(folder)
	if err != nil || format <= Format {
		return err
	}
	return &FolderError{
		Message: fmt.Sprintf("data folder %s has format %d, and perigee %s reads formats up to %d", folder, format, release.Version, Format),
		Hint: fmt.Sprintf("use perigee %s or later; to stay with %s, set data to another folder, or restore a backup of the folder from before the upgrade",
			since, release.Version),
	}
}

// readFormat returns the format of a folder and the first version that reads it. The format of
// a folder without the file is 0.
func readFormat(folder string) (format int, since string, err error) {
	name := filepath.Join(folder, formatName)
	text, err := durable.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("read the format of the data folder: %w", err)
	}
	// Later versions may add lines.
	if n, err := fmt.Sscanf(string(text), formatText, &format, &since); n != 2 || format < 1 {
		return 0, "", &FolderError{
			Message: fmt.Sprintf("%s is damaged: it has %q (%v)", name, text, err),
			Hint:    "write the format of the folder there, as this version does: " + strings.TrimSpace(fmt.Sprintf(formatText, Format, Since)),
		}
	}
	return format, since, nil
}

// raiseFormat writes the format into a folder that this process has locked, unless it is there.
func raiseFormat(folder string) error {
	if err := checkFormat(folder); err != nil { // a later version may have had it since the first check
		return err
	}
	if format, _, err := readFormat(folder); err != nil || format == Format {
		return err
	}
	if err := durable.WriteFile(filepath.Join(folder, formatName), fmt.Appendf(nil, formatText, Format, Since), 0o600); err != nil {
		return fmt.Errorf("write the format of the data folder: %w", err)
	}
	return nil
}
