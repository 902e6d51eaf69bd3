package stat

import (
	"fmt"

	"github.com/tidemark-log/tidemark/internal/words"
)

// Verdict is what an interval says about a bound.
type Verdict string

const (
	Supported    Verdict = "supported"
	Refuted      Verdict = "refuted"
	Inconclusive Verdict = "inconclusive"
	// NoVerdict: an estimate only, since the data cannot carry a verdict; the reason is beside it.
	NoVerdict Verdict = "estimate only"
)

// Op compares a ratio with a bound.
type Op string

const (
	Less      Op = "<"
	LessEq    Op = "<="
	Greater   Op = ">"
	GreaterEq Op = ">="
)

// Holds reports whether value op bound.
func (op Op) Holds(value, bound float64) bool {
	switch op {
	case Less:
		return value < bound
	case LessEq:
		return value <= bound
	case Greater:
		return value > bound
	case GreaterEq:
		return value >= bound
	}
	panic(fmt.Sprintf("BUG: stat: unknown comparison %q", string(op)))
}

// Judge says whether the claim "op bound" holds: supported when it holds for
// every ratio in the interval, refuted when for none, otherwise inconclusive.
// From fewer than VerdictRepeats repeats there is no verdict, whatever they show.
func Judge(e Estimate, op Op, bound float64) Verdict {
	if e.N < VerdictRepeats || !e.HasInterval() {
		return NoVerdict
	}
	atLo, atHi := op.Holds(e.Lo, bound), op.Holds(e.Hi, bound)
	switch {
	case atLo && atHi:
		return Supported
	case !atLo && !atHi:
		return Refuted
	}
	return Inconclusive
}

// WarningKind says what is wrong with data that is shown all the same.
type WarningKind string

const (
	NotPositive WarningKind = "not-positive" // repeats left out: a ratio needs two positive numbers
	FewRepeats  WarningKind = "few-repeats"  // too few for an interval or a verdict
	Throttled   WarningKind = "throttled"    // writeback throttled the writer in a cell of the cache regime
	FailedCheck WarningKind = "failed-check" // a repeat whose own check failed
	FailedRun   WarningKind = "failed-run"   // a repeat that gave no sample
	Missing     WarningKind = "missing"      // a metric that a sample does not have
)

// Warning travels with an estimate. Count is how many repeats it concerns.
type Warning struct {
	Kind  WarningKind `json:"kind"`
	Count int         `json:"count"`
}

func (w Warning) String() string {
	switch w.Kind {
	case NotPositive:
		return fmt.Sprintf("%s left out, since a ratio needs two positive numbers: no verdict from the others", words.Count(w.Count, "repeat"))
	case FewRepeats:
		if w.Count < IntervalRepeats {
			return fmt.Sprintf("%s: no 95 %% interval exists below %d, no verdict below %d", words.Count(w.Count, "repeat"), IntervalRepeats, VerdictRepeats)
		}
		return fmt.Sprintf("%s: no verdict below %d", words.Count(w.Count, "repeat"), VerdictRepeats)
	case Throttled:
		return fmt.Sprintf("writeback throttled the writer in %s: no verdict in the cache regime", words.Count(w.Count, "repeat"))
	case FailedCheck:
		return fmt.Sprintf("left out for a failed check: %s", words.Count(w.Count, "repeat"))
	case FailedRun:
		return fmt.Sprintf("%s failed and gave no sample", words.Count(w.Count, "repeat"))
	case Missing:
		return fmt.Sprintf("a sample lacks the metric in %s", words.Count(w.Count, "repeat"))
	}
	return fmt.Sprintf("%s (%d)", w.Kind, w.Count)
}
