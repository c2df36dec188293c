package main

import (
	"fmt"
	"math"
	"strings"
)

// The plot's size and margins.
const (
	plotWidth, plotHeight = 640, 360
	plotLeft, plotRight   = 70, 130
	plotTop, plotBottom   = 40, 60
)

// plotStyle suits light and dark pages.
const plotStyle = `<style>
text { font: 13px sans-serif; fill: #333 }
.title { font-size: 15px }
.grid { stroke: #ddd }
.axis { stroke: #666 }
.line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #444 } .axis { stroke: #999 } }
</style>
`

// A series is one line of the plot.
type series struct {
	name, colour string
	value        func(size) float64
}

var growthSeries = []series{
	{"get", "#1f77b4", func(s size) float64 { return s.get }},
	{"set", "#d62728", func(s size) float64 { return s.set }},
	{"step of a walk", "#2ca02c", func(s size) float64 { return s.walk }},
}

// growthPlot draws the nanoseconds of each operation over the number of nodes. Both axes are
// logarithmic.
func growthPlot(sizes []size) string {
	low, high := math.Inf(1), 0.0
	for _, s := range sizes {
		for _, line := range growthSeries {
			low, high = min(low, line.value(s)), max(high, line.value(s))
		}
	}
	bottom, top := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if top == bottom {
		top++
	}
	first := math.Log10(float64(sizes[0].nodes))
	last := math.Log10(float64(sizes[len(sizes)-1].nodes))
	x := func(nodes int) float64 {
		return plotLeft + (plotWidth-plotLeft-plotRight)*(math.Log10(float64(nodes))-first)/max(last-first, 1)
	}
	y := func(ns float64) float64 {
		return plotHeight - plotBottom - (plotHeight-plotTop-plotBottom)*(math.Log10(ns)-bottom)/(top-bottom)
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", plotWidth, plotHeight)
	b.WriteString("<title>Time per operation over the number of nodes</title>\n" + plotStyle)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="22">Nanoseconds per operation, from LuaJIT</text>`+"\n", plotLeft)
	for e := bottom; e <= top; e++ {
		ns := math.Pow(10, e)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, plotLeft, y(ns), plotWidth-plotRight, y(ns))
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", plotLeft-8, y(ns)+4, ns)
	}
	base := plotHeight - plotBottom
	fmt.Fprintf(&b, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", plotLeft, base, plotWidth-plotRight, base)
	for _, s := range sizes {
		fmt.Fprintf(&b, `<line class="axis" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, x(s.nodes), base, x(s.nodes), base+5)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d million nodes</text>`, x(s.nodes), base+22, s.nodes/1_000_000)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f bytes each</text>`+"\n", x(s.nodes), base+40, s.bytesPerNode)
	}
	for _, line := range growthSeries {
		var points []string
		for _, s := range sizes {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(s.nodes), y(line.value(s))))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x(s.nodes), y(line.value(s)), line.colour)
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%.0f</text>`, x(s.nodes), y(line.value(s))-9, line.value(s))
		}
		fmt.Fprintf(&b, `<polyline class="line" stroke="%s" points="%s"/>`, line.colour, strings.Join(points, " "))
		end := sizes[len(sizes)-1]
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%s</text>`+"\n", x(end.nodes)+12, y(line.value(end))+4, line.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
