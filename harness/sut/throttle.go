package sut

import (
	"os"
	"time"

	"github.com/tidemark-log/tidemark/harness/sample"
)

// Throttling says when a long write has become as slow as its disk. The kernel lets writers run free up to half way between its two
// limits on dirty memory, and slows them from there on until they are as fast as the disk. How much has to be written for that depends on
// the disk: while it is filled, memory is drained. The zero value is not ready; make one with NewThrottling for each write.
type Throttling struct {
	limit  int64 // bytes: DirtyLimit
	dirty  func() (int64, error)
	looked time.Time
	begun  bool
	filled bool // begun because memory was full, not because enough was written
}

// NewThrottling begins to watch.
func NewThrottling() (*Throttling, error) {
	limit, err := DirtyLimit()
	return &Throttling{limit: limit, dirty: dirtyBytes}, err
}

// In shares of the limit: what is written at least; at most, for a writer that is no faster than its disk and
// never fills the memory, whose own rate it is then; and how much is dirty once writers are slowed, three quarters and a little.
const (
	throttledAfter  = 1.3
	throttledNever  = 2.5
	throttledDirty  = 0.8
	throttlingLooks = 20 * time.Millisecond
)

// Begun is true from the moment on when, with so many bytes written, the rate is the disk's. Not for several goroutines at once.
func (t *Throttling) Begun(now time.Time, written int64) bool {
	if t.begun || float64(written) < throttledAfter*float64(t.limit) || now.Sub(t.looked) < throttlingLooks {
		return t.begun
	}
	t.looked = now
	dirty, err := t.dirty()
	t.filled = err == nil && float64(dirty) >= throttledDirty*float64(t.limit)
	t.begun = t.filled || float64(written) >= throttledNever*float64(t.limit)
	return t.begun
}

// Filled says, once it has begun, whether the writer filled the memory. If not, the disk takes what it writes or more.
func (t *Throttling) Filled() bool { return t.filled }

func dirtyBytes() (int64, error) {
	v, err := sample.VMStat("nr_dirty", "nr_writeback")
	if err != nil {
		return 0, err
	}
	return (v[0] + v[1]) * int64(os.Getpagesize()), nil
}
