package plots

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// marks draws the data of a figure.
type marks struct{ f *Figure }

func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	if m.f.Kind == Lines {
		m.lines(c, p)
	} else {
		m.bars(c, p)
	}
}

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}

var limitLine = draw.LineStyle{Color: inkSoft, Width: 1.25, Dashes: []vg.Length{5, 3}}

func (m marks) lines(c draw.Canvas, p *plot.Plot) {
	f := m.f
	x, y := p.Transforms(&c)
	var ends []endLabel
	if points := f.limitPoints(); points != nil {
		var path []vg.Point
		for i, v := range points {
			if f.drawable(v) {
				path = append(path, vg.Point{X: x(f.x(i)), Y: y(v)})
			}
		}
		if len(path) > 0 {
			if len(path) == 1 {
				path = []vg.Point{{X: c.Min.X, Y: path[0].Y}, {X: c.Max.X, Y: path[0].Y}}
			}
			c.StrokeLines(limitLine, path)
			ends = append(ends, endLabel{at: path[len(path)-1].Y, color: inkSoft, lines: f.limitLabel()})
		}
	}
	for k, s := range f.Series {
		ink := palette[k]
		var path []vg.Point
		for i, pt := range s.Points {
			if f.drawable(pt.Value) {
				path = append(path, vg.Point{X: x(f.x(i)), Y: y(pt.Value)})
				m.interval(c, x(f.x(i)), y, pt, ink)
			} else if pt.Value == 0 { // measured, and without a place on a logarithmic axis
				c.FillText(centered(style(8.5, darker(ink), false)), vg.Point{X: x(f.x(i)), Y: c.Min.Y + 3}, "0")
			}
		}
		if len(path) == 0 {
			continue
		}
		c.StrokeLines(draw.LineStyle{Color: ink, Width: 2.25}, path)
		for _, at := range path {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: ink, Radius: 3.5, Shape: shapes[k]}, at)
		}
		ends = append(ends, endLabel{at: path[len(path)-1].Y, color: darker(ink), lines: f.seriesLabel(k)})
	}
	placeLabels(c, ends)
}

// interval draws a point's interval, or its repeats where there is none.
func (m marks) interval(c draw.Canvas, x vg.Length, y func(float64) vg.Length, pt Point, ink color.RGBA) {
	line := draw.LineStyle{Color: ink, Width: 1.25}
	if pt.HasInterval() {
		const cap = 3.5
		if m.f.drawable(pt.Lo) {
			c.StrokeLine2(line, x, y(pt.Lo), x, y(pt.Hi))
			c.StrokeLine2(line, x-cap, y(pt.Lo), x+cap, y(pt.Lo))
		} else { // down to zero, which a logarithmic axis does not reach: no end
			c.StrokeLine2(line, x, c.Min.Y, x, y(pt.Hi))
		}
		c.StrokeLine2(line, x-cap, y(pt.Hi), x+cap, y(pt.Hi))
		return
	}
	if len(pt.Samples) < 2 {
		return
	}
	for _, v := range pt.Samples {
		if m.f.drawable(v) {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: color.White, Radius: ringRadius, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: y(v)})
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: ink, Radius: ringRadius, Shape: draw.RingGlyph{}}, vg.Point{X: x, Y: y(v)})
		}
	}
}

// ringRadius is that of the ring which marks a single repeat.
const ringRadius = 2.5

// endLabel is a name beside the end of a line.
type endLabel struct {
	at    vg.Length // where it would like to be
	color color.Color
	lines []string
}

const (
	labelSize = 10
	labelLead = 11.5
)

func (l endLabel) height() vg.Length { return vg.Length(len(l.lines)) * labelLead }

// placeLabels writes the labels right of the data, moved apart where they would overlap.
func placeLabels(c draw.Canvas, labels []endLabel) {
	slices.SortStableFunc(labels, func(a, b endLabel) int { return int(math.Copysign(1, float64(b.at-a.at))) }) // from the top
	const gap = 3
	tops := make([]vg.Length, len(labels))
	for i, l := range labels {
		tops[i] = l.at + l.height()/2
		if i > 0 {
			tops[i] = min(tops[i], tops[i-1]-labels[i-1].height()-gap)
		}
	}
	// What was pushed below the axis comes up again, and pushes what is above it.
	for i := len(labels) - 1; i >= 0; i-- {
		low := c.Min.Y - 4
		if i < len(labels)-1 {
			low = tops[i+1] + gap
		}
		tops[i] = max(tops[i], low+labels[i].height())
	}
	for i, l := range labels {
		for k, words := range l.lines {
			s := style(labelSize, l.color, k == 0)
			if k > 0 {
				s = style(labelSize-1.5, inkSoft, false)
			}
			c.FillText(s, vg.Point{X: c.Max.X + 9, Y: tops[i] - vg.Length(k+1)*labelLead + 2.5}, words)
		}
	}
}

func (f *Figure) seriesLabel(series int) []string {
	var best float64
	for i := range f.Categories {
		best = max(best, f.share(i, series))
	}
	lines := []string{f.Series[series].Name}
	if lines[0] == "" {
		lines = []string{f.Y.Label}
	}
	if best > 0 {
		lines = append(lines, fmt.Sprintf("up to %s of the limit", percent(best)))
	}
	return lines
}

// labelsWidth is the room that the labels right of the lines need.
func (f *Figure) labelsWidth() vg.Length {
	var widest vg.Length
	measure := func(lines []string) {
		for k, words := range lines {
			s := style(labelSize, ink, k == 0)
			if k > 0 {
				s = style(labelSize-1.5, ink, false)
			}
			widest = max(widest, s.Width(words))
		}
	}
	for k := range f.Series {
		measure(f.seriesLabel(k))
	}
	if f.limitPoints() != nil {
		measure(f.limitLabel())
	}
	return widest
}

func darker(c color.RGBA) color.RGBA {
	return color.RGBA{uint8(int(c.R) * 4 / 5), uint8(int(c.G) * 4 / 5), uint8(int(c.B) * 4 / 5), 0xFF}
}
