package tuning

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// A plot is lines over a few positions, drawn as SVG.
type plot struct {
	Title, Note string
	across      string // what x is
	lines       []line
	log         bool // y is logarithmic
	format      func(y float64) string
}

// A line is one series of a plot.
type line struct {
	name   string
	class  int // its colour and marker
	points []point
}

// A point is a value, between the least and the most of the rounds where that is known.
type point struct{ x, y, least, most float64 }

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

func (p plot) frame() frame {
	f := frame{log: p.log, low: math.Inf(1), right: 20}
	if len(p.lines) > 1 {
		f.right = 130 // for their names
	}
	for _, l := range p.lines {
		for _, pt := range l.points {
			f.xs = append(f.xs, pt.x)
			f.high = max(f.high, pt.y, pt.most)
			f.low = min(f.low, pt.y)
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

// SVG draws the plot.
func (p plot) SVG() template.HTML {
	f := p.frame()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height, html.EscapeString(p.Title))
	p.axes(&b, &f)
	for _, l := range slices.Backward(p.lines) { // the first lies on top
		p.draw(&b, &f, l)
	}
	p.labels(&b, &f)
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

func (p plot) axes(b *strings.Builder, f *frame) {
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
	fmt.Fprintf(b, `<text class="across" x="%g" y="%d" text-anchor="middle">%s</text>`, (left+width-f.right)/2, height-6, p.across)
}

// tick writes a value of an axis without needless digits.
func (p plot) tick(y float64) string {
	number, unit, found := strings.Cut(p.format(y), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	if y == 0 || !found {
		return number
	}
	return number + " " + unit
}

func (p plot) draw(b *strings.Builder, f *frame, l line) {
	fmt.Fprintf(b, `<g class="s%d">`, l.class)
	var path strings.Builder
	for i, pt := range l.points {
		step := "L"
		if i == 0 {
			step = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", step, f.x(pt.x), f.y(pt.y))
		if pt.most > pt.least {
			fmt.Fprintf(b, `<line class="range" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, f.x(pt.x), f.y(pt.least), f.x(pt.x), f.y(pt.most))
		}
	}
	fmt.Fprintf(b, `<path class="line" d="%s"/>`, path.String())
	for _, pt := range l.points {
		said := fmt.Sprintf("%s, %g %s: %s", l.name, pt.x, p.across, p.format(pt.y))
		if pt.most > pt.least {
			said += fmt.Sprintf(" (%s to %s)", p.format(pt.least), p.format(pt.most))
		}
		fmt.Fprintf(b, `<path class="mark" d="%s" data-x="%g" data-y="%v"><title>%s</title></path>`,
			mark(l.class, f.x(pt.x), f.y(pt.y)), pt.x, pt.y, html.EscapeString(said))
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
func (p plot) labels(b *strings.Builder, f *frame) {
	if len(p.lines) < 2 {
		return
	}
	const apart = 14.
	order := make([]int, len(p.lines))
	ys := make([]float64, len(p.lines))
	for i, l := range p.lines {
		order[len(order)-1-i], ys[i] = i, f.y(l.points[len(l.points)-1].y) // where they are equal, the last is on top
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
		one := p.lines[l]
		end := f.x(one.points[len(one.points)-1].x)
		fmt.Fprintf(b, `<g class="s%d"><path class="lead" d="M%.1f %.1fL%g %.1f"/><text class="name" x="%g" y="%.1f">%s</text></g>`,
			one.class, end+5, ys[l], width-f.right+3, place[i], width-f.right+6, place[i]+4, html.EscapeString(one.name))
	}
}
