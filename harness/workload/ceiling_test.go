package workload

import "testing"

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
		{CeilingRow{Target: 30, AtMost: true, Ours: near(40)}, "missed"},
	} {
		if c.row.judge(); c.row.Outcome != c.want {
			t.Errorf("%+v: %s, want %s", c.row, c.row.Outcome, c.want)
		}
	}
}
