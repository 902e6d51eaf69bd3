package workload

import (
	"fmt"
	"time"

	"github.com/tidemark-log/tidemark/harness/stat"
)

// diskTarget is of the disk's sustained rate: within 10 %.
const diskTarget = 0.90

// disk holds a broker that writes more than memory keeps against two limits at once: against what the disk takes, and
// against what any server could bring to it here. Only where the second comes near the first is the disk what bounds a broker.
func (c Ceiling) disk() comparison {
	keys := []string{"kind", "produce", "batch_bytes", "1MiB", "regime", "disk", "measure", max(c.Measure, diskMeasureMin).String()}
	row := func(of string, target float64) CeilingRow {
		return CeilingRow{Name: "raw produce, 1 MiB batches, disk regime, of " + of, Unit: "bytes/s", Target: target}
	}
	return comparison{
		ours: c.cellMetric(toDisk, nil, keys...),
		against: []against{
			{row("the disk alone / sequential writes", diskTarget), c.limitOf(Limit, toDisk, keys...)},
			{row("a bare server on that disk / receive→pwrite", bareWriteTarget), c.limitOf(DiskLoop, toDisk, keys...)},
		},
		note: func(rows []CeilingRow) { rows[0].noteProcessors(rows[1].Limit) },
	}
}

// diskMeasureMin is what a disk's rate needs at least: it comes in bursts and pauses of seconds.
const diskMeasureMin = 10 * time.Second

// noteProcessors warns in the row against the disk alone when no server comes near that here. bare is what the bare server did, repeat by repeat.
func (r *CeilingRow) noteProcessors(bare []float64) {
	if share, _ := stat.PairedRatio(bare, r.Limit); share.Value < diskTarget {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the processors and not the disk bound this: a bare server reaches only %.3g of the disk", share.Value))
	}
}
