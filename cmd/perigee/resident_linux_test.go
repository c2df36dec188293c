package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestUnchangedMappings(t *testing.T) {
	const smaps = `00400000-013b7000 r--p 00000000 fe:00 10347663                           /opt/my tools/perigee
Size:              16092 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
013b7000-049f3000 r-xp 00fb7000 fe:00 10347663                           /opt/my tools/perigee
Anonymous:             0 kB
049f3000-06cd7000 r--p 045f3000 fe:00 10347663                           /opt/my tools/perigee
Anonymous:             8 kB
06d59000-06e1b000 rw-p 06958000 fe:00 10347663                           /opt/my tools/perigee
Anonymous:             0 kB
7f9344c44000-7f9344d9a000 r-xp 00026000 fe:00 326269                     /usr/lib/libc.so.6
Anonymous:             0 kB
28ab91c00000-28ab92800000 r--p 00000000 00:00 0 
Anonymous:             0 kB
`
	got := fmt.Sprintf("%x", unchangedMappings(strings.NewReader(smaps), "/opt/my tools/perigee"))
	if got != "[{400000 13b7000} {13b7000 49f3000}]" {
		t.Errorf("got %s", got)
	}
}

// TestReleaseProgram releases the program that runs, which goes on.
func TestReleaseProgram(t *testing.T) {
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer smaps.Close()
	if all := unchangedMappings(smaps, path); len(all) < 2 {
		t.Errorf("%d mappings of %s are found", len(all), path)
	}
}
