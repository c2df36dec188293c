package config

import (
	"testing"
	"time"
)

func TestArchive(t *testing.T) {
	read := func(archive string) *Pipeline {
		t.Helper()
		c, err := Parse("c.yaml", `
pipelines:
  p:
    source: {file: {path: a}}
    script: {lua: x}
    state: {name: users`+archive+`}
    sink: {stdout: {}}
`, known, nil)
		if err != nil {
			t.Fatal(err)
		}
		return &c.Pipelines[0]
	}
	none, seven, thirty := read(""), read(", archive: {to: a}"), read(", archive: {to: a, keep: 30d}")
	if none.State.Archive != (Archive{}) {
		t.Errorf("without an archive: %+v", none.State.Archive)
	}
	if got, want := seven.State.Archive, (Archive{"a", 7 * 24 * time.Hour}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := thirty.State.Archive, (Archive{"a", 30 * 24 * time.Hour}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if none.Equal(seven) || seven.Equal(thirty) || !seven.Equal(read(", archive: {to: a}")) {
		t.Error("pipelines with other archives are equal, or those with the same are not")
	}
	literal := *thirty.State
	if got := literal.toNode().get("archive"); got == nil || got.value.get("to").value.text != "a" {
		t.Errorf("the archive of a literal is %+v", got)
	}
}
