package manifest

import "testing"

// TestPublication checks what is known of a file whose order was carried out, or not yet.
func TestPublication(t *testing.T) {
	table := &Table{Lake: &Lake{Step: 5}}
	few, many := make([]LakeFile, ReplacesMin-1), make([]LakeFile, ReplacesMin)
	for _, test := range []struct {
		name string
		file File
		want Publication
	}{
		{"new", File{}, Unpublished},
		{"ordered and covered", File{Step: 5}, Published},
		{"ordered", File{Step: 6}, Unknown},
		{"merged from published files", File{Replaces: few}, Published},
		{"merged from so many that it will be ordered", File{Replaces: many}, Unknown},
		{"without deleted rows of published files", File{Replaces: few, Changed: true}, Unknown},
		{"so, and ordered", File{Replaces: few, Changed: true, Step: 6}, Unknown},
		{"so, and covered", File{Replaces: few, Changed: true, Step: 4}, Published},
		{"rewritten by another engine", File{Step: 4, Gone: true}, Unknown},
	} {
		if got := table.Publication(&test.file); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	if got := (&Table{}).Publication(&File{Step: 4}); got != Unpublished {
		t.Errorf("without a lake: %d", got)
	}
}
