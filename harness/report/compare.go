package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
)

// Comparison holds two runs side by side.
type Comparison struct {
	A           string          `json:"a"`
	B           string          `json:"b"`
	Paired      bool            `json:"paired"`
	Differences []string        `json:"differences"` // of the environments
	Rows        []ComparisonRow `json:"rows"`
	OnlyA       []string        `json:"only_a,omitempty"` // cells that the other run lacks
	OnlyB       []string        `json:"only_b,omitempty"`
}

// ComparisonRow is one metric of one cell. Ratio is B/A.
type ComparisonRow struct {
	Cell   string        `json:"cell"`
	Metric string        `json:"metric"`
	A      result.Number `json:"a"`
	B      result.Number `json:"b"`
	Ratio  result.Number `json:"ratio"`
}

// Compare gives B/A for every cell and metric that both runs have. Runs made
// one after the other share no repeats, so the ratio is unpaired and the
// machine's drift between them is part of it; paired is right only for runs
// whose repeats alternated.
func Compare(dirA, dirB string, paired bool) (*Comparison, error) {
	a, err := read(dirA)
	if err != nil {
		return nil, err
	}
	b, err := read(dirB)
	if err != nil {
		return nil, err
	}
	c := &Comparison{A: dirA, B: dirB, Paired: paired, Differences: append([]string{}, a.env.Differences(b.env)...)}
	if a.spec.Name != b.spec.Name {
		c.Differences = append(c.Differences, fmt.Sprintf("experiment: %s ↔ %s", a.spec.Name, b.spec.Name))
	} else if a.spec.Text != b.spec.Text {
		c.Differences = append(c.Differences, "the experiment's file changed between the runs")
	}
	if a.plan.Size != b.plan.Size || !slices.Equal(a.plan.Set, b.plan.Set) {
		c.Differences = append(c.Differences, fmt.Sprintf("size and settings: %s %v ↔ %s %v", a.plan.Size, a.plan.Set, b.plan.Size, b.plan.Set))
	}
	for _, cell := range a.summary.Cells {
		i := slices.IndexFunc(b.summary.Cells, func(o result.CellSummary) bool { return o.Cell == cell.Cell })
		if i < 0 {
			c.OnlyA = append(c.OnlyA, cell.Cell)
			continue
		}
		for _, metric := range a.metrics() {
			other, okB := b.summary.Cells[i].Metrics[metric]
			if mine, okA := cell.Metrics[metric]; okA && okB {
				c.Rows = append(c.Rows, ComparisonRow{cell.Cell, metric, mine, other, compareRatio(a, b, cell.Cell, metric, paired)})
			}
		}
	}
	for _, cell := range b.summary.Cells {
		if !slices.ContainsFunc(a.summary.Cells, func(o result.CellSummary) bool { return o.Cell == cell.Cell }) {
			c.OnlyB = append(c.OnlyB, cell.Cell)
		}
	}
	if len(c.Rows) == 0 {
		return nil, fmt.Errorf("%s and %s have no cell with numbers in common: runs of one experiment can be compared", dirA, dirB)
	}
	return c, nil
}

func compareRatio(a, b *run, cell, metric string, paired bool) result.Number {
	if !paired {
		e, _ := stat.UnpairedRatio(b.values(cell, metric), a.values(cell, metric))
		return result.NewNumber(e)
	}
	mine, other := a.byRepeat(cell, metric), b.byRepeat(cell, metric)
	var x, y []float64
	for repeat := range max(a.summary.Repeats, b.summary.Repeats) {
		u, okA := mine[repeat]
		v, okB := other[repeat]
		if okA && okB {
			x, y = append(x, v), append(y, u)
		}
	}
	e, _ := stat.PairedRatio(x, y)
	return result.NewNumber(e)
}

func (r *run) byRepeat(cell, metric string) map[int]float64 {
	all := map[int]float64{}
	for _, s := range r.counted {
		if v, ok := s.Metrics[metric]; ok && s.Cell == cell {
			all[s.Repeat] = v
		}
	}
	return all
}

// Print writes the comparison as a table for people.
func (c *Comparison) Print(w io.Writer) {
	how := "unpaired: the machine's drift between the runs is part of the ratios"
	if c.Paired {
		how = "paired by repeat"
	}
	fmt.Fprintf(w, "A %s\nB %s\nB/A, %s\n", c.A, c.B, how)
	if len(c.Differences) > 0 {
		fmt.Fprintln(w, "\nThe runs differ in more than their samples:")
		for _, d := range c.Differences {
			fmt.Fprintln(w, "  "+d)
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cell\tmetric\tA\tB\tB/A\t")
	for _, r := range c.Rows {
		unit := quantityOf(r.Metric).unit
		mark := ""
		if e := r.Ratio.Estimate(); e.HasInterval() && (e.Lo > 1 || e.Hi < 1) {
			mark = "differs"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Cell, r.Metric, number(unit, r.A), number(unit, r.B), Ratio(r.Ratio), mark)
	}
	t.Flush()
	for _, only := range []struct {
		name  string
		cells []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		for _, cell := range only.cells {
			fmt.Fprintf(w, "only in %s: %s\n", only.name, cell)
		}
	}
}
