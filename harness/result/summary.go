package result

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/internal/words"
)

// Summary is what a run's samples say. It follows from spec, size and samples alone.
type Summary struct {
	Experiment string           `json:"experiment"`
	Question   string           `json:"question"`
	Prediction string           `json:"prediction"`
	Size       experiments.Size `json:"size"`
	Repeats    int              `json:"repeats"`
	Missing    int              `json:"missing_samples,omitempty"` // the run was stopped before it had them
	Cells      []CellSummary    `json:"cells"`
	Verdicts   []VerdictSummary `json:"verdicts"`
	Pruned     []PrunedSummary  `json:"pruned,omitempty"`
	Warnings   []string         `json:"warnings,omitempty"` // of the run as a whole
	Failures   []string         `json:"failures,omitempty"` // checks that did not hold, cells that gave no numbers
}

// PrunedSummary is a combination that was not run.
type PrunedSummary struct {
	Cell string `json:"cell"`
	Why  string `json:"why"`
}

// CellSummary is one cell's repeats together.
type CellSummary struct {
	Cell        string            `json:"cell"`
	Levels      map[string]string `json:"levels"`
	Repeats     int               `json:"repeats"` // that count
	Metrics     map[string]Number `json:"metrics"` // medians
	Limits      map[string]Number `json:"limits,omitempty"`
	Shares      map[string]Number `json:"shares,omitempty"` // of the limit: Metrics / Limits, the quotient of the medians
	Warnings    []string          `json:"warnings,omitempty"`
	NotPossible string            `json:"not_possible,omitempty"`
}

// VerdictSummary is one test with its outcome.
type VerdictSummary struct {
	Claim    string         `json:"claim"`
	Says     string         `json:"says"`
	Test     string         `json:"test"`
	Ratio    Number         `json:"ratio"` // of a test of every sample: the one that is nearest to breaking it, or breaks it most
	Verdict  stat.Verdict   `json:"verdict"`
	Warnings []stat.Warning `json:"warnings,omitempty"`
	Figure   string         `json:"figure,omitempty"` // name of the figure that shows it
}

// Number is an estimate in JSON: without lo and hi when there is no interval.
type Number struct {
	Value *float64 `json:"value"` // nil: no data
	Lo    *float64 `json:"lo,omitempty"`
	Hi    *float64 `json:"hi,omitempty"`
	N     int      `json:"n"`
}

// Estimate is the number as statistics know it.
func (n Number) Estimate() stat.Estimate {
	e := stat.Estimate{Value: math.NaN(), Lo: math.NaN(), Hi: math.NaN(), N: n.N}
	if n.Value != nil {
		e.Value = *n.Value
	}
	if n.Lo != nil && n.Hi != nil {
		e.Lo, e.Hi = *n.Lo, *n.Hi
	}
	return e
}

// NewNumber gives an estimate the form it has in JSON.
func NewNumber(e stat.Estimate) Number {
	n := Number{N: e.N}
	if !math.IsNaN(e.Value) {
		n.Value = &e.Value
	}
	if e.HasInterval() {
		n.Lo, n.Hi = &e.Lo, &e.Hi
	}
	return n
}

// Summarize computes the summary.
func Summarize(spec *experiments.Spec, size experiments.Size, samples []Sample) (*Summary, error) {
	cells, pruned, err := spec.Cells()
	if err != nil {
		return nil, err
	}
	s := &Summary{Experiment: spec.Name, Question: spec.Question, Prediction: strings.TrimSpace(spec.Prediction), Size: size}
	for _, p := range pruned {
		s.Pruned = append(s.Pruned, PrunedSummary{p.Name, p.Why})
	}
	table := tabulate(spec, samples)
	s.Repeats = table.repeats
	for _, c := range cells {
		s.Cells = append(s.Cells, table.summarizeCell(c))
	}
	for _, v := range spec.Verdicts {
		s.Verdicts = append(s.Verdicts, table.judge(spec, cells, v, size))
	}
	s.Failures = table.failures(cells)
	s.Missing = table.missing(cells, spec.Run.Repeats)
	s.Warnings = runWarnings(spec, s)
	return s, nil
}

// table holds the samples by cell and repeat.
type table struct {
	checks  []string
	repeats int
	samples map[string]map[int]Sample
}

func tabulate(spec *experiments.Spec, samples []Sample) *table {
	t := &table{checks: spec.Check, samples: map[string]map[int]Sample{}}
	for _, s := range samples { // a later sample of the same repeat replaces an earlier one
		if t.samples[s.Cell] == nil {
			t.samples[s.Cell] = map[int]Sample{}
		}
		t.samples[s.Cell][s.Repeat] = s
		t.repeats = max(t.repeats, s.Repeat+1)
	}
	return t
}

// failedCheck names a check of the spec that the sample failed, or "".
func (t *table) failedCheck(s Sample) string {
	for _, name := range t.checks {
		if seen := s.Checks[name]; seen != "" {
			return name + ": " + seen
		}
	}
	return ""
}

// good gives a repeat's sample if it counts.
func (t *table) good(cell string, repeat int) (Sample, bool) {
	s, ok := t.samples[cell][repeat]
	return s, ok && s.OK() && t.failedCheck(s) == ""
}

// Counted gives the samples that estimates rest on, in their order: those with
// numbers whose checks held, and the last of a repeat that was run again.
func Counted(spec *experiments.Spec, samples []Sample) []Sample {
	t := tabulate(spec, samples)
	last := map[string]map[int]int{}
	for i, s := range samples {
		if last[s.Cell] == nil {
			last[s.Cell] = map[int]int{}
		}
		last[s.Cell][s.Repeat] = i
	}
	var all []Sample
	for i, s := range samples {
		if _, ok := t.good(s.Cell, s.Repeat); ok && last[s.Cell][s.Repeat] == i {
			all = append(all, s)
		}
	}
	return all
}

func (t *table) summarizeCell(c experiments.Cell) CellSummary {
	sum := CellSummary{Cell: c.Name(), Levels: map[string]string{}, Metrics: map[string]Number{}, Limits: map[string]Number{}, Shares: map[string]Number{}}
	for _, l := range c.Levels {
		sum.Levels[l.Key] = l.Value
	}
	metrics, limits := map[string][]float64{}, map[string][]float64{}
	warnings := map[string]int{}
	for repeat := range t.repeats {
		s, ok := t.samples[c.Name()][repeat]
		if ok && s.NotPossible != "" {
			sum.NotPossible = s.NotPossible
		}
		if s, ok = t.good(c.Name(), repeat); !ok {
			continue
		}
		sum.Repeats++
		for name, v := range s.Metrics {
			metrics[name] = append(metrics[name], v)
		}
		for name, v := range s.Limits {
			limits[name] = append(limits[name], v)
		}
		for _, w := range s.Warnings {
			warnings[w]++
		}
	}
	for name, values := range metrics {
		sum.Metrics[name] = NewNumber(stat.Median(values))
	}
	for name, values := range limits {
		sum.Limits[name] = NewNumber(stat.Median(values))
	}
	for name := range limits {
		if share, ok := shareOf(sum.Metrics[name].Estimate(), sum.Limits[name].Estimate()); ok {
			sum.Shares[name] = NewNumber(share)
		}
	}
	sum.Warnings = counted(warnings)
	return sum
}

// judge computes a verdict's paired ratio. A repeat's ratio is the geometric mean
// over all pairs of cells that differ in just what the test's groups differ in.
func (t *table) judge(spec *experiments.Spec, cells []experiments.Cell, v experiments.Verdict, size experiments.Size) VerdictSummary {
	test := v.Parsed()
	sum := VerdictSummary{Claim: v.Claim, Says: v.Says, Test: v.Test, Figure: figureOf(spec, test)}
	if test.Every {
		t.judgeEvery(cells, test, size, &sum)
		return sum
	}
	logs, warnings := t.pairedLogs(cells, test)
	ratio := stat.FromLogs(logs)
	sum.Ratio = NewNumber(ratio)
	if ratio.N < stat.VerdictRepeats {
		warnings = append(warnings, stat.Warning{Kind: stat.FewRepeats, Count: ratio.N})
	}
	sum.Warnings = warnings
	sum.Verdict = stat.Judge(ratio, stat.Op(test.Op), test.Bound)
	// Repeats without a log ratio are those in which one side was nothing: to judge by the others would be to choose among the outcomes.
	void := slices.ContainsFunc(warnings, func(w stat.Warning) bool { return w.Kind == stat.Throttled || w.Kind == stat.NotPositive })
	if size == experiments.SizeQuick || void {
		sum.Verdict = stat.NoVerdict
	}
	return sum
}

// judgeEvery looks for a sample that breaks the test. As many repeats as a verdict
// needs must have kept it; one that broke it is enough to refute it, in any repeat,
// whatever became of the repeat's other cells. That the sample failed a check, which
// may have seen the same, does not hide it; it only keeps the repeat from counting as one that kept the test.
func (t *table) judgeEvery(cells []experiments.Cell, test experiments.Test, size experiments.Size, sum *VerdictSummary) {
	op, worst := stat.Op(test.Op), stat.Estimate{Value: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}
	counts := tally{}
	high := op == stat.Less || op == stat.LessEq
	for repeat := range t.repeats {
		looked, complete := false, true
		for _, c := range cells {
			if !c.Has(test.Where) || !t.possible(c.Name()) {
				continue
			}
			looked = true
			counts.addBad(t, c.Name(), repeat)
			s, ok := t.samples[c.Name()][repeat]
			v, has := s.Metrics[test.Metric]
			if ok = ok && s.OK(); ok && !has {
				counts.add(stat.Missing, repeat)
			}
			complete = complete && ok && has && t.failedCheck(s) == ""
			if ok && has && (math.IsNaN(worst.Value) || v > worst.Value == high && v != worst.Value) {
				worst.Value = v
			}
		}
		if looked && complete {
			worst.N++
		}
	}
	sum.Warnings = counts.warnings()
	if worst.N < stat.VerdictRepeats {
		sum.Warnings = append(sum.Warnings, stat.Warning{Kind: stat.FewRepeats, Count: worst.N})
	}
	sum.Ratio = NewNumber(worst)
	switch {
	case size == experiments.SizeQuick || math.IsNaN(worst.Value):
		sum.Verdict = stat.NoVerdict
	case !op.Holds(worst.Value, test.Bound):
		sum.Verdict = stat.Refuted
	case worst.N < stat.VerdictRepeats:
		sum.Verdict = stat.NoVerdict
	default:
		sum.Verdict = stat.Supported
	}
}

// tally holds the repeats in which something was seen, by what it was: a cell is in
// several pairs, and a repeat in which it failed is still one.
type tally map[stat.WarningKind]map[int]bool

func (c tally) add(kind stat.WarningKind, repeat int) {
	if c[kind] == nil {
		c[kind] = map[int]bool{}
	}
	c[kind][repeat] = true
}

// addBad adds what keeps a cell's sample of a repeat from counting.
func (c tally) addBad(t *table, cell string, repeat int) {
	s, ok := t.samples[cell][repeat]
	switch {
	case !ok, s.NotPossible != "":
	case s.Error != "":
		c.add(stat.FailedRun, repeat)
	case t.failedCheck(s) != "":
		c.add(stat.FailedCheck, repeat)
	}
}

func (c tally) warnings() (all []stat.Warning) {
	for _, kind := range slices.Sorted(maps.Keys(c)) {
		all = append(all, stat.Warning{Kind: kind, Count: len(c[kind])})
	}
	return all
}

// pairedLogs gives a log ratio for every repeat in which all pairs have one. A
// repeat that lacks a pair is left out: a mean over the others would be of something else.
func (t *table) pairedLogs(cells []experiments.Cell, test experiments.Test) (logs []float64, warnings []stat.Warning) {
	counts := tally{}
	pairs := t.pairs(cells, test)
	for repeat := range t.repeats {
		sum, complete := 0.0, len(pairs) > 0
		for _, pair := range pairs {
			l, ok := t.pairLog(pair, repeat, test.Metric, counts)
			sum, complete = sum+l, complete && ok
		}
		if complete {
			logs = append(logs, sum/float64(len(pairs)))
		}
	}
	return logs, counts.warnings()
}

// pairs lists the pairs of cells that a test compares, without those that this machine cannot run.
func (t *table) pairs(cells []experiments.Cell, test experiments.Test) [][2]string {
	var all [][2]string
	for _, top := range cells {
		bottom, ok := partner(cells, top, test)
		if ok && t.possible(top.Name()) && t.possible(bottom.Name()) {
			all = append(all, [2]string{top.Name(), bottom.Name()})
		}
	}
	return all
}

func (t *table) possible(cell string) bool {
	for _, s := range t.samples[cell] {
		if s.NotPossible != "" {
			return false
		}
	}
	return true
}

// pairLog gives one pair's log ratio in one repeat and counts what keeps it from having one.
func (t *table) pairLog(pair [2]string, repeat int, metric string, counts tally) (float64, bool) {
	a, okA := t.good(pair[0], repeat)
	b, okB := t.good(pair[1], repeat)
	counts.addBad(t, pair[0], repeat)
	counts.addBad(t, pair[1], repeat)
	if !okA || !okB {
		return 0, false
	}
	x, okA := a.Metrics[metric]
	y, okB := b.Metrics[metric]
	switch {
	case !okA || !okB:
		counts.add(stat.Missing, repeat)
		return 0, false
	case !(x > 0 && y > 0):
		counts.add(stat.NotPositive, repeat)
		return 0, false
	}
	if a.Throttled || b.Throttled {
		counts.add(stat.Throttled, repeat)
	}
	return math.Log(x / y), true
}

// partner finds the cell to divide by: the same levels, but for the denominator's.
func partner(cells []experiments.Cell, top experiments.Cell, test experiments.Test) (experiments.Cell, bool) {
	if !top.Has(test.Numerator) || !top.Has(test.Where) {
		return experiments.Cell{}, false
	}
	want := slices.Clone(top.Levels)
	for i := range want {
		for _, d := range test.Denominator {
			if want[i].Key == d.Key {
				want[i] = d
			}
		}
	}
	for _, c := range cells {
		if slices.Equal(c.Levels, want) {
			return c, true
		}
	}
	return experiments.Cell{}, false
}

// figureOf finds the figure that shows a test's cells, best with the test's own metric; "" where none shows them.
func figureOf(spec *experiments.Spec, test experiments.Test) string {
	best, bestScore := "", 0
	for _, f := range spec.Figures {
		score := 1
		if f.Metric == test.Metric || slices.Contains(f.Notes, test.Metric) {
			score += 100
		}
		for _, group := range [][]experiments.Setting{test.Where, test.Numerator, test.Denominator} {
			for _, w := range group {
				if v, ok := f.Where[w.Key]; ok && experiments.Text(v) == w.Value {
					score += 2
				} else if ok {
					score = -1000
				}
			}
		}
		if score > bestScore {
			best, bestScore = f.Name, score
		}
	}
	return best
}

// failures groups what went wrong by what was said, and names the first cell of each.
func (t *table) failures(cells []experiments.Cell) []string {
	first, counts := map[string]string{}, map[string]int{}
	for _, c := range cells {
		for repeat := range t.repeats {
			s, ok := t.samples[c.Name()][repeat]
			what := ""
			switch {
			case !ok:
			case s.Error != "":
				what = shorten(s.Error)
			case s.OK() && t.failedCheck(s) != "":
				what = "check failed: " + t.failedCheck(s)
			}
			if what == "" {
				continue
			}
			if counts[what]++; counts[what] == 1 {
				first[what] = c.Name()
			}
		}
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		where := first[what]
		if n := counts[what]; n > 1 {
			where = fmt.Sprintf("%d samples, the first of %s", n, where)
		}
		all = append(all, where+": "+what)
	}
	return all
}

// missing counts the samples that were asked for and not taken. A cell that was given up, since it failed or cannot run here, lacks none.
func (t *table) missing(cells []experiments.Cell, repeats int) int {
	n := 0
	for _, c := range cells {
		lacks, gaveUp := 0, false
		for repeat := range max(repeats, t.repeats) {
			s, ok := t.samples[c.Name()][repeat]
			gaveUp = gaveUp || ok && !s.OK()
			if !ok {
				lacks++
			}
		}
		if !gaveUp {
			n += lacks
		}
	}
	return n
}

// shorten keeps the ends of a long message: what failed, and why.
func shorten(text string) string {
	const head, rest = 60, 240
	if r := []rune(text); len(r) > head+rest+3 {
		return string(r[:head]) + " … " + string(r[len(r)-rest:])
	}
	return text
}

func runWarnings(spec *experiments.Spec, s *Summary) []string {
	var all []string
	notPossible := map[string]int{}
	for _, c := range s.Cells {
		if c.NotPossible != "" {
			notPossible[c.NotPossible]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(notPossible)) {
		all = append(all, fmt.Sprintf("%d of %d cells cannot run on this machine: %s", notPossible[why], len(s.Cells), why))
	}
	if s.Missing > 0 {
		all = append(all, fmt.Sprintf("%s missing: the run was stopped before its end, and what its numbers said then may be why.", words.Count(s.Missing, "sample")+map[bool]string{true: " is", false: " are"}[s.Missing == 1]))
	}
	all = append(all, overLimit(s.Cells, LimitMetrics(spec))...)
	switch {
	case s.Size == experiments.SizeQuick:
		all = append(all, fmt.Sprintf("Quick size, %s: estimates, no verdicts.", words.Count(s.Repeats, "repeat")))
	case s.Repeats < stat.VerdictRepeats:
		all = append(all, fmt.Sprintf("%s: no verdict below %d.", words.Count(s.Repeats, "repeat"), stat.VerdictRepeats))
	}
	return all
}

func counted(counts map[string]int) []string {
	var all []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[text]; n > 1 {
			text = fmt.Sprintf("%s (%d times)", text, n)
		}
		all = append(all, text)
	}
	return all
}

func keysOf(a, b map[string]string) []string {
	both := maps.Clone(a)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}
