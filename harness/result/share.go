package result

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/internal/words"
)

// LimitMetrics lists the metrics beside which the spec's figures draw the machine's limit.
func LimitMetrics(spec *experiments.Spec) []string {
	var all []string
	for _, f := range spec.Figures {
		if f.Limit != "" && !slices.Contains(all, f.Metric) {
			all = append(all, f.Metric)
		}
	}
	return all
}

// shareOf is how much of the machine's limit a cell reaches: the quotient of the two
// medians, which stand in the table and are drawn, so that a reader finds the share
// again. The median of the repeats' own quotients may be far from it where the limit
// varies. It has no interval: the medians have theirs.
func shareOf(metric, limit stat.Estimate) (stat.Estimate, bool) {
	share := stat.Estimate{Value: metric.Value / limit.Value, Lo: math.NaN(), Hi: math.NaN(), N: min(metric.N, limit.N)}
	return share, limit.Value > 0 && !math.IsNaN(metric.Value)
}

// overLimit tells of cells that beat what was measured as the machine's limit beside
// them, in the whole per cent that labels give: of which that is more than chance, and of which perhaps not.
func overLimit(cells []CellSummary, metrics []string) []string {
	worst, where, n := 0.0, "", 0
	var apart, touching, few int
	for _, c := range cells {
		for _, metric := range metrics {
			share := c.Shares[metric].Estimate().Value
			if !(math.Round(share*100) > 100) {
				continue
			}
			if n++; share > worst {
				worst, where = share, c.Cell
			}
			switch m, l := c.Metrics[metric].Estimate(), c.Limits[metric].Estimate(); {
			case !m.HasInterval() || !l.HasInterval():
				few++
			case m.Lo > l.Hi:
				apart++
			default:
				touching++
			}
		}
	}
	if n == 0 {
		return nil
	}
	var why []string
	for _, w := range []struct {
		n    int
		says string
	}{
		{few, "with too few repeats to tell it from chance"},
		{touching, "within what the repeats vary, so it may be chance"},
		{apart, "by more than the repeats vary: the limit is a loop that does one thing after the other, and a cell that overlaps work passes it"},
	} {
		if w.n > 0 && w.n == n {
			why = append(why, w.says)
		} else if w.n > 0 {
			why = append(why, fmt.Sprintf("%d %s", w.n, w.says))
		}
	}
	beside := "them"
	if n == 1 {
		beside = "it"
	}
	return []string{fmt.Sprintf("%s came out above the limit measured beside %s, up to %.0f %% of it (%s): %s.", words.Count(n, "cell"), beside, worst*100, where, strings.Join(why, "; "))}
}
