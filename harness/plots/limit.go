package plots

import (
	"math"
	"slices"
)

// Limit is what the machine itself does.
type Limit struct {
	Name string
	// Values has one for each category and series: Values[category][series]; NaN where there is none.
	Values [][]float64
}

// limitPoints gives one limit per category: the median over the series, beside
// each of which it was measured. nil: there is none.
func (f *Figure) limitPoints() []float64 {
	if f.Limit == nil {
		return nil
	}
	points := make([]float64, len(f.Categories))
	any := false
	for i, row := range f.Limit.Values {
		var known []float64
		for _, v := range row {
			if f.drawable(v) {
				known = append(known, v)
			}
		}
		points[i] = math.NaN()
		if len(known) > 0 {
			slices.Sort(known)
			points[i], any = known[len(known)/2], true
		}
	}
	if !any {
		return nil
	}
	return points
}

func (f *Figure) limitLabel() []string {
	return []string{"machine's limit", f.Limit.Name}
}

// share is how much of the limit a mark reaches: the quotient of the two marks that
// are drawn, so that who reads them off the axis finds what the label says. 0: none is shown.
func (f *Figure) share(category, series int) float64 {
	value, limit := f.Series[series].Points[category].Value, f.limitBeside(category, series)
	if !f.drawable(value) || !f.drawable(limit) || limit <= 0 {
		return 0
	}
	return value / limit
}

// limitBeside is the limit that is drawn for a mark; NaN for none.
func (f *Figure) limitBeside(category, series int) float64 {
	if f.Limit == nil {
		return math.NaN()
	}
	if f.Kind == Bars { // over each bar its own
		return f.Limit.Values[category][series]
	}
	if points := f.limitPoints(); points != nil {
		return points[category]
	}
	return math.NaN()
}

// shares are those of all marks.
func (f *Figure) shares() (all []float64) {
	for k := range f.Series {
		for i := range f.Categories {
			if s := f.share(i, k); s > 0 {
				all = append(all, s)
			}
		}
	}
	return all
}

// aboveLimit explains labels that say more than 100 %, if there are any.
func (f *Figure) aboveLimit() string {
	if !slices.ContainsFunc(f.shares(), func(s float64) bool { return math.Round(s*100) > 100 }) {
		return ""
	}
	return "Above 100\u00a0%: this limit is no bound by nature but a plain loop that was run beside each cell. " +
		"Whoever overlaps work that the loop does in turn passes it; so does chance, where repeats are few or lie far apart."
}

func percent(share float64) string { return digits(math.Round(share*100)) + "\u00a0%" }
