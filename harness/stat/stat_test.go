package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Critical values as printed in tables of the signed-rank test, two-sided 5 %
// (for example Hollander & Wolfe, Nonparametric Statistical Methods).
func TestSignedRankRanksAreThePublishedCriticalValues(t *testing.T) {
	for n, critical := range map[int]int{6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89, 30: 137, 40: 264, 50: 434} {
		if got := signedRankRank(n, 0.05) - 1; got != critical {
			t.Errorf("n=%d: critical value %d, tables say %d", n, got, critical)
		}
	}
	for n := range 6 {
		if k := signedRankRank(n, 0.05); k != 0 {
			t.Errorf("n=%d: rank %d, but no 95 %% interval exists", n, k)
		}
	}
}

// For small n every assignment of signs can be listed.
func TestSignedRankDistributionIsThatOfAllSignAssignments(t *testing.T) {
	for n := 1; n <= 12; n++ {
		counts := make([]int, n*(n+1)/2+1)
		for signs := range 1 << n {
			w := 0
			for rank := 1; rank <= n; rank++ {
				if signs>>(rank-1)&1 == 1 {
					w += rank
				}
			}
			counts[w]++
		}
		for w, p := range signedRankDistribution(n) {
			if want := float64(counts[w]) / float64(int(1)<<n); math.Abs(p-want) > 1e-15 {
				t.Fatalf("n=%d P(W=%d) = %g, want %g", n, w, p, want)
			}
		}
	}
}

func TestRankSumRanksAreThePublishedCriticalValues(t *testing.T) {
	for _, c := range []struct{ m, n, critical int }{{4, 4, 0}, {5, 5, 2}, {6, 6, 5}, {8, 8, 13}, {8, 10, 17}, {10, 10, 23}, {20, 20, 127}} {
		if got := rankSumRank(c.m, c.n, 0.05) - 1; got != c.critical {
			t.Errorf("m=%d n=%d: critical value %d, tables say %d", c.m, c.n, got, c.critical)
		}
	}
	if k := rankSumRank(3, 3, 0.05); k != 0 {
		t.Errorf("3 against 3: rank %d, but no 95 %% interval exists", k)
	}
}

// The depression scale of nine patients at two visits (Hollander & Wolfe,
// example 3.1): estimate −0.46, 96.1 % interval (−0.786, −0.010), p = 0.039.
func TestHodgesLehmannGivesTheTextbookExample(t *testing.T) {
	first := []float64{1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30}
	second := []float64{0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29}
	var d []float64
	for i := range first {
		d = append(d, second[i]-first[i])
	}
	e := HodgesLehmann(d)
	if math.Abs(e.Value+0.46) > 1e-9 || math.Abs(e.Lo+0.786) > 1e-9 || math.Abs(e.Hi+0.010) > 1e-9 {
		t.Errorf("got %.4f (%.4f, %.4f), the book says −0.46 (−0.786, −0.010)", e.Value, e.Lo, e.Hi)
	}
	if p := 2 * SignedRankCDF(9, 5); math.Abs(p-0.0390625) > 1e-12 {
		t.Errorf("two-sided p of W=5, n=9 is %g, the book says 0.039", p)
	}
}

func TestMedianIntervalIsThatOfTheSignTest(t *testing.T) {
	for n, k := range map[int]int{5: 0, 6: 1, 8: 1, 9: 2, 10: 2, 15: 4, 20: 6, 30: 10} {
		var v []float64
		for i := n; i >= 1; i-- {
			v = append(v, float64(i))
		}
		e := Median(v)
		if e.Value != float64(n+1)/2 {
			t.Errorf("n=%d: median %g", n, e.Value)
		}
		if k == 0 {
			if e.HasInterval() {
				t.Errorf("n=%d has an interval, none exists", n)
			}
			continue
		}
		if e.Lo != float64(k) || e.Hi != float64(n+1-k) {
			t.Errorf("n=%d: interval %g…%g, tables say %d…%d", n, e.Lo, e.Hi, k, n+1-k)
		}
	}
}

// A pair shares what the machine was doing, so its ratio is free of it: here the
// machine's speed varies tenfold and the ratio is found all the same.
func TestPairedRatioCancelsWhatAPairShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var a, b []float64
	for range 10 {
		machine := math.Exp(rng.NormFloat64())
		a = append(a, 3*machine*math.Exp(0.01*rng.NormFloat64()))
		b = append(b, machine*math.Exp(0.01*rng.NormFloat64()))
	}
	e, _ := PairedRatio(a, b)
	if e.Lo < 2.9 || e.Hi > 3.1 {
		t.Errorf("paired ratio %.3f (%.3f…%.3f), want 3", e.Value, e.Lo, e.Hi)
	}
	u, _ := UnpairedRatio(a, b)
	if u.RelativeWidth() < 10*e.RelativeWidth() {
		t.Errorf("without pairs the interval should be far wider: %g against %g", u.RelativeWidth(), e.RelativeWidth())
	}
}

func TestPairsWithoutALogRatioAreLeftOutAndSaid(t *testing.T) {
	e, w := PairedRatio([]float64{2, 0, math.NaN(), 2, math.Inf(1)}, []float64{1, 1, 1, 1, 1})
	if e.N != 2 || math.Abs(e.Value-2) > 1e-12 {
		t.Errorf("got %+v", e)
	}
	if !slices.Equal(w, []Warning{{NotPositive, 3}}) {
		t.Errorf("warnings %v", w)
	}
}

// coverage simulates experiments of n repeats whose log ratio has centre log 2 and
// gives the share whose interval holds it, and the share that reached a verdict on "> 2",
// which neither way is right.
func coverage(n, trials int, noise func(*rand.Rand) float64, interval func([]float64) Estimate) (covered, verdicts float64) {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	for range trials {
		logs := make([]float64, n)
		for i := range logs {
			logs[i] = math.Ln2 + noise(rng)
		}
		e := interval(logs)
		if e.Lo <= 2 && 2 <= e.Hi {
			covered++
		}
		if v := Judge(e, Greater, 2); v == Supported || v == Refuted {
			verdicts++
		}
	}
	return covered / float64(trials), verdicts / float64(trials)
}

func normal(r *rand.Rand) float64 { return 0.2 * r.NormFloat64() }

// heavy is a contaminated normal: one repeat in ten is disturbed ten times as much.
func heavy(r *rand.Rand) float64 {
	if r.IntN(10) == 0 {
		return 2 * r.NormFloat64()
	}
	return 0.2 * r.NormFloat64()
}

const trials = 6000

func TestIntervalsCoverTheTruthAsOftenAsTheySay(t *testing.T) {
	for name, noise := range map[string]func(*rand.Rand) float64{"normal": normal, "heavy-tailed": heavy} {
		for _, n := range []int{8, 10, 20} {
			exact := 1 - 2*SignedRankCDF(n, signedRankRank(n, 0.05)-1)
			got, verdicts := coverage(n, trials, noise, FromLogs)
			margin := 3.5 * math.Sqrt(exact*(1-exact)/trials)
			if math.Abs(got-exact) > margin {
				t.Errorf("%s n=%d: covered %.4f, exact level %.4f ± %.4f", name, n, got, exact, margin)
			}
			if verdicts > 0.05+margin {
				t.Errorf("%s n=%d: %.4f verdicts where the truth lies on the bound", name, n, verdicts)
			}
		}
	}
}

// The planted fault: an interval from one rank too far inside. The simulation must notice.
func TestCoverageSimulationNoticesAnIntervalThatIsTooNarrow(t *testing.T) {
	narrow := func(logs []float64) Estimate {
		var walsh []float64
		for i := range logs {
			for j := i; j < len(logs); j++ {
				walsh = append(walsh, (logs[i]+logs[j])/2)
			}
		}
		slices.Sort(walsh)
		k := signedRankRank(len(logs), 0.05) + 2
		return Estimate{Value: 1, Lo: math.Exp(walsh[k-1]), Hi: math.Exp(walsh[len(walsh)-k]), N: len(logs)}
	}
	exact := 1 - 2*SignedRankCDF(8, signedRankRank(8, 0.05)-1)
	if got, _ := coverage(8, trials, normal, narrow); got > exact-3.5*math.Sqrt(exact*(1-exact)/trials) {
		t.Errorf("covered %.4f: a too narrow interval went unnoticed", got)
	}
}

func TestVerdictsFollowFromTheIntervalAlone(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		n      int
		op     Op
		want   Verdict
	}{
		{1.2, 1.5, 8, Less, Supported},
		{2.1, 2.5, 8, Less, Refuted},
		{1.9, 2.5, 8, Less, Inconclusive},
		{2.1, 2.5, 8, Greater, Supported},
		{2, 2.5, 8, GreaterEq, Supported},
		{2, 2.5, 8, Greater, Inconclusive},
		{1.2, 2, 8, LessEq, Supported},
		{1.2, 1.5, 7, Less, NoVerdict}, // fewer than eight repeats never give one
		{math.NaN(), math.NaN(), 8, Less, NoVerdict},
	} {
		if got := Judge(Estimate{Value: (c.lo + c.hi) / 2, Lo: c.lo, Hi: c.hi, N: c.n}, c.op, 2); got != c.want {
			t.Errorf("(%g, %g) n=%d %s 2: %s, want %s", c.lo, c.hi, c.n, c.op, got, c.want)
		}
	}
}
