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

// TestNoSeekGoesBehindTheLastBatchsRecords: under byte offsets most offsets of a batch lie behind its records, and are answered by the
// next one. One of some thousand seeks fell behind those of the last batch, and failed its cell.
func TestNoSeekGoesBehindTheLastBatchsRecords(t *testing.T) {
	c := quick(t, Recovery, "lab.offsets=byte", "data_bytes=512KiB", "unflushed_bytes=128KiB", "batch_records=20", "measure=100ms")
	r, err := Run(t.Context(), c)
	if err != nil || r.Metrics["seek-p50-sec"] <= 0 {
		t.Errorf("%v, %v", err, r.Metrics)
	}
}
