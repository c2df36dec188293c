package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/internal/nearest"
)

// namesShown is how many known names a hint lists at most; more hide the answer.
const namesShown = 12

// suggest says which of the known names was probably meant.
func suggest(name string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	var parts []string
	if near := nearest.Name(name, known); near != "" {
		parts = append(parts, fmt.Sprintf("did you mean %q?", near))
	}
	if len(known) > 0 && len(known) <= namesShown {
		parts = append(parts, "known: "+strings.Join(known, ", "))
	}
	return strings.Join(parts, " ")
}
