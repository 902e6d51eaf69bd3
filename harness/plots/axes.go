package plots

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// each calls g with every number that must fit on the y axis.
func (f *Figure) each(g func(float64)) {
	visit := func(v float64) {
		if f.drawable(v) {
			g(v)
		}
	}
	for _, s := range f.Series {
		for _, p := range s.Points {
			visit(p.Value)
			if p.HasInterval() {
				visit(p.Lo)
				visit(p.Hi)
			} else {
				for _, v := range p.Samples {
					visit(v)
				}
			}
		}
	}
	if f.Limit != nil {
		for _, row := range f.Limit.Values {
			for _, v := range row {
				visit(v)
			}
		}
	}
}

// yRange gives the ends of the y axis: from zero, or for a logarithmic axis to
// the multiples of a power of ten that enclose the data.
func (f *Figure) yRange() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	f.each(func(v float64) { low, high = min(low, v), max(high, v) })
	if !f.Y.Log {
		if high <= 0 {
			high = 1
		}
		step := f.yStep(high, 5)
		room := 1.03
		if f.Kind == Bars {
			room = 1.10 // for the numbers above the bars
			if f.Limit != nil {
				room = 1.16 // and the shares above those
			}
		}
		return min(0, low), math.Ceil(high*room/step) * step
	}
	if f.Kind == Bars { // points with their numbers above
		low, high = low/1.3, high*1.8
	}
	return logFloor(low), logCeil(high)
}

// logSteps are the round numbers within a decade.
var logSteps = []float64{1, 2, 5, 10}

func logFloor(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	best := decade
	for _, s := range logSteps {
		if s*decade <= v*(1+1e-9) {
			best = s * decade
		}
	}
	return best
}

func logCeil(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, s := range logSteps {
		if s*decade >= v*(1-1e-9) {
			return s * decade
		}
	}
	return 10 * decade
}

// yStep gives the distance of a linear axis' ticks, about n of which reach high.
// It is round in the multiple that the labels are written in: 50 MiB, not 47.7.
func (f *Figure) yStep(high, n float64) float64 {
	m := f.Y.Unit.multiple(high)
	return logCeil(high/n/m.factor) * m.factor
}

func (f *Figure) yTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	if !f.Y.Log {
		step := f.yStep(high, 6)
		m := f.Y.Unit.multiple(high)
		for i := 0; float64(i)*step <= high*(1+1e-9); i++ {
			v := float64(i) * step
			ticks = append(ticks, plot.Tick{Value: v, Label: digits(v / m.factor)})
		}
		return ticks
	}
	steps := logSteps[:3]
	if high/low > 150 { // enough decades to label those alone
		steps = logSteps[:1]
	}
	for decade := math.Pow(10, math.Floor(math.Log10(low)+1e-9)); decade <= high*(1+1e-9); decade *= 10 {
		for _, s := range steps {
			if v := s * decade; v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				ticks = append(ticks, plot.Tick{Value: v, Label: f.short(v)})
			}
		}
	}
	return ticks
}

// setX sets the x axis: a tick at each category.
func (f *Figure) setX(p *plot.Plot) {
	var ticks []plot.Tick
	for i, c := range f.Categories {
		ticks = append(ticks, plot.Tick{Value: f.x(i), Label: c.Name})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	if f.Kind == Bars {
		p.X.Min, p.X.Max = -0.5, float64(len(f.Categories))-0.5
		return
	}
	p.X.Min, p.X.Max = f.x(0), f.x(len(f.Categories)-1)
	for i := range f.Categories {
		p.X.Min, p.X.Max = min(p.X.Min, f.x(i)), max(p.X.Max, f.x(i))
	}
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min-1, p.X.Max+1
	}
}

// x is where category i lies; logarithms are taken here, so that the axis itself is linear.
func (f *Figure) x(i int) float64 {
	switch {
	case f.Kind == Bars:
		return float64(i)
	case f.X.Log:
		return math.Log10(f.Categories[i].Value)
	}
	return f.Categories[i].Value
}

// grid draws faint horizontal lines at the ticks.
type grid struct{}

func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		at := y(t.Value)
		c.StrokeLine2(draw.LineStyle{Color: gridInk, Width: vg.Points(0.75)}, c.Min.X, at, c.Max.X, at)
	}
}
