package workload

import (
	"context"
	"strings"
	"testing"
)

func TestACeilingRowHoldsOnlyWhenItsWholeIntervalDoes(t *testing.T) {
	near := func(v float64) []float64 {
		return []float64{v, v * 1.01, v * 0.99, v * 1.005, v * 0.995, v, v * 1.002, v * 0.998}
	}
	wide := []float64{50, 150, 60, 160, 90, 110, 100, 70}
	for _, c := range []struct {
		row  CeilingRow
		want string
	}{
		{CeilingRow{Target: 0.8, Ours: near(90), Limit: near(100)}, "holds"},
		{CeilingRow{Target: 0.8, Ours: near(70), Limit: near(100)}, "missed"},
		{CeilingRow{Target: 0.8, Ours: wide, Limit: near(100)}, "unclear"},
		{CeilingRow{Target: 0.8, Ours: []float64{90, 90}, Limit: []float64{100, 100}}, "unclear"}, // too few
		{CeilingRow{Target: 30, AtMost: true, Ours: near(20)}, "holds"},
		{CeilingRow{Target: 0.8, Ours: near(90), Limit: near(100), Void: 1}, "unclear"}, // one failed a check, or was throttled
		{CeilingRow{Target: 30, AtMost: true, Ours: near(40), Void: 1}, "unclear"},
		{CeilingRow{Target: 30, AtMost: true, Ours: near(40)}, "missed"},
	} {
		if c.row.judge(); c.row.Outcome != c.want {
			t.Errorf("%+v: %s, want %s", c.row, c.row.Outcome, c.want)
		}
	}
}

// A side that gave no number is no zero: at most 30 MB resident would hold of a broker that was never looked at.
func TestACeilingRowNeedsANumberOfEachSide(t *testing.T) {
	gives := func(v float64) measure {
		return func(context.Context, uint64) (measured, error) { return measured{value: v}, nil }
	}
	for _, p := range []pair{{ours: gives(0)}, {ours: gives(1), limit: gives(0)}} {
		if err := p.once(t.Context(), 1, false); err == nil || !strings.Contains(err.Error(), "gave no number") {
			t.Errorf("%v", err)
		}
	}
	p := pair{ours: func(context.Context, uint64) (measured, error) { return measured{value: 1, void: true}, nil }, limit: gives(2)}
	if err := p.once(t.Context(), 1, true); err != nil || p.row.Void != 1 {
		t.Errorf("%+v, %v", p.row, err)
	}
}
