package result

import (
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/stat"
)

const limited = `vary = { acks = ["0", "1"] }
[[figures]]
name = "f"
title = "t"
metric = "m"
x = "acks"
kind = "bars"
limit = "a loop"
`

// limitedSamples gives cell acks=0 the values and limits, and acks=1 half of its limit.
func limitedSamples(values, limits []float64) []Sample {
	var all []Sample
	for i, v := range values {
		all = append(all,
			Sample{Cell: "acks=0", Repeat: i, Metrics: map[string]float64{"m": v}, Limits: map[string]float64{"m": limits[i]}},
			Sample{Cell: "acks=1", Repeat: i, Metrics: map[string]float64{"m": limits[i] / 2}, Limits: map[string]float64{"m": limits[i]}})
	}
	return all
}

// In two repeats the machine changed: each repeat's own quotient is 5, or nearly 1; the medians that are drawn stand at 36 and 33.
func TestAShareIsTheQuotientOfTheMediansThatAreDrawn(t *testing.T) {
	sum, err := Summarize(spec(t, limited), experiments.SizeQuick, limitedSamples([]float64{25, 47}, []float64{5, 61}))
	if err != nil {
		t.Fatal(err)
	}
	c := sum.Cells[0]
	share := c.Shares["m"].Estimate()
	if want := *c.Metrics["m"].Value / *c.Limits["m"].Value; share.Value != want || want != 36.0/33 || share.N != 2 {
		t.Errorf("share %v, and the marks say %v", share, want)
	}
}

func TestTheReportSaysWhetherAPassedLimitMayBeChance(t *testing.T) {
	near := func(middle float64) (all []float64) {
		for i := range stat.VerdictRepeats {
			all = append(all, middle*(1+float64(i-4)/100))
		}
		return all
	}
	for name, c := range map[string]struct {
		values, limits []float64
		want           string
	}{
		"few":       {[]float64{36, 36}, []float64{33, 33}, "too few repeats to tell it from chance"},
		"touching":  {near(102), near(100), "it may be chance"},
		"apart":     {near(120), near(100), "by more than the repeats vary"},
		"reached":   {near(100.4), near(100), ""},
		"below":     {near(90), near(100), ""},
		"slightly":  {[]float64{101}, []float64{100}, "too few repeats"},
		"no number": {[]float64{1}, []float64{0}, ""},
	} {
		sum, err := Summarize(spec(t, limited), experiments.SizeDefault, limitedSamples(c.values, c.limits))
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(sum.Warnings, "\n")
		if c.want == "" && strings.Contains(said, "above the limit") || !strings.Contains(said, c.want) || c.want != "" && !strings.Contains(said, "1 cell came out above the limit measured beside it") {
			t.Errorf("%s: %q was expected of %q", name, c.want, said)
		}
	}
}
