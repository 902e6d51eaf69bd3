// Package workload runs one cell of an experiment: one choice of workload and
// switches, on a broker of its own, from start to stop, and says what was
// measured. It knows nothing of specs, repeats or verdicts; those call Run.
package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemark-log/tidemark/harness/timeline"
)

// Cell is all that one run depends on. The same cell with the same seed sends
// the same bytes.
type Cell struct {
	Workload Params
	// Broker overrides server.properties: the switches. Keys are Kafka's names and lab.*.
	Broker map[string]string
	// Dir is scratch space on the file system to be measured. Run leaves it empty.
	Dir string
	// Binary is the tidemark executable: broker, bare loops and sink each run in a process of it.
	Binary string
	Seed   uint64
	// Progress, when not nil, is told in a few words what the cell is doing. It may be called from any goroutine.
	Progress func(string)
}

// Result is what one run measured.
type Result struct {
	// Metrics by name; a name ends in its unit. See Params.Kind for which a kind gives.
	Metrics map[string]float64
	// Latency in microseconds, by what was timed: "produce", "fetch", "end-to-end".
	Latency map[string]*hdrhistogram.Histogram
	// Limits is what the machine itself does with the same chunk and depth, measured
	// right before or after, under the name of the metric it bounds ("bytes/s").
	Limits map[string]float64
	// Timeline is what happened when, of kinds where that is the point; else nil.
	Timeline *timeline.Timeline
	// Warnings say why a number may not mean what it says: a rate that was not
	// sustained, writeback that throttled (a Throttled cell gives no verdict in the cache regime).
	Warnings []string
	// Throttled: the kernel's writeback took part in a cell of the cache regime.
	Throttled bool
	// Unfilled: the writer that a cell of the disk regime is held against did not fill the memory, so what it reached is not the disk's rate.
	Unfilled bool
	// Failed checks, by name as in a spec's check list ("offsets-contiguous",
	// "no-acked-record-lost", "rate-sustained", "counts-match"), with what was seen.
	// A check that held is present with an empty string; one that the kind cannot make is absent.
	Checks map[string]string
}

// ErrNotPossible marks a cell that this machine cannot run, for a reason that
// is no fault of the broker: no cgroup, no O_DIRECT. The wrapped text says why.
var ErrNotPossible = errors.New("not possible here")

// runner measures one kind. It fills r; what it returns as an error makes the cell void.
type runner func(ctx context.Context, c *Cell, r *Result) error

var runners = map[Kind]runner{}

// Run runs the cell. Every process it started has ended when it returns, also
// after an error, a panic or the end of ctx.
func Run(ctx context.Context, c Cell) (Result, error) {
	r := newResult()
	if err := c.Workload.Check(); err != nil {
		return r, err
	}
	run := runners[c.Workload.Kind]
	if run == nil {
		return r, fmt.Errorf("workload: kind %q is not built yet", c.Workload.Kind)
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	err := run(ctx, &c, &r)
	return r, err
}

func newResult() Result {
	return Result{
		Metrics: map[string]float64{}, Latency: map[string]*hdrhistogram.Histogram{},
		Limits: map[string]float64{}, Checks: map[string]string{},
	}
}
