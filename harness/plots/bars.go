package plots

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars draws one group of bars per category. On a logarithmic axis it draws
// points instead: there a bar's length depends on where the axis begins.
func (m marks) bars(c draw.Canvas, p *plot.Plot) {
	f := m.f
	x, y := p.Transforms(&c)
	group := x(1) - x(0)
	if len(f.Categories) == 1 {
		group = min(c.Max.X-c.Min.X, 4*vg.Inch)
	}
	slot := min(group*0.82/vg.Length(len(f.Series)), 76)
	for i := range f.Categories {
		left := x(float64(i)) - slot*vg.Length(len(f.Series))/2
		for k, s := range f.Series {
			m.bar(c, y, i, k, s.Points[i], left+slot*vg.Length(k), slot)
		}
	}
}

func (m marks) bar(c draw.Canvas, y func(float64) vg.Length, category, series int, pt Point, left, slot vg.Length) {
	f := m.f
	ink, middle := palette[series], left+slot/2
	width := slot * 0.86
	base := c.Min.Y
	if !f.drawable(pt.Value) {
		words := pt.Missing
		if pt.Value == 0 { // measured, and without a place on a logarithmic axis
			words = "0"
		}
		if words != "" {
			s := centered(style(8.5, inkFaint, false))
			c.FillText(s, vg.Point{X: middle, Y: base + 3}, words)
		}
		return
	}
	top := y(pt.Value)
	if f.Y.Log {
		c.StrokeLine2(draw.LineStyle{Color: gridInk, Width: 1.5}, middle, base, middle, top)
		m.interval(c, middle, y, pt, ink)
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: ink, Radius: 5, Shape: shapes[series]}, vg.Point{X: middle, Y: top})
	} else {
		c.FillPolygon(ink, rectangle(middle, width, base, top))
		m.interval(c, middle, y, pt, color.RGBA{0x1F, 0x23, 0x28, 0xFF})
	}
	drawn := m.extent(y, base, pt)
	limit := m.limitMark(c, y, category, series, middle, slot)
	m.barLabels(c, barText{value: f.short(pt.Value), share: f.share(category, series), middle: middle, width: width, base: base, drawn: drawn, limit: limit, bar: ink})
}

// extent is between which heights a bar's end, its interval and its repeats are drawn.
func (m marks) extent(y func(float64) vg.Length, base vg.Length, pt Point) (e vertical) {
	e.low, e.high = y(pt.Value), y(pt.Value)
	add := func(v float64, radius vg.Length) {
		if m.f.drawable(v) {
			e.low, e.high = min(e.low, y(v)-radius), max(e.high, y(v)+radius)
		}
	}
	if m.f.Y.Log {
		add(pt.Value, 4)
	}
	if pt.HasInterval() {
		if !m.f.drawable(pt.Lo) { // down to zero, which a logarithmic axis does not reach
			e.low = base
		}
		add(pt.Lo, 0)
		add(pt.Hi, 0)
	} else if len(pt.Samples) > 1 {
		for _, v := range pt.Samples {
			add(v, ringRadius)
		}
	}
	return e
}

// vertical is a stretch of heights.
type vertical struct{ low, high vg.Length }

// limitMark draws the machine's limit over one bar and gives its height; 0 for none.
func (m marks) limitMark(c draw.Canvas, y func(float64) vg.Length, category, series int, middle, slot vg.Length) vg.Length {
	f := m.f
	if f.Limit == nil || !f.drawable(f.Limit.Values[category][series]) {
		return 0
	}
	at := y(f.Limit.Values[category][series])
	c.StrokeLine2(limitLine, middle-slot/2, at, middle+slot/2, at)
	return at
}

// barText is what stands at a bar's end, and what is drawn there already.
type barText struct {
	value         string
	share         float64 // of the limit; 0 where there is none
	middle, width vg.Length
	base          vg.Length // where the bar begins
	drawn         vertical  // its end, with interval and repeats
	limit         vg.Length // 0 where there is none
	bar           color.RGBA
}

// barLabels writes the value above the bar and, above that, the share of the limit: there every
// bar has room for it, however low, and all shares stand as far from their bars' tops. Where the
// limit's dashes lie there, the words stand below the bar's end: above the dashes they would be
// read as the limit's own.
func (m marks) barLabels(c draw.Canvas, b barText) {
	const size, digits, leading = 9, 7, 10.5 // of a line: its type, how high that stands, and to the next
	type line struct {
		style text.Style
		words string
	}
	lines := []line{{style(size, ink, false), b.value}}
	if b.share > 0 {
		lines = append(lines, line{style(size-1, inkSoft, true), percent(b.share)})
	}
	tall := func(lines int) vg.Length { return digits + leading*vg.Length(lines-1) }
	at := b.drawn.high + 3
	if top := at + tall(len(lines)) + 3; b.limit > b.drawn.high && b.limit < top { // the dashes are in the way
		under := b.drawn.low - 3
		if len(lines) == 2 && under-tall(2) < b.base+1 && under-tall(1) >= b.base+1 { // a bar for one line
			lines = []line{{style(size, ink, false), b.value + ", " + percent(b.share)}}
		}
		switch below := under - tall(len(lines)); {
		case below < b.base+1: // no room at all
			at = b.limit + 3
		case m.f.Y.Log: // on a plate, over the stem
			at = below
			c.FillPolygon(color.White, rectangle(b.middle, lines[0].style.Width(lines[0].words)+4, below-1, under))
		default:
			at = below
			for i := range lines {
				lines[i].style.Color = inkOn(b.bar)
			}
		}
	}
	for _, l := range lines {
		if wide := l.style.Width(l.words); wide > b.width*1.12 {
			l.style.Font.Size = max(7, l.style.Font.Size*b.width*1.12/wide)
		}
		c.FillText(centered(l.style), vg.Point{X: b.middle, Y: at}, l.words)
		at += leading
	}
}

func rectangle(middle, width, low, high vg.Length) []vg.Point {
	return []vg.Point{{X: middle - width/2, Y: low}, {X: middle - width/2, Y: high}, {X: middle + width/2, Y: high}, {X: middle + width/2, Y: low}}
}

// inkOn is what can be read on a coloured ground: white, or the ink on a light one.
func inkOn(ground color.RGBA) color.Color {
	if 299*int(ground.R)+587*int(ground.G)+114*int(ground.B) > 150_000 {
		return ink
	}
	return color.White
}

// short writes a value for the top of a bar: on a linear axis the unit is in the axis label.
func (f *Figure) short(v float64) string {
	if f.Y.Log {
		m := f.Y.Unit.multiple(v)
		return join(digits(v/m.factor), m.sign, shortSymbol(f.Y.Unit.Symbol))
	}
	_, high := f.yRange()
	if v != 0 && math.Abs(v) < high/1000 { // next to nothing beside the others: 0.000358 MB is 358 B
		return f.Y.Unit.Format(v)
	}
	return digits(v / f.Y.Unit.multiple(high).factor)
}

// shortSymbol leaves out what the axis label says anyway.
func shortSymbol(symbol string) string {
	if len(symbol) > 4 {
		return ""
	}
	return symbol
}

func centered(s text.Style) text.Style {
	s.XAlign = text.XCenter
	return s
}

// legend writes the series' names in a row, which breaks where it is too long,
// and gives the height below it.
func (f *Figure) legend(c draw.Canvas, top vg.Length) vg.Length {
	s := style(10, ink, false)
	const box, gap = 9, 18
	x := c.Min.X
	y := top - 11
	item := func(words string, swatch func(at vg.Point)) {
		w := s.Width(words) + box + 6
		if x > c.Min.X && x+w > c.Max.X {
			x, y = c.Min.X, y-15
		}
		swatch(vg.Point{X: x, Y: y})
		c.FillText(s, vg.Point{X: x + box + 5, Y: y}, words)
		x += w + gap
	}
	named := false
	for k, series := range f.Series {
		if series.Name == "" {
			continue
		}
		named = true
		item(series.Name, func(at vg.Point) {
			if f.Y.Log {
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: palette[k], Radius: 4.5, Shape: shapes[k]}, vg.Point{X: at.X + box/2, Y: at.Y + box/2 - 1})
				return
			}
			c.FillPolygon(palette[k], []vg.Point{{X: at.X, Y: at.Y - 1}, {X: at.X + box, Y: at.Y - 1}, {X: at.X + box, Y: at.Y + box - 1}, {X: at.X, Y: at.Y + box - 1}})
		})
	}
	if f.limitPoints() != nil {
		named = true
		words := "machine's limit: " + f.Limit.Name
		if len(f.shares()) > 0 {
			words += "; bold, the share of it reached"
		}
		item(words, func(at vg.Point) { c.StrokeLine2(limitLine, at.X-2, at.Y+3, at.X+box+2, at.Y+3) })
	}
	if !named {
		return top
	}
	return y - 4
}
