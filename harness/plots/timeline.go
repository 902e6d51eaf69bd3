package plots

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Timeline draws what happened over time, one strip below the other, so that
// the same moment stands at the same place in all of them.
type Timeline struct {
	Title, Subtitle, Source string
	Y                       Axis
	Panels                  []Panel // at most MaxSeries
}

// Panel is one strip. Values[i] is of [i·Step, (i+1)·Step) seconds.
type Panel struct {
	Name   string
	Notes  []string // beside the name
	Step   float64
	Values []float64
	Marks  []Mark // in order of time
}

// Mark is a moment with a name.
type Mark struct {
	At   float64
	Name string
}

// Check says why a timeline cannot be drawn, or nil.
func (f *Timeline) Check() error {
	switch {
	case len(f.Panels) == 0:
		return errors.New("plots: nothing to draw")
	case len(f.Panels) > MaxSeries:
		return fmt.Errorf("plots: %d strips: no more than %d have room", len(f.Panels), MaxSeries)
	}
	for _, p := range f.Panels {
		bad := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }
		if !(p.Step > 0) || len(p.Values) == 0 || slices.ContainsFunc(p.Values, bad) {
			return fmt.Errorf("plots: strip %q has no length or no numbers", p.Name)
		}
	}
	return nil
}

// SVG draws the timeline as SVG.
func (f *Timeline) SVG() ([]byte, error) { return toSVG(f.draw) }

// PNG draws the timeline as PNG.
func (f *Timeline) PNG() ([]byte, error) { return toPNG(f.draw) }

// length and high are the ends of the axes, common to all strips.
func (f *Timeline) length() (seconds float64) {
	for _, p := range f.Panels {
		seconds = max(seconds, p.Step*float64(len(p.Values)))
	}
	return seconds
}

// high leaves short peaks out, such as a backlog that is delivered at once: they are cut at the top and their height is written there.
func (f *Timeline) high() float64 {
	var all []float64
	for _, p := range f.Panels {
		for _, v := range p.Values {
			if v > 0 {
				all = append(all, v)
			}
		}
	}
	if len(all) == 0 {
		return 1
	}
	slices.Sort(all)
	return min(all[len(all)-1], 2*all[len(all)/2]) * 1.1
}

func (f *Timeline) draw(c draw.Canvas) error {
	if err := f.Check(); err != nil {
		return err
	}
	c, top, bottom := frame(c, f.Title, f.Subtitle, f.Source, "")
	const left, axis, head = 34, 30, 17 // room for the numbers, for the time, and for a strip's name
	top -= 14
	c.FillText(style(10, ink, false), vg.Point{X: c.Min.X, Y: top}, f.Y.labelFor(f.high()))
	top -= 4
	bottom += axis
	strip := (top - bottom) / vg.Length(len(f.Panels))
	from, to := c.Min.X+left, c.Max.X-4
	seconds, high := f.length(), f.high()
	x := func(s float64) vg.Length { return from + (to-from)*vg.Length(s/seconds) }
	for k, p := range f.Panels {
		base := top - strip*vg.Length(k+1)
		y := func(v float64) vg.Length { return base + (strip-head-8)*vg.Length(min(1, v/high)) }
		f.grid(c, from, to, y, high)
		f.area(c, palette[k], p, x, y, high)
		f.marks(c, p, x, base, base+strip-head-8)
		f.heading(c, p, palette[k], from, to, base+strip-head+1)
	}
	f.timeAxis(c, x, bottom, seconds)
	return nil
}

// grid draws the base line and one line at a round number, each with its value.
func (f *Timeline) grid(c draw.Canvas, from, to vg.Length, y func(float64) vg.Length, high float64) {
	m := f.Y.Unit.multiple(high)
	round := logFloor(high/1.1/m.factor) * m.factor
	s := style(9, ink, false)
	for _, v := range []float64{0, round} {
		line := draw.LineStyle{Color: gridInk, Width: 0.75}
		if v == 0 {
			line.Color = inkFaint
		}
		c.StrokeLine2(line, from, y(v), to, y(v))
		words := digits(v / m.factor)
		c.FillText(s, vg.Point{X: from - 6 - s.Width(words), Y: y(v) - 3}, words)
	}
}

// area fills below the values, step by step, and writes the height of what is cut at the top.
func (f *Timeline) area(c draw.Canvas, ink color.RGBA, p Panel, x, y func(float64) vg.Length, high float64) {
	path := []vg.Point{{X: x(0), Y: y(0)}}
	peak := -1
	for i, v := range p.Values {
		at, end := x(float64(i)*p.Step), x(float64(i+1)*p.Step)
		path = append(path, vg.Point{X: at, Y: y(v)}, vg.Point{X: end, Y: y(v)})
		if v > high && (peak < 0 || v > p.Values[peak]) {
			peak = i
		}
	}
	path = append(path, vg.Point{X: x(float64(len(p.Values)) * p.Step), Y: y(0)})
	c.FillPolygon(lighter(ink), path)
	c.StrokeLines(draw.LineStyle{Color: ink, Width: 1.5}, path[1:len(path)-1])
	if peak >= 0 {
		s := style(8, darker(ink), true)
		m := f.Y.Unit.multiple(p.Values[peak])
		c.FillText(s, vg.Point{X: x(float64(peak+1)*p.Step) + 3, Y: y(high) - 7}, "↑ "+join(digits(p.Values[peak]/m.factor), m.sign, ""))
	}
}

var markLine = draw.LineStyle{Color: color.RGBA{0xB3, 0x1B, 0x1B, 0xFF}, Width: 1.25, Dashes: []vg.Length{4, 3}}

// marks draws the moments, each with its name beside it: to the right, or to the
// left where the next one or the edge leaves no room.
func (f *Timeline) marks(c draw.Canvas, p Panel, x func(float64) vg.Length, base, top vg.Length) {
	s := style(8.5, markLine.Color, false)
	for i, m := range p.Marks {
		at := x(m.At)
		c.StrokeLine2(markLine, at, base, at, top)
		next := x(f.length())
		if i+1 < len(p.Marks) {
			next = x(p.Marks[i+1].At)
		}
		words := vg.Point{X: at + 4, Y: base + (top-base)*0.55}
		if at+4+s.Width(m.Name) > next {
			words.X = at - 4 - s.Width(m.Name)
			words.Y += 11
		}
		pad := vg.Length(1.5)
		box := []vg.Point{{X: words.X - pad, Y: words.Y - pad - 1}, {X: words.X + s.Width(m.Name) + pad, Y: words.Y - pad - 1}, {X: words.X + s.Width(m.Name) + pad, Y: words.Y + 8}, {X: words.X - pad, Y: words.Y + 8}}
		c.FillPolygon(color.White, box)
		c.FillText(s, words, m.Name)
	}
}

func (f *Timeline) heading(c draw.Canvas, p Panel, ink color.RGBA, from, to, at vg.Length) {
	name := style(10, darker(ink), true)
	c.FillText(name, vg.Point{X: from, Y: at}, p.Name)
	notes := strings.Join(p.Notes, " · ")
	s := style(8.5, inkSoft, false)
	if room := to - from - name.Width(p.Name) - 14; s.Width(notes) > room {
		s.Font.Size *= room / s.Width(notes)
	}
	c.FillText(s, vg.Point{X: to - s.Width(notes), Y: at}, notes)
}

func (f *Timeline) timeAxis(c draw.Canvas, x func(float64) vg.Length, bottom vg.Length, seconds float64) {
	step := logCeil(seconds / 12)
	s := centered(style(10, ink, false))
	for i := 0; float64(i)*step <= seconds*(1+1e-9); i++ {
		c.FillText(s, vg.Point{X: x(float64(i) * step), Y: bottom - 12}, digits(float64(i)*step))
	}
	c.FillText(s, vg.Point{X: x(seconds / 2), Y: bottom - 25}, "seconds")
}

// lighter is a tint of c for areas.
func lighter(c color.RGBA) color.RGBA {
	tint := func(v uint8) uint8 { return uint8(255 - (255-int(v))*3/10) }
	return color.RGBA{tint(c.R), tint(c.G), tint(c.B), 0xFF}
}
