package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/internal/nearest"
)

// namesShown is the largest number of known names in a hint; more would hide the answer.
const namesShown = 12

// suggestName returns a hint with the known name that was probably meant.
func suggestName(name string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	var parts []string
	if near := suggestNear(name, known); near != "" {
		parts = append(parts, near)
	}
	if len(known) > 0 && len(known) <= namesShown {
		parts = append(parts, "known: "+strings.Join(known, ", "))
	}
	return strings.Join(parts, " ")
}

// suggestNear is suggestName for a message that lists the known names.
func suggestNear(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
