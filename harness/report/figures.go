package report

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/plots"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
)

// drawn is a figure that was written: its file's name without extension, and how it is announced.
type drawn struct {
	Name, Title, Subtitle string
	SVG                   []byte
	Missing               string // why it could not be drawn; then there is no file
}

// writeFigures draws every figure of the spec as SVG and PNG into the run's directory.
func (r *run) writeFigures() error {
	for _, def := range r.spec.Figures {
		d := drawn{Name: def.Name, Title: def.Title, Subtitle: def.Subtitle}
		f, err := r.drawing(def)
		if err != nil {
			d.Missing = err.Error()
			r.figures = append(r.figures, d)
			continue
		}
		if d.SVG, err = f.SVG(); err != nil {
			d.Missing = strings.TrimPrefix(err.Error(), "plots: ")
			r.figures = append(r.figures, d)
			continue
		}
		png, err := f.PNG()
		if err != nil {
			return err
		}
		err = errors.Join(
			result.WriteFile(filepath.Join(r.dir, def.Name+".svg"), d.SVG),
			result.WriteFile(filepath.Join(r.dir, def.Name+".png"), png))
		if err != nil {
			return err
		}
		r.figures = append(r.figures, d)
	}
	return nil
}

// drawing is what can be drawn: a figure over cells, or over time.
type drawing interface {
	SVG() ([]byte, error)
	PNG() ([]byte, error)
}

func (r *run) drawing(def experiments.Figure) (drawing, error) {
	if def.Kind == "timeline" {
		return r.timeline(def), nil
	}
	return r.figure(def)
}

// timeline draws the first repeat of each series that has one.
func (r *run) timeline(def experiments.Figure) *plots.Timeline {
	q := quantityOf(def.Metric)
	f := &plots.Timeline{
		Title: def.Title, Subtitle: def.Subtitle, Y: plots.Axis{Label: cmp.Or(def.YLabel, q.name), Unit: q.unit},
		Source: fmt.Sprintf("One repeat of %d · %s · commit %s · %s", r.summary.Repeats, r.plan.Alone(), r.env.Commit, r.env.Machine()),
	}
	series := []string{""}
	if def.Series != "" {
		series = r.spec.FactorLevels(def.Series)
	}
	for _, level := range series {
		c, ok := r.cell(def, "", level)
		i := slices.IndexFunc(r.samples, func(s result.Sample) bool { return s.Cell == c.Cell && s.OK() && s.Timeline != nil })
		if !ok || i < 0 {
			continue
		}
		s := r.samples[i]
		p := plots.Panel{Name: r.call(def, def.Series, level), Step: s.Timeline.Step, Values: s.Timeline.Values[def.Metric]}
		for _, m := range s.Timeline.Marks {
			p.Marks = append(p.Marks, plots.Mark{At: m.At, Name: m.Name})
		}
		for _, note := range def.Notes {
			if v, ok := s.Metrics[note]; ok {
				p.Notes = append(p.Notes, noteOf(note, v))
			}
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

// figure fills a figure's definition with the summary's numbers.
func (r *run) figure(def experiments.Figure) (*plots.Figure, error) {
	q := quantityOf(def.Metric)
	f := &plots.Figure{
		Title: def.Title, Subtitle: def.Subtitle, Source: r.source(), Kind: plots.Bars,
		X: plots.Axis{Label: cmp.Or(def.XLabel, factorName(def.X)), Log: strings.Contains(def.Log, "x")},
		Y: plots.Axis{Label: cmp.Or(def.YLabel, q.name), Unit: q.unit, Log: strings.Contains(def.Log, "y")},
	}
	if def.Kind == "line" {
		f.Kind = plots.Lines
	}
	series := []string{""}
	if def.Series != "" {
		series = r.spec.FactorLevels(def.Series)
	}
	levels := r.spec.FactorLevels(def.X)
	for i, level := range levels {
		c := plots.Category{Name: r.call(def, def.X, level), Value: float64(i)}
		if f.Kind == plots.Lines {
			v, ok := numeric(level)
			if !ok || f.X.Log && v <= 0 {
				return nil, fmt.Errorf("x level %s is no place on a numeric axis", level)
			}
			c.Value = v
		}
		f.Categories = append(f.Categories, c)
	}
	for _, s := range series {
		out := plots.Series{Name: r.call(def, def.Series, s)}
		for _, level := range levels {
			out.Points = append(out.Points, r.point(def, level, s))
		}
		f.Series = append(f.Series, out)
	}
	if def.Limit != "" {
		f.Limit = r.limit(def, levels, series)
	}
	return dropEmptySeries(f), nil
}

// call names a level as the figure's definition asks, or as people would.
func (r *run) call(def experiments.Figure, factor, level string) string {
	if name, ok := def.Names[level]; ok {
		return experiments.Text(name)
	}
	return levelName(factor, level)
}

// cell finds the one cell that a place in the figure stands for. Factors that
// the figure does not name must have a single level left.
func (r *run) cell(def experiments.Figure, x, series string) (result.CellSummary, bool) {
	for _, c := range r.summary.Cells {
		match := (def.X == "" || c.Levels[def.X] == x) && (def.Series == "" || c.Levels[def.Series] == series)
		for key, v := range def.Where {
			match = match && c.Levels[key] == experiments.Text(v)
		}
		if match {
			return c, true
		}
	}
	return result.CellSummary{}, false
}

func (r *run) point(def experiments.Figure, x, series string) plots.Point {
	nothing := plots.Point{Estimate: stat.Estimate{Value: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}}
	c, ok := r.cell(def, x, series)
	if !ok {
		return nothing
	}
	if n, ok := c.Metrics[def.Metric]; ok && n.Value != nil {
		p := plots.Point{Estimate: n.Estimate()}
		if !p.HasInterval() {
			p.Samples = r.values(c.Cell, def.Metric)
		}
		return p
	}
	nothing.Missing = "failed"
	if c.NotPossible != "" {
		nothing.Missing = "n/a"
	} else if c.Repeats > 0 {
		nothing.Missing = "none"
	}
	return nothing
}

func (r *run) values(cell, metric string) []float64 {
	var all []float64
	for _, s := range r.counted {
		if v, ok := s.Metrics[metric]; ok && s.Cell == cell {
			all = append(all, v)
		}
	}
	return all
}

func (r *run) limit(def experiments.Figure, levels, series []string) *plots.Limit {
	l := &plots.Limit{Name: def.Limit}
	for _, x := range levels {
		row := make([]float64, len(series))
		for k, s := range series {
			row[k] = math.NaN()
			if c, ok := r.cell(def, x, s); ok {
				row[k] = c.Limits[def.Metric].Estimate().Value
			}
		}
		l.Values = append(l.Values, row)
	}
	return l
}

// dropEmptySeries leaves out series and, at the ends, categories that have neither
// a value nor a reason for its absence: levels that the figure's own condition excludes.
func dropEmptySeries(f *plots.Figure) *plots.Figure {
	blank := func(p plots.Point) bool { return math.IsNaN(p.Value) && p.Missing == "" }
	for k := len(f.Series) - 1; k >= 0; k-- {
		if !slices.ContainsFunc(f.Series[k].Points, func(p plots.Point) bool { return !blank(p) }) {
			f.Series = slices.Delete(f.Series, k, k+1)
			if f.Limit != nil {
				for i := range f.Limit.Values {
					f.Limit.Values[i] = slices.Delete(f.Limit.Values[i], k, k+1)
				}
			}
		}
	}
	for i := len(f.Categories) - 1; i >= 0; i-- {
		if slices.ContainsFunc(f.Series, func(s plots.Series) bool { return !blank(s.Points[i]) }) {
			continue
		}
		f.Categories = slices.Delete(f.Categories, i, i+1)
		for k := range f.Series {
			f.Series[k].Points = slices.Delete(f.Series[k].Points, i, i+1)
		}
		if f.Limit != nil {
			f.Limit.Values = slices.Delete(f.Limit.Values, i, i+1)
		}
	}
	return f
}

// source is the figure's small print: what the marks mean, and where it is from.
func (r *run) source() string {
	what := fmt.Sprintf("Median of %d repeats with 95 %% intervals", r.summary.Repeats)
	switch {
	case r.summary.Repeats == 1:
		what = "One repeat, so no intervals: an estimate"
	case r.summary.Repeats < stat.IntervalRepeats:
		what = fmt.Sprintf("Median of %d repeats, each a ring: too few for intervals", r.summary.Repeats)
	}
	return fmt.Sprintf("%s · %s · commit %s · %s", what, r.plan.Alone(), r.env.Commit, r.env.Machine())
}
