package workload

import "testing"

func TestABoundIsHeldAgainstThePartItSpeaksOf(t *testing.T) {
	parts := []Part{{"all stopped", 7}, {"all partitions led", 10}}
	for _, c := range []struct {
		bound Bound
		took  float64
	}{
		{Bound{Sec: 12}, 13},
		{Bound{To: "all partitions led", Sec: 12}, 10},
		{Bound{From: "all stopped", Sec: 12}, 6},
		{Bound{"all stopped", "all partitions led", 12}, 3},
	} {
		m := Moment{Sec: 13, Bound: c.bound, Parts: parts}
		if m.Bounded() != c.took || m.Held() != (c.took <= 12) {
			t.Errorf("%+v: took %v, held %t", c.bound, m.Bounded(), m.Held())
		}
	}
	if m := (Moment{Sec: 1, Wrong: "the stop was not clean"}); m.Held() {
		t.Error("a moment that went wrong was held")
	}
}
