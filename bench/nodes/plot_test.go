package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestGrowthPlotIsXML draws plots of one and of three sizes.
func TestGrowthPlotIsXML(t *testing.T) {
	sizes := []size{{1_000_000, 300, 900, 9, 25}, {10_000_000, 500, 2000, 9.5, 25}, {100_000_000, 900, 9000, 10, 25}}
	for _, sizes := range [][]size{sizes[:1], sizes} {
		plot := growthPlot(sizes)
		if strings.Contains(plot, "NaN") || strings.Contains(plot, "Inf") {
			t.Errorf("plot of %d sizes has invalid numbers:\n%s", len(sizes), plot)
		}
		for d := xml.NewDecoder(strings.NewReader(plot)); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if lines := strings.Count(plot, "<polyline"); lines != len(growthSeries) {
			t.Errorf("plot has %d lines; expected %d", lines, len(growthSeries))
		}
	}
}
