// Package stat turns repeated measurements into estimates with intervals, and
// intervals into verdicts. It knows nothing of files, formats or experiments.
//
// Two cells of an experiment are compared by their ratio. Repeats are
// interleaved, so repeat i of one cell ran close in time to repeat i of the
// other and shares what the machine was doing; the pair's log ratio cancels it.
// From the log ratios come the Hodges–Lehmann estimate and the interval that
// inverts the exact Wilcoxon signed-rank test, after exponentiation a ratio and
// its interval. Both assume that log ratios are symmetric about their centre and
// nothing else about their distribution.
//
// Sampling stops on the interval's width and never on what it says: stopping as
// soon as a verdict appears would make wrong verdicts common.
package stat

import (
	"math"
	"slices"
)

// Confidence is the level of every interval that this package gives.
const Confidence = 0.95

// VerdictRepeats is the fewest repeats from which a verdict may be given.
const VerdictRepeats = 8

// IntervalRepeats is the fewest paired values for which a 95 % signed-rank
// interval exists: with five, even the most extreme outcome has probability 2/32.
const IntervalRepeats = 6

// Estimate is a value with its interval. Lo and Hi are NaN when N is too small
// for an interval at Confidence.
type Estimate struct {
	Value  float64
	Lo, Hi float64
	N      int
}

// HasInterval reports whether the estimate has one.
func (e Estimate) HasInterval() bool { return !math.IsNaN(e.Lo) && !math.IsNaN(e.Hi) }

// RelativeWidth is Hi/Lo − 1, how far the ends of a ratio's interval lie apart; +Inf without one.
func (e Estimate) RelativeWidth() float64 {
	if !e.HasInterval() || e.Lo <= 0 {
		return math.Inf(1)
	}
	return e.Hi/e.Lo - 1
}

// HodgesLehmann is the median of all pairwise means (each value with itself
// included), the estimate that belongs to the signed-rank test, with that test's
// exact interval. NaN for no values.
func HodgesLehmann(values []float64) Estimate {
	n := len(values)
	if n == 0 {
		return Estimate{math.NaN(), math.NaN(), math.NaN(), 0}
	}
	walsh := make([]float64, 0, n*(n+1)/2)
	for i := range values {
		for j := i; j < n; j++ {
			walsh = append(walsh, (values[i]+values[j])/2)
		}
	}
	slices.Sort(walsh)
	e := Estimate{Value: medianSorted(walsh), Lo: math.NaN(), Hi: math.NaN(), N: n}
	if k := signedRankRank(n, 1-Confidence); k > 0 {
		e.Lo, e.Hi = walsh[k-1], walsh[len(walsh)-k]
	}
	return e
}

// PairedRatio estimates a/b from pairs measured in the same repeat. Pairs with a
// value that is not a positive finite number have no log ratio: they are left
// out and counted in a warning.
func PairedRatio(a, b []float64) (Estimate, []Warning) {
	if len(a) != len(b) {
		panic("BUG: stat: PairedRatio needs pairs")
	}
	logs, warnings := LogRatios(a, b)
	return FromLogs(logs), warnings
}

// LogRatios gives log(a[i]/b[i]) of every pair that has one.
func LogRatios(a, b []float64) (logs []float64, warnings []Warning) {
	for i := range a {
		if positive(a[i]) && positive(b[i]) {
			logs = append(logs, math.Log(a[i]/b[i]))
		}
	}
	if dropped := len(a) - len(logs); dropped > 0 {
		warnings = append(warnings, Warning{NotPositive, dropped})
	}
	return logs, warnings
}

// FromLogs turns log ratios into a ratio and its interval.
func FromLogs(logs []float64) Estimate {
	e := HodgesLehmann(logs)
	e.Value, e.Lo, e.Hi = math.Exp(e.Value), math.Exp(e.Lo), math.Exp(e.Hi)
	return e
}

// UnpairedRatio estimates a/b from two runs that share no repeats: the median of
// all log ratios, with the interval that inverts the exact Mann–Whitney test.
func UnpairedRatio(a, b []float64) (Estimate, []Warning) {
	goodA, goodB := onlyPositive(a), onlyPositive(b)
	var logs []float64
	for _, x := range goodA {
		for _, y := range goodB {
			logs = append(logs, math.Log(x/y))
		}
	}
	var warnings []Warning
	if dropped := len(a) + len(b) - len(goodA) - len(goodB); dropped > 0 {
		warnings = append(warnings, Warning{NotPositive, dropped})
	}
	e := Estimate{math.NaN(), math.NaN(), math.NaN(), min(len(goodA), len(goodB))}
	if len(logs) == 0 {
		return e, warnings
	}
	slices.Sort(logs)
	e.Value = math.Exp(medianSorted(logs))
	if k := rankSumRank(len(goodA), len(goodB), 1-Confidence); k > 0 {
		e.Lo, e.Hi = math.Exp(logs[k-1]), math.Exp(logs[len(logs)-k])
	}
	return e, warnings
}

// Median gives the median and the order statistics that enclose the true median
// with probability of at least Confidence, whatever the distribution.
func Median(values []float64) Estimate {
	n := len(values)
	if n == 0 {
		return Estimate{math.NaN(), math.NaN(), math.NaN(), 0}
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	e := Estimate{Value: medianSorted(sorted), Lo: math.NaN(), Hi: math.NaN(), N: n}
	if k := binomialRank(n, 1-Confidence); k > 0 {
		e.Lo, e.Hi = sorted[k-1], sorted[n-k]
	}
	return e
}

// GeometricMean of positive values; NaN for none or when one is not positive.
func GeometricMean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		if !positive(v) {
			return math.NaN()
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) && !math.IsNaN(v) }

func onlyPositive(values []float64) []float64 {
	var kept []float64
	for _, v := range values {
		if positive(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

func medianSorted(sorted []float64) float64 {
	lower, upper := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	return lower + (upper-lower)/2
}
