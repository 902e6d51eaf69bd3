package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/storage/record"
)

func init() { runners[Growth] = runGrowth }

// growthBytesMin is what is measured at least, or half of the data where that is
// less: at 30 MB a tenth is a few milliseconds and one flush.
const growthBytesMin = 16 << 20

// measuredBytes is the end of the data, over which appends are measured.
func (p *Params) measuredBytes() int64 {
	return max(1, p.DataBytes/10, min(growthBytesMin, p.DataBytes/2))
}

// growthFillMax bounds the time that an engine may take to grow to its size,
// and growthMeasureMax the time of its end. An engine that is slower is measured where it
// is, which is not the size that the cell is about: its check fails, and no verdict counts it.
const (
	growthFillMax    = 60 * time.Second
	growthMeasureMax = 10 * time.Second
)

func runGrowth(ctx context.Context, c *Cell, r *Result) error {
	p := &c.Workload
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	batches, err := p.spec(c.Seed).Prepare(p.variants())
	if err != nil {
		return err
	}
	w := b.window(ctx)
	measured := p.measuredBytes()
	w.Warmup, w.WarmupBytes = growthFillMax, max(1, p.DataBytes-measured)
	w.Measure, w.MeasureBytes = growthMeasureMax, measured
	st, err := load.RawProduce{
		Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, Acks: 1, Batches: batches, Depth: p.Inflight,
	}.Run(ctx, w)
	if err != nil {
		return err
	}
	if err := b.addRates(st, "append"); err != nil {
		return err
	}
	b.checkGrown(st.SentBytes)
	b.addSamples(st.Bytes, false)
	m := r.Metrics
	m["append-bytes/s"], m["append-records/s"], m["append-p99-sec"] = m["bytes/s"], m["records/s"], m["p99-sec"]
	m["append-p50-sec"] = m["p50-sec"]
	r.check("offsets-contiguous", st.Gaps == 0, "%d answers whose offset did not follow the last", st.Gaps)
	if err := b.seek(ctx, "read-"); err != nil {
		return err
	}
	disk, err := b.broker.LogFiles("")
	if err != nil {
		return err
	}
	m["disk-bytes/byte"] = float64(disk) / float64(max(1, st.SentBytes))
	return nil
}

// checkGrown holds the size that the data reached against the one that was asked for.
func (b *bed) checkGrown(sent int64) {
	b.r.check("size-reached", sent >= b.p.DataBytes*9/10, "it grew to %d MB of %d MB in the time allowed", sent>>20, b.p.DataBytes>>20)
}

// seekEnd bounds the offsets that are asked for. Under byte offsets one behind the records of the last batch is answered by the next
// batch, which is not there: nothing is asked within a batch of the log's end.
func (b *bed) seekEnd(logEnd int64) int64 {
	if b.c.Broker["lab.offsets"] != "byte" {
		return logEnd
	}
	const overhead = 64 // of a record beside its value, and more than it is
	batch := record.HeaderSize + b.p.BatchRecords*(b.p.RecordBytes+overhead)
	return max(logEnd-int64(max(batch, b.p.BatchBytes)), 1)
}

// seek fetches single batches at random offsets of partition 0 for Measure, and
// gives <prefix>p50-sec, <prefix>p99-sec and seeks or reads per second.
func (b *bed) seek(ctx context.Context, prefix string) error {
	b.c.Progress("reading at random offsets")
	end, err := b.endOffset(ctx)
	if err != nil {
		return err
	}
	st, err := load.RawSeek{Addr: b.addr(), Topic: b.topic, To: b.seekEnd(end / int64(b.p.Partitions)), Seed: b.c.Seed}.
		Run(ctx, &load.Window{Measure: b.p.Measure})
	if err != nil {
		return err
	}
	if st.Requests == 0 {
		return fmt.Errorf("workload: no read at a random offset was answered within %s", b.p.Measure)
	}
	name := prefix[:len(prefix)-1]
	b.r.Latency[name] = st.Latency
	b.r.Metrics[prefix+"p50-sec"] = float64(st.Latency.ValueAtQuantile(50)) / 1e6
	b.r.Metrics[prefix+"p99-sec"] = float64(st.Latency.ValueAtQuantile(99)) / 1e6
	b.r.Metrics[name+"s/s"] = float64(st.Requests) / st.Elapsed.Seconds()
	return nil
}
