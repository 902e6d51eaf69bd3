package workload

import "testing"

// A rate that was measured at another size than the cell's is no measurement of the cell.
func TestDataThatStaysShortOfItsSizeFailsTheCheck(t *testing.T) {
	p := DefaultParams()
	p.DataBytes = 100 << 20
	for sent, reached := range map[int64]bool{100 << 20: true, 110 << 20: true, 90 << 20: true, 90<<20 - 1: false, 0: false} {
		r := newResult()
		b := &bed{p: &p, r: &r}
		b.checkGrown(sent)
		if seen, made := r.Checks["size-reached"]; !made || (seen == "") != reached {
			t.Errorf("%d bytes: %q, made: %t", sent, seen, made)
		}
	}
}
