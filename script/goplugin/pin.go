package goplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// pin makes a copy of the plugin's go.mod in temporary. Modules that this binary has
// too get this binary's version there. It returns the flags with which the go command
// uses the copy.
func (b *build) pin(ctx context.Context, temporary string) ([]string, error) {
	module, err := b.goTool(ctx, "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	module = strings.TrimSpace(module)
	if module == "" || module == os.DevNull {
		return flags(b.ours), nil // the standard library alone
	}
	copied := filepath.Join(temporary, "go.mod")
	if err := copyModule(module, copied); err != nil {
		return nil, err
	}
	args := append([]string{"-mod=mod", "-modfile=" + copied}, flags(b.ours)...)
	list := append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, args...)
	listed, err := b.goTool(ctx, append(list, b.files...)...)
	if err != nil {
		return nil, err
	}
	if edits := pins(strings.Fields(listed), b.ours.Deps); len(edits) > 0 {
		edit := append([]string{"mod", "edit"}, edits...)
		if _, err := b.goTool(ctx, append(edit, copied)...); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// copyModule copies a go.mod and its go.sum. With -modfile, the go command still
// resolves relative paths from the folder of the module.
func copyModule(module, copied string) error {
	for _, suffix := range []string{".mod", ".sum"} {
		content, err := os.ReadFile(strings.TrimSuffix(module, ".mod") + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(strings.TrimSuffix(copied, ".mod")+suffix, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// pins are the edits that give used modules the versions that ours have.
func pins(used []string, ours []*debug.Module) []string {
	need := map[string]bool{}
	for _, path := range used {
		need[path] = true
	}
	var edits []string
	for _, m := range ours {
		switch {
		case !need[m.Path]:
		case m.Replace == nil:
			edits = append(edits, "-require="+m.Path+"@"+m.Version, "-dropreplace="+m.Path)
		case m.Replace.Version != "":
			edits = append(edits, "-require="+m.Path+"@"+m.Version,
				fmt.Sprintf("-replace=%s=%s@%s", m.Path, m.Replace.Path, m.Replace.Version))
		}
	}
	return edits
}
