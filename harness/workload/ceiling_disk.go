package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-log/tidemark/harness/limits"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// diskTarget is of the disk's sustained rate: within 10 %.
const diskTarget = 0.90

// disk holds a broker that writes more than memory keeps against two limits at once: against what the disk takes, and
// against what any server could bring to it here. Only where the second comes near the first is the disk what bounds a broker.
func (c Ceiling) disk() comparison {
	keys := []string{"kind", "produce", "batch_bytes", "1MiB", "regime", "disk", "measure", max(c.Measure, diskMeasureMin).String()}
	regime := "disk regime"
	if c.DiskRate > 0 {
		regime += ", disk held to " + limits.Rate(float64(c.DiskRate), "bytes/s")
	}
	row := func(of string, target float64) CeilingRow {
		return CeilingRow{Name: "raw produce, 1 MiB batches, " + regime + ", of " + of, Unit: "bytes/s", Target: target}
	}
	return comparison{
		ours: c.onDisk(c.cellMetric(toDisk, nil, keys...)),
		against: []against{
			{row("the disk alone / sequential writes", diskTarget), c.onDisk(c.diskAlone(keys...))},
			{row("a bare server on that disk / receive→pwrite", bareWriteTarget), c.onDisk(c.limitOf(DiskLoop, toDisk, keys...))},
		},
		note: func(rows []CeilingRow) { rows[0].noteProcessors(rows[1].Limit) },
	}
}

// diskAlone is the rate of the disk. Where no writer fills the memory it is not known, and nothing can be held against it.
func (c Ceiling) diskAlone(keys ...string) measure {
	run := c.limitOf(Limit, toDisk, keys...)
	return func(ctx context.Context, seed uint64) (measured, error) {
		m, err := run(ctx, seed)
		if m.void {
			m.warnings = append(m.warnings, "the disk takes more than these processors write, so its rate is not known: hold it to less (--disk-rate)")
		}
		return m, err
	}
}

// diskMeasureMin is what a disk's rate needs at least: it comes in bursts and pauses of seconds.
const diskMeasureMin = 10 * time.Second

// onDisk measures on the disk as it is held.
func (c Ceiling) onDisk(run measure) measure {
	if c.DiskRate == 0 {
		return run
	}
	return func(ctx context.Context, seed uint64) (m measured, err error) {
		held, err := sut.HoldDisk(c.Dir, c.DiskRate)
		if err != nil {
			return measured{}, err
		}
		defer func() { err = errors.Join(err, held.Release()) }()
		m, err = run(ctx, seed)
		m.seeHeld(c.DiskRate)
		return m, err
	}
}

// canHold refuses a rate that the disk cannot be held to.
func (c Ceiling) canHold() error {
	_, err := c.onDisk(func(context.Context, uint64) (measured, error) { return measured{}, nil })(context.Background(), 0)
	return err
}

// heldAtMost is of the rate that a disk is held to: more than that and it is not held. The kernel counts in slices of a tenth of a second.
const heldAtMost = 1.05

// seeHeld voids what is faster than the disk was to be: the kernel took the limit and did not keep it, as for the page cache of some file systems.
func (m *measured) seeHeld(rate int64) {
	if m.value > heldAtMost*float64(rate) {
		m.void = true
		m.warnings = append(m.warnings, fmt.Sprintf("the disk was not held to %s: %s reached it", limits.Rate(float64(rate), "bytes/s"), limits.Rate(m.value, "bytes/s")))
	}
}

// noteProcessors warns in the row against the disk alone when no server comes near that here. bare is what the bare server did, repeat by repeat.
func (r *CeilingRow) noteProcessors(bare []float64) {
	if share, _ := stat.PairedRatio(bare, r.Limit); share.Value < diskTarget {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the processors and not the disk bound this: a bare server reaches only %.3g of the disk", share.Value))
	}
}
