package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/harness/sample"
	"github.com/tidemark-log/tidemark/internal/words"
)

// copies waits until nothing is under way between replicas, stops the brokers, and holds what they have on their disks
// against each other: clients read from leaders, so a follower with other bytes below the high watermark has shown nowhere yet.
func (r *run) copies(ctx context.Context) error {
	const demand = "every broker has everything committed"
	err := r.until(ctx, restMax, demand, func() (bool, error) { return r.cluster.allCommitted(ctx), nil })
	if late := (*lateError)(nil); errors.As(err, &late) {
		return violated("L5: not so that %s, %v after the consumer was at the end", demand, restMax)
	}
	if err != nil {
		return err
	}
	m := newest(r.cluster.metadata())
	if m == nil {
		return errors.New("no broker answers before it is stopped")
	}
	r.say("stop the brokers, and compare their copies")
	if err := r.cluster.Stop(); err != nil {
		return err
	}
	return r.sameCopies(m)
}

// sameCopies compares the copies where metadata says that they are.
func (r *run) sameCopies(m *kmsg.MetadataResponse) error {
	c, err := r.cluster.CompareCopies(topic, partitionsOf(m))
	if err != nil {
		return err
	}
	r.report.Compared, r.report.Differences = c.Batches, c.Differences
	for _, d := range c.Differences {
		r.say("%s", d)
	}
	if c.Count > 0 {
		return violated("S3: replicas have %s, first %s", words.Count(c.Count, "difference"), c.Differences[0])
	}
	return nil
}

// allCommitted says whether no broker has a record above a high watermark: with all in sync every replica then has everything.
func (c *cluster) allCommitted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, b := range c.Brokers {
		s, err := sample.New(b.Process().PID(), b.Admin)
		if err != nil {
			return false
		}
		counted, err := s.Counters(ctx)
		if err != nil || counted.Status.HighWatermarks != counted.Status.LogEndOffsets {
			return false
		}
	}
	return true
}
