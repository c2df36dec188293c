package plot

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// number formats a number for the ticks of an axis.
func number(y float64) string {
	switch {
	case y >= 1e6:
		return fmt.Sprintf("%.3g M", y/1e6)
	case y >= 1e3:
		return fmt.Sprintf("%.3g k", y/1e3)
	}
	return fmt.Sprintf("%.3g", y)
}

var update = flag.Bool("update", false, "write testdata/drawings.html again; look at it in a browser")

// TestDrawings compares drawings with those of testdata: one line, several on a logarithmic
// scale, and one point.
func TestDrawings(t *testing.T) {
	cpu := Line{Name: "adaptive", Points: []Point{{X: 1, Y: 40, Least: 35, Most: 52}, {X: 8, Y: 170, Least: 150, Most: 171}, {X: 32, Y: 312}}}
	var latencies []Line
	for i, name := range []string{"p50", "p90", "p99", "max"} {
		k := math.Pow(10, float64(i))
		latencies = append(latencies, Line{Name: name, Class: i, Points: []Point{{X: 1, Y: 1500 * k}, {X: 2, Y: 1700 * k, Least: 900 * k, Most: 2000 * k}, {X: 16, Y: 9000 * k}}})
	}
	var text strings.Builder
	for _, p := range []Plot{
		{Title: "one <line>", Across: "goroutines", Format: number, Lines: []Line{cpu}},
		{Title: "several", Across: "events in a batch", Format: number, Log: true, Lines: latencies},
		{Title: "one point", Across: "cores", Format: number, Lines: []Line{{Name: "alone", Class: 2, Points: []Point{{X: 1, Y: 0}}}}},
	} {
		text.WriteString(strings.ReplaceAll(string(p.SVG()), "><", ">\n<") + "\n")
	}
	golden := filepath.Join("testdata", "drawings.html")
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")); diff != "" {
		t.Errorf("drawn differently:\n%s", diff)
	}
}

// TestLabelsDoNotOverlap draws lines that end in the same places: all on the axis, half of them,
// and none.
func TestLabelsDoNotOverlap(t *testing.T) {
	for _, ends := range [][2]float64{{0, 0}, {0, 1}, {1, 1}} {
		p := Plot{Title: "same", Across: "x", Format: number}
		for i := range 8 {
			p.Lines = append(p.Lines, Line{Name: fmt.Sprint("line ", i), Class: i, Points: []Point{{X: 1, Y: 1}, {X: 2, Y: ends[i%2]}}})
		}
		var last float64
		for i, label := range regexp.MustCompile(`class="name" x="[^"]*" y="([^"]*)"`).FindAllStringSubmatch(string(p.SVG()), -1) {
			var y float64
			if _, err := fmt.Sscan(label[1], &y); err != nil {
				t.Fatal(err)
			}
			if i > 0 && y-last < 12 || y > height {
				t.Errorf("ends %v: label %d is at %v, after one at %v", ends, i, y, last)
			}
			last = y
		}
		if last == 0 {
			t.Errorf("ends %v: there are no labels", ends)
		}
	}
}

// TestFile reads files of one and of three positions as XML.
func TestFile(t *testing.T) {
	points := []Point{{X: 1, Y: 300}, {X: 10, Y: 500}, {X: 100, Y: 900}}
	for _, points := range [][]Point{points[:1], points} {
		lines := []Line{{Name: "get", Points: points}, {Name: "set", Class: 1, Points: points}}
		file := string(Plot{Title: "<Nanoseconds>", Across: "million nodes", Log: true, Format: number, Lines: lines}.File())
		if strings.Contains(file, "NaN") || strings.Contains(file, "Inf") {
			t.Errorf("the file of %d positions has invalid numbers:\n%s", len(points), file)
		}
		marks, title := 0, ""
		for d := xml.NewDecoder(strings.NewReader(file)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v:\n%s", err, file)
			}
			if e, ok := token.(xml.StartElement); ok {
				for _, a := range e.Attr {
					if a.Name.Local == "class" && a.Value == "mark" {
						marks++
					}
					if a.Name.Local == "aria-label" {
						title = a.Value
					}
				}
			}
		}
		if want := len(lines) * len(points); marks != want || title != "<Nanoseconds>" {
			t.Errorf("the file has %d points and the title %q, want %d and %q", marks, title, want, "<Nanoseconds>")
		}
	}
}
