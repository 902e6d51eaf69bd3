// Package plots draws figures that can go on a slide as they are: a title that
// asks or states something, axes with units, intervals, the machine's limit,
// names beside the lines that they name, and where the numbers are from.
//
// It knows numbers and words, nothing of experiments or files of samples. The
// same figure gives the same bytes.
package plots

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tidemark-log/tidemark/harness/stat"
)

// Kind is the form of a figure.
type Kind int

const (
	Lines Kind = iota // over a numeric axis
	Bars              // by category; on a logarithmic axis, where a bar's length means nothing, points
)

// Figure is all that is drawn.
type Figure struct {
	Title    string
	Subtitle string
	Source   string // experiment, commit, machine: small, at the bottom
	Kind     Kind
	X, Y     Axis
	// Categories are the places along the x axis, in order.
	Categories []Category
	Series     []Series // at most MaxSeries
	Limit      *Limit
}

// Axis describes one axis. The unit of a category axis is not used.
type Axis struct {
	Label string
	Unit  Unit
	Log   bool
}

// Category is one place on the x axis. Value is used by Lines.
type Category struct {
	Name  string
	Value float64
}

// Series is a set of points that belong together; Points[i] is at Categories[i].
type Series struct {
	Name   string
	Points []Point
}

// Point is one estimate. A missing one has a NaN value and, perhaps, a reason.
type Point struct {
	stat.Estimate
	Samples []float64 // single repeats, drawn where there are too few for an interval
	Missing string    // shown in the point's place: "n/a"
}

// MaxSeries is how many series can be told apart by colour and shape.
const MaxSeries = 7

const (
	width, height = 8 * vg.Inch, 4.8 * vg.Inch
	pngDPI        = 192 // twice a screen's 96
)

// The palette of Okabe and Ito, which colour-blind readers can tell apart; those
// that are hard to see on white come last.
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xFF}, {0xD5, 0x5E, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF}, {0xCC, 0x79, 0xA7, 0xFF},
	{0xE6, 0x9F, 0x00, 0xFF}, {0x56, 0xB4, 0xE9, 0xFF}, {0x40, 0x40, 0x40, 0xFF},
}

var (
	ink      = color.RGBA{0x1F, 0x23, 0x28, 0xFF}
	inkSoft  = color.RGBA{0x59, 0x63, 0x6E, 0xFF}
	inkFaint = color.RGBA{0x81, 0x8B, 0x98, 0xFF}
	gridInk  = color.RGBA{0xE4, 0xE7, 0xEB, 0xFF}
)

// Check says why a figure cannot be drawn, or nil.
func (f *Figure) Check() error {
	switch {
	case len(f.Categories) == 0 || len(f.Series) == 0:
		return errors.New("plots: nothing to draw")
	case len(f.Series) > MaxSeries:
		return fmt.Errorf("plots: %d series: more than %d cannot be told apart; draw several figures", len(f.Series), MaxSeries)
	}
	any := false
	for _, s := range f.Series {
		if len(s.Points) != len(f.Categories) {
			return fmt.Errorf("plots: series %q has %d points for %d categories", s.Name, len(s.Points), len(f.Categories))
		}
		for _, p := range s.Points {
			any = any || f.drawable(p.Value)
		}
	}
	if !any {
		return errors.New("plots: no value to draw")
	}
	return nil
}

// drawable reports whether v has a place on the y axis.
func (f *Figure) drawable(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (v > 0 || !f.Y.Log)
}

// SVG draws the figure as SVG.
func (f *Figure) SVG() ([]byte, error) {
	return toSVG(f.draw)
}

func toSVG(drawOn func(draw.Canvas) error) ([]byte, error) {
	c := vgsvg.New(width, height)
	if err := drawOn(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	// Where Liberation Sans is not installed, Arial and Helvetica have its widths.
	out := strings.ReplaceAll(b.String(), "font-family:Liberation Sans", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif")
	return []byte(out), nil
}

// PNG draws the figure as PNG, at twice a screen's resolution.
func (f *Figure) PNG() ([]byte, error) { return toPNG(f.draw) }

func toPNG(drawOn func(draw.Canvas) error) ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))
	if err := drawOn(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// draw lays out the figure from the top: title, subtitle, legend, y label, data, source.
func (f *Figure) draw(c draw.Canvas) error {
	if err := f.Check(); err != nil {
		return err
	}
	c, top, bottom := frame(c, f.Title, f.Subtitle, f.Source, f.aboveLimit())
	if f.Kind == Bars {
		top = f.legend(c, top)
	}
	top -= 14
	c.FillText(style(10, ink, false), vg.Point{X: c.Min.X, Y: top}, f.yLabel())
	return f.drawData(draw.Crop(c, 0, 0, bottom-c.Min.Y+5, top-6-c.Max.Y))
}

// frame writes title and subtitle at the top and, at the bottom, the source and a
// note above it, if there is one. It gives the canvas within the margins and where
// the room between begins and ends.
func frame(c draw.Canvas, title, subtitle, source, note string) (inside draw.Canvas, top, bottom vg.Length) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	const margin = 16
	c = draw.Crop(c, margin, -margin, margin-4, -margin)
	top = c.Max.Y
	line := func(s text.Style, words string) {
		for _, l := range wrap(s, words, c.Max.X-c.Min.X) {
			top -= s.Font.Size * 1.2
			c.FillText(s, vg.Point{X: c.Min.X, Y: top}, l)
		}
	}
	line(style(17, ink, true), title)
	top -= 2
	line(style(11, inkSoft, false), subtitle)
	top -= 8
	bottom = c.Min.Y
	upwards := func(s text.Style, words string) {
		for _, l := range slices.Backward(wrap(s, words, c.Max.X-c.Min.X)) {
			c.FillText(s, vg.Point{X: c.Min.X, Y: bottom}, l)
			bottom += s.Font.Size * 1.25
		}
	}
	upwards(style(7.5, inkFaint, false), source)
	upwards(style(8.5, inkSoft, false), note)
	return c, top, bottom
}

func (f *Figure) yLabel() string {
	if f.Y.Log || f.Y.Unit.Symbol == "" && f.Y.Unit.Prefix == None {
		return f.Y.Label
	}
	_, high := f.yRange()
	return f.Y.labelFor(high)
}

// labelFor is the label with the unit in the multiple that fits high.
func (a Axis) labelFor(high float64) string {
	m := a.Unit.multiple(high)
	unit := strings.TrimPrefix(join("", m.sign, a.Unit.Symbol), "\u00a0")
	if unit == "" {
		return a.Label
	}
	return a.Label + " (" + unit + ")"
}

func (f *Figure) drawData(c draw.Canvas) error {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	low, high := f.yRange()
	p.Y.Min, p.Y.Max = low, high
	p.Y.Tick.Marker = plot.ConstantTicks(f.yTicks(low, high))
	if f.Y.Log {
		p.Y.Scale = plot.LogScale{}
	}
	f.setX(p)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Label.Font = style(10, ink, false).Font
		a.Tick.Label.Color = ink
		a.Tick.Length, a.Tick.LineStyle.Color = 4, color.Transparent // room between line and label
		a.Label.TextStyle = style(10, ink, false)
		a.LineStyle.Width = 0
	}
	p.X.Label.TextStyle = centered(p.X.Label.TextStyle) // it is written at the axis' middle
	p.X.Label.Text, p.X.Label.Padding = f.X.Label, 5
	p.X.LineStyle = draw.LineStyle{Color: inkFaint, Width: 0.75}
	p.X.Padding, p.Y.Padding = 0, 0
	if f.Kind == Lines {
		p.Y.Padding = 6 // the first mark stays clear of the labels
	}
	right := vg.Length(6)
	if f.Kind == Lines {
		right = f.labelsWidth() + 14
	}
	p.Add(grid{}, marks{f})
	p.Draw(draw.Crop(c, 0, -right, 0, 0))
	return nil
}

func style(size vg.Length, c color.Color, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

// wrap breaks words into lines that fit.
func wrap(s text.Style, words string, width vg.Length) []string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(words) {
		longer := strings.TrimSpace(current + " " + word)
		if current != "" && s.Width(longer) > width {
			lines = append(lines, current)
			longer = word
		}
		current = longer
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}
