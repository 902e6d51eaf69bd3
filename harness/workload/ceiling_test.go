package workload

import (
	"context"
	"slices"
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

func gives(values ...float64) measure {
	n := 0
	return func(context.Context, uint64) (measured, error) {
		n++
		return measured{value: values[(n-1)%len(values)]}, nil
	}
}

// A side that gave no number is no zero: at most 30 MB resident would hold of a broker that was never looked at.
func TestACeilingRowNeedsANumberOfEachSide(t *testing.T) {
	for _, p := range []comparison{single(CeilingRow{}, gives(0), nil), single(CeilingRow{}, gives(1), gives(0))} {
		if err := p.once(t.Context(), 1, []int{0, 1}); err == nil || !strings.Contains(err.Error(), "gave no number") {
			t.Errorf("%v", err)
		}
	}
}

// Two rows of one measurement have the same values of ours, in pairs with their own limits, whatever the order.
func TestRowsThatShareAMeasurementPairItWithTheirOwnLimits(t *testing.T) {
	p := comparison{ours: gives(1, 2, 3), against: []against{{limit: gives(10, 20, 30)}, {limit: gives(100, 200, 300)}}}
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}} {
		if err := p.once(t.Context(), 1, order); err != nil {
			t.Fatal(err)
		}
	}
	for i, limit := range [][]float64{{10, 20, 30}, {100, 200, 300}} {
		if row := p.against[i].row; !slices.Equal(row.Ours, []float64{1, 2, 3}) || !slices.Equal(row.Limit, limit) {
			t.Errorf("row %d: %v against %v", i, row.Ours, row.Limit)
		}
	}
}

// What is void of ours is void in each row; what is void of a limit, in its own.
func TestAVoidMeasurementCountsWhereItIsUsed(t *testing.T) {
	void := func(context.Context, uint64) (measured, error) { return measured{value: 1, void: true}, nil }
	for _, c := range []struct {
		comparison comparison
		want       [2]int
	}{
		{comparison{ours: void, against: []against{{limit: gives(2)}, {limit: gives(2)}}}, [2]int{1, 1}},
		{comparison{ours: gives(2), against: []against{{limit: gives(2)}, {limit: void}}}, [2]int{0, 1}},
	} {
		if err := c.comparison.once(t.Context(), 1, []int{1, 0, 2}); err != nil {
			t.Fatal(err)
		}
		if got := [2]int{c.comparison.against[0].row.Void, c.comparison.against[1].row.Void}; got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

// A server that only receives and writes tells whether the disk is what a broker can be held against.
func TestTheDiskRowSaysWhenNoServerReachesTheDisk(t *testing.T) {
	for _, c := range []struct {
		bare, disk float64
		warns      string
	}{{95, 100, ""}, {60, 100, "a bare server reaches only 0.6 of the disk"}} {
		p := Ceiling{Disk: true}.disk()
		p.ours, p.against[0].limit, p.against[1].limit = gives(50), gives(c.disk), gives(c.bare)
		for range 2 {
			if err := p.once(t.Context(), 1, []int{2, 1, 0}); err != nil {
				t.Fatal(err)
			}
		}
		p.judge()
		alone, bare := p.against[0].row, p.against[1].row
		if got := strings.Join(alone.Warnings, "; "); !strings.HasSuffix(got, c.warns) || (got == "") != (c.warns == "") {
			t.Errorf("bare %v of %v: warnings %q, want %q", c.bare, c.disk, got, c.warns)
		}
		if len(bare.Warnings) > 0 || alone.Estimate != 50/c.disk || bare.Estimate != 50/c.bare {
			t.Errorf("%+v, %+v", alone, bare)
		}
	}
}

// A kernel that takes the limit and does not keep it must not let a disk that was never slow pass for one that was.
func TestWhatIsFasterThanTheHeldDiskIsVoid(t *testing.T) {
	const rate = 100e6
	for value, void := range map[float64]bool{60e6: false, 100e6: false, 104e6: false, 106e6: true, 2e9: true} {
		m := measured{value: value}
		if m.seeHeld(rate); m.void != void || void != (len(m.warnings) > 0) {
			t.Errorf("%v of %v: void %v, %q", value, rate, m.void, m.warnings)
		}
	}
}
