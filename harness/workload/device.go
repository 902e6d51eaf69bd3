package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-log/tidemark/harness/limits"
)

func init() { runners[Device] = runDevice }

func runDevice(ctx context.Context, c *Cell, r *Result) error {
	p := &c.Workload
	res, err := limits.Disk{
		Dir: c.Dir, Random: p.Access == "random", Write: p.Direction == "write", Direct: p.IO == "direct",
		ChunkBytes: p.ChunkBytes, FileBytes: p.DataBytes, Measure: p.Measure, Seed: c.Seed, Progress: c.Progress,
	}.Run(ctx)
	if errors.Is(err, limits.ErrNoDirect) {
		return fmt.Errorf("%w: %w", ErrNotPossible, err)
	} else if err != nil {
		return err
	}
	r.Metrics["bytes/s"], r.Metrics["ops/s"] = res.BytesPerS(), res.OpsPerS()
	(&bed{r: r}).addLatency("op", "", res.Latency)
	return nil
}
