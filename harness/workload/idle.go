package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-log/tidemark/harness/sample"
)

func init() { runners[Idle] = runIdle }

func runIdle(ctx context.Context, c *Cell, r *Result) error {
	partitions := c.Workload.Partitions
	c.Workload.Partitions = 0 // makeBed shall create no topic: first the broker alone
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	r.Metrics["ready-sec"] = b.broker.Process().ReadyAfter().Seconds()
	s, err := sample.New(b.broker.Process().PID(), b.broker.Admin)
	if err != nil {
		return err
	}
	from, err := s.Take(ctx)
	if err != nil {
		return err
	}
	// Long enough for whatever a broker does on its own to show.
	select {
	case <-time.After(max(c.Workload.Measure, 100*time.Millisecond)):
	case <-ctx.Done():
		return ctx.Err()
	}
	to, err := s.Take(ctx)
	if err != nil {
		return err
	}
	b.from, b.to = from, to
	b.addSamples(0, false)
	if partitions == 0 {
		return nil
	}
	c.Progress(fmt.Sprintf("creating %d partitions", partitions))
	if err := b.createTopic(ctx, b.topic, partitions); err != nil {
		return err
	}
	c.Progress("restarting")
	if err := b.broker.Stop(); err != nil {
		return err
	}
	if err := b.broker.Start(ctx); err != nil {
		return err
	}
	r.Metrics["reopen-sec"] = b.broker.Process().ReadyAfter().Seconds()
	return nil
}
