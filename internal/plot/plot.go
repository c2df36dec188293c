// Package plot draws lines over a few positions as SVG: for a page, which has Style, or as a
// file of its own. Its functions are safe for concurrent use.
package plot

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Style is the CSS of drawings, for light and dark pages and for paper.
//
//go:embed plot.css
var Style string

// A Plot is lines over a few positions. Positions are positive, and drawn on a logarithmic axis.
type Plot struct {
	Title, Note string // Note is for the page: it is not drawn
	Across      string // what X is
	Lines       []Line // each has a point
	Log         bool   // Y is logarithmic
	Format      func(y float64) string
}

// A Line is one series of a plot.
type Line struct {
	Name   string
	Class  int // its colour and marker: 0 to 7
	Points []Point
}

// A Point is a value. Of several measurements, Least and Most are the extremes.
type Point struct{ X, Y, Least, Most float64 }

// The drawing's size and margins. A phone shows it about as large.
const (
	width, height    = 460, 290
	left, top, below = 58, 16, 44
)

// A frame turns values into places of a drawing.
type frame struct {
	xs     []float64
	low    float64
	high   float64
	log    bool
	right  float64 // margin
	yTicks []float64
}

func (p Plot) frame() frame {
	f := frame{log: p.Log, low: math.Inf(1), right: 20}
	if len(p.Lines) > 1 {
		f.right = 130 // for their names
	}
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			f.xs = append(f.xs, pt.X)
			f.high = max(f.high, pt.Y, pt.Most)
			f.low = min(f.low, pt.Y)
		}
	}
	slices.Sort(f.xs)
	f.xs = slices.Compact(f.xs)
	if f.log {
		f.decades()
	} else {
		f.evenly()
	}
	return f
}

// evenly makes three to six ticks from zero on.
func (f *frame) evenly() {
	f.low = 0
	if f.high <= 0 {
		f.high = 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(f.high)))
	steps := []float64{5, 2.5, 2, 1, .5, .25, .2}
	step := unit * steps[slices.IndexFunc(steps, func(s float64) bool { return f.high/(unit*s) >= 3 })]
	f.high = math.Ceil(f.high/step-1e-9) * step
	for i := 0; float64(i)*step <= f.high*1.0001; i++ {
		f.yTicks = append(f.yTicks, float64(i)*step)
	}
}

// decades makes a tick for each power of ten.
func (f *frame) decades() {
	first := math.Floor(math.Log10(max(f.low, 1)))
	last := max(math.Ceil(math.Log10(max(f.high, 1))), first+1)
	f.low, f.high = math.Pow(10, first), math.Pow(10, last)
	for e := first; e <= last; e++ {
		f.yTicks = append(f.yTicks, math.Pow(10, e))
	}
}

// x is logarithmic: what is varied is doubled, not added to.
func (f *frame) x(v float64) float64 {
	const inset = 14
	first, last := f.xs[0], f.xs[len(f.xs)-1]
	if first == last {
		return left + (width-left-f.right)/2
	}
	return left + inset + (width-left-f.right-2*inset)*math.Log(v/first)/math.Log(last/first)
}

func (f *frame) y(v float64) float64 {
	share := (v - f.low) / (f.high - f.low)
	if f.log {
		share = math.Log(max(v, f.low)/f.low) / math.Log(f.high/f.low)
	}
	return height - below - (height-top-below)*share
}

// SVG draws the plot for a page that has Style.
func (p Plot) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height, html.EscapeString(p.Title))
	p.drawing(&b)
	return template.HTML(b.String())
}

// File draws the plot, with its title, as an SVG file.
func (p Plot) File() []byte {
	const head = 26 // the height of the title
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 %d %d %d" role="img" aria-label="%s">`, -head, width, height+head, html.EscapeString(p.Title))
	fmt.Fprintf(&b, "\n<style>\n%s</style>\n", Style)
	fmt.Fprintf(&b, `<rect class="panel" y="%d" width="%d" height="%d"/><text class="title" x="%d" y="-8">%s</text>`+"\n", -head, width, height+head, left, html.EscapeString(p.Title))
	p.drawing(&b)
	b.WriteByte('\n')
	return []byte(b.String())
}

// drawing draws what is inside of the SVG element, and ends it.
func (p Plot) drawing(b *strings.Builder) {
	f := p.frame()
	p.axes(b, &f)
	for _, l := range slices.Backward(p.Lines) { // the first lies on top
		p.draw(b, &f, l)
	}
	p.labels(b, &f)
	b.WriteString("</svg>")
}

func (p Plot) axes(b *strings.Builder, f *frame) {
	for _, tick := range f.yTicks {
		y := f.y(tick)
		fmt.Fprintf(b, `<line class="grid" x1="%d" y1="%.1f" x2="%g" y2="%.1f"/>`, left, y, width-f.right, y)
		fmt.Fprintf(b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-7, y+4, p.tick(tick))
	}
	base := height - below
	fmt.Fprintf(b, `<line class="axis" x1="%d" y1="%d" x2="%g" y2="%d"/>`, left, base, width-f.right, base)
	for _, v := range f.xs {
		fmt.Fprintf(b, `<line class="axis" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, f.x(v), base, f.x(v), base+4)
		fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%g</text>`, f.x(v), base+18, v)
	}
	fmt.Fprintf(b, `<text class="across" x="%g" y="%d" text-anchor="middle">%s</text>`, (left+width-f.right)/2, height-6, p.Across)
}

// tick writes a value of an axis without needless digits.
func (p Plot) tick(y float64) string {
	number, unit, found := strings.Cut(p.Format(y), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	if y == 0 || !found {
		return number
	}
	return number + " " + unit
}

func (p Plot) draw(b *strings.Builder, f *frame, l Line) {
	fmt.Fprintf(b, `<g class="s%d">`, l.Class)
	var path strings.Builder
	for i, pt := range l.Points {
		step := "L"
		if i == 0 {
			step = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", step, f.x(pt.X), f.y(pt.Y))
		if pt.Most > pt.Least {
			fmt.Fprintf(b, `<line class="range" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, f.x(pt.X), f.y(pt.Least), f.x(pt.X), f.y(pt.Most))
		}
	}
	fmt.Fprintf(b, `<path class="line" d="%s"/>`, path.String())
	for _, pt := range l.Points {
		said := fmt.Sprintf("%s, %g %s: %s", l.Name, pt.X, p.Across, p.Format(pt.Y))
		if pt.Most > pt.Least {
			said += fmt.Sprintf(" (%s to %s)", p.Format(pt.Least), p.Format(pt.Most))
		}
		fmt.Fprintf(b, `<path class="mark" d="%s" data-x="%g" data-y="%v"><title>%s</title></path>`,
			mark(l.Class, f.x(pt.X), f.y(pt.Y)), pt.X, pt.Y, html.EscapeString(said))
	}
	b.WriteString("</g>")
}

// mark is the outline of a marker; they differ, for paper without colours.
func mark(class int, x, y float64) string {
	switch class % 4 {
	case 1:
		return fmt.Sprintf("M%.1f %.1fh6v6h-6z", x-3, y-3)
	case 2:
		return fmt.Sprintf("M%.1f %.1fl3.8 6.6h-7.6z", x, y-4.2)
	case 3:
		return fmt.Sprintf("M%.1f %.1fl4.2 4.2l-4.2 4.2l-4.2 -4.2z", x, y-4.2)
	}
	return fmt.Sprintf("M%.1f %.1fa3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z", x-3.4, y)
}

// labels names the lines at their ends, moved apart where they would overlap.
func (p Plot) labels(b *strings.Builder, f *frame) {
	if len(p.Lines) < 2 {
		return
	}
	const apart = 14.
	order := make([]int, len(p.Lines))
	ys := make([]float64, len(p.Lines))
	for i, l := range p.Lines {
		order[len(order)-1-i], ys[i] = i, f.y(l.Points[len(l.Points)-1].Y) // where they are equal, the last is on top
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ys[a], ys[b]) })
	place := make([]float64, len(order))
	for i, l := range order {
		place[i] = ys[l]
		if i > 0 {
			place[i] = max(place[i], place[i-1]+apart)
		}
	}
	for i := len(place) - 1; i >= 0; i-- { // back up from the lower edge
		room := float64(height-below) - apart*float64(len(place)-1-i)
		place[i] = min(place[i], room)
	}
	for i, l := range order {
		one := p.Lines[l]
		end := f.x(one.Points[len(one.Points)-1].X)
		fmt.Fprintf(b, `<g class="s%d"><path class="lead" d="M%.1f %.1fL%g %.1f"/><text class="name" x="%g" y="%.1f">%s</text></g>`,
			one.Class, end+5, ys[l], width-f.right+3, place[i], width-f.right+6, place[i]+4, html.EscapeString(one.Name))
	}
}
