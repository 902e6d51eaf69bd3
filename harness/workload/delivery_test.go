package workload

import (
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
)

// A consumer that saw nothing has no latency of 0 ms, and one that was still behind when its time was up is said to be.
func TestWhatWasNotDeliveredIsNoShortDelay(t *testing.T) {
	r := newResult()
	b := &bed{r: &r}
	now := time.Now()
	open, closed := &load.Window{Measure: time.Hour}, &load.Window{}
	open.Start(now)
	closed.Start(now)
	closed.Done(now.Add(time.Second), 1, 1)
	st := load.Stats{Latency: load.NewHistogram()}
	if err := b.delivery(closed, st); err == nil {
		t.Error("nothing was delivered, and all is well")
	}
	st.Latency.RecordValue(7)
	if err := b.delivery(closed, st); err != nil || len(r.Warnings) != 0 {
		t.Errorf("%v, %q", err, r.Warnings)
	}
	if err := b.delivery(open, st); err != nil || len(r.Warnings) != 1 {
		t.Errorf("%v, %q: a window that stayed open is not mentioned", err, r.Warnings)
	}
}
