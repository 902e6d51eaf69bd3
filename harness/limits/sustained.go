package limits

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// SustainedRate is what Sustained saw.
type SustainedRate struct {
	Rate     float64  // bytes per second that reached the disk
	Filled   bool     // the writer filled the memory: else the disk is the faster of the two, and Rate the writer's own
	Warnings []string // what else keeps Rate from being that of the disk
}

// Sustained appends through the page cache over measure, in the disk regime: what reaches the disk is what the disk
// takes and no longer what memory does. It writes as a broker does there, in files of a
// segment's size that are synced behind it (see segments), and what has reached the disk is dropped meanwhile.
func Sustained(ctx context.Context, dir string, measure time.Duration) (SustainedRate, error) {
	dir, err := os.MkdirTemp(dir, "limits-sustained-")
	if err != nil {
		return SustainedRate{}, fmt.Errorf("limits: %w", err)
	}
	defer os.RemoveAll(dir)
	regime, err := sut.EnterDiskRegime(ctx, dir)
	if err != nil {
		return SustainedRate{}, err
	}
	w := newSegments(dir, SegmentBytes)
	defer w.close()
	defer sut.DropClean(dir)()
	written, elapsed, err := sustain(ctx, w, measure, regime)
	if err != nil {
		return SustainedRate{}, err
	}
	reached, err := regime.Reached(written)
	return SustainedRate{float64(reached) / elapsed.Seconds(), regime.Filled(), regime.Warnings("the file writer")}, err
}

// sustain writes, and counts for as long as measure from when the measured part has begun.
func sustain(ctx context.Context, w *segments, measure time.Duration, part load.MeasuredPart) (written int64, elapsed time.Duration, err error) {
	chunk := load.Payload(load.NewRand(1, 1), 1<<20, 8)
	var since time.Time
	var from int64
	for at := int64(0); ; at += int64(len(chunk)) {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if now := time.Now(); since.IsZero() && part.Begun(now, at) {
			part.Open()
			since, from = time.Now(), at
		} else if !since.IsZero() && now.Sub(since) >= measure {
			part.Close()
			return at - from, now.Sub(since), nil
		}
		if err := w.write(chunk); err != nil {
			return 0, 0, err
		}
	}
}
