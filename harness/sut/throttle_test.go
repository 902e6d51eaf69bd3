package sut

import (
	"testing"
	"time"
)

// A slow disk drains little while memory is filled, a fast one much, and one that is as fast as the writer all of it.
func TestThrottlingBeginsWhenMemoryIsFull(t *testing.T) {
	const limit = 1000
	for _, c := range []struct {
		drained float64 // of what is written
		want    int64   // bytes written when it begins
		filled  bool
	}{{0, 1300, true}, {0.2, 1300, true}, {0.5, 1600, true}, {0.75, 2500, false}, {1, 2500, false}} {
		written := int64(0)
		th := &Throttling{limit: limit, dirty: func() (int64, error) { return int64(float64(written) * (1 - c.drained)), nil }}
		now := time.Unix(0, 0)
		for !th.Begun(now, written) && written < 10*limit {
			written, now = written+10, now.Add(throttlingLooks)
		}
		if written != c.want {
			t.Errorf("%v of it drained: begun after %d bytes, want %d", c.drained, written, c.want)
		}
		if !th.Begun(now, written) {
			t.Error("it has begun, and then not")
		}
		if th.Filled() != c.filled {
			t.Errorf("%v of it drained: memory filled: %v", c.drained, th.Filled())
		}
	}
}
