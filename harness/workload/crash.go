package workload

import (
	"context"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sample"
	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/storage/record"
)

func init() {
	runners[Loss] = runLoss
	runners[Recovery] = runRecovery
}

// ledger is what a producer was told: where each acknowledged batch went, and
// the checksum of its records.
type ledger struct {
	sums    []uint32 // of the prepared batches' records; the header's CRC may be rewritten
	records []int
	acked   []map[int64]int // by partition: base offset → batch
	sent    int64           // records
	ackedN  int64           // records
}

func newLedger(batches []load.Batch, partitions int) *ledger {
	l := &ledger{acked: make([]map[int64]int, partitions)}
	for i := range l.acked {
		l.acked[i] = map[int64]int{}
	}
	for i := range batches {
		l.sums = append(l.sums, recordsSum(batches[i].Bytes))
		l.records = append(l.records, batches[i].Records)
	}
	return l
}

func recordsSum(batch []byte) uint32 { return crc32.ChecksumIEEE(batch[record.HeaderSize:]) }

func (l *ledger) onSent(_ int32, batch int) { l.sent += int64(l.records[batch]) }

func (l *ledger) onAck(partition int32, batch int, base int64) {
	l.acked[partition][base] = batch
	l.ackedN += int64(l.records[batch])
}

// found strikes a batch that was read back off what was acknowledged, when it is the same.
func (l *ledger) found(partition int32, h record.Header, batch []byte) {
	if i, ok := l.acked[partition][h.BaseOffset]; ok && l.sums[i] == recordsSum(batch) {
		delete(l.acked[partition], h.BaseOffset)
	}
}

// lost is the number of records acknowledged and not found.
func (l *ledger) lost() (records int64) {
	for _, acked := range l.acked {
		for _, batch := range acked {
			records += int64(l.records[batch])
		}
	}
	return records
}

func runLoss(ctx context.Context, c *Cell, r *Result) error {
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
	l := newLedger(batches, p.Partitions)
	rate, err := b.produceUntilKilled(ctx, batches, l)
	if err != nil {
		return err
	}
	b.addSamples(rate.Bytes, false)
	c.Progress("starting the broker again")
	if err := b.broker.Start(ctx); err != nil {
		return err
	}
	var found atomic.Int64
	c.Progress("reading back")
	st, err := load.RawFetch{
		Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, FetchBytes: max(p.FetchBytes, 1<<20), Depth: 1, Verify: true,
		OnBatch: func(partition int32, h record.Header, batch []byte) {
			found.Add(int64(h.RecordCount))
			l.found(partition, h, batch)
		},
	}.Run(ctx, &load.Window{Warmup: time.Hour})
	if err != nil {
		return err
	}
	m := r.Metrics
	m["bytes/s"], m["records/s"] = rate.BytesPerS(), rate.RecordsPerS()
	m["acked-records"], m["lost-acked-records"] = float64(l.ackedN), float64(l.lost())
	m["sent-records"], m["lost-sent-records"] = float64(l.sent), float64(max(0, l.sent-found.Load()))
	m["recovery-sec"] = b.broker.Process().ReadyAfter().Seconds()
	r.check("no-acked-record-lost", l.lost() == 0, "%d of %d acknowledged records are gone", l.lost(), l.ackedN)
	r.check("offsets-contiguous", st.Gaps == 0, "%d batches whose offset did not follow the last", st.Gaps)
	return nil
}

// produceUntilKilled runs the producer and, at a random moment of the second
// half of the measured time, kills the broker under it. One partition's callbacks come from
// one goroutine, since there is one connection.
func (b *bed) produceUntilKilled(ctx context.Context, batches []load.Batch, book *ledger) (load.Stats, error) {
	p := b.p
	after := p.Measure/2 + time.Duration(load.NewRand(b.c.Seed, 0xdead).Int64N(int64(max(2, p.Measure/2))))
	w := b.window(ctx)
	w.Measure, w.OnClose = time.Hour, nil // the kill ends it
	b.c.Progress("producing until the kill")
	type last struct {
		snap sample.Snapshot
		err  error
	}
	killed := make(chan last, 1)
	var timer *time.Timer
	onOpen := w.OnOpen
	w.OnOpen = func() {
		onOpen()
		timer = time.AfterFunc(after, func() {
			var l last
			if len(b.sampler) > 0 {
				l.snap, l.err = b.sampler.Take(ctx) // while there is still someone to ask
			}
			b.broker.Kill()
			killed <- l
		})
	}
	st, err := load.RawProduce{
		Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, Acks: p.acks(), Batches: batches, Depth: p.Inflight,
		RecordsPerS: p.RecordsPerS, OnSent: book.onSent, OnAck: book.onAck,
	}.Run(ctx, w)
	if timer == nil || timer.Stop() {
		return st, fmt.Errorf("workload: the producer ended before the kill: %w", err)
	}
	l := <-killed
	b.to = l.snap
	if b.sampleErr == nil {
		b.sampleErr = l.err
	}
	return st, ctx.Err() // the producer's error is what was asked for
}

func runRecovery(ctx context.Context, c *Cell, r *Result) error {
	p := &c.Workload
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	flushed := p.DataBytes - p.UnflushedBytes
	if flushed > 0 {
		if _, err := b.fill(ctx, flushed); err != nil {
			return err
		}
		c.Progress("flushing by a clean restart")
		if err := b.broker.Stop(); err != nil {
			return err
		}
		if err := b.broker.Start(ctx); err != nil {
			return err
		}
		r.Metrics["ready-sec"] = b.broker.Process().ReadyAfter().Seconds()
	}
	if p.UnflushedBytes > 0 {
		if _, err := b.fill(ctx, p.UnflushedBytes); err != nil {
			return err
		}
	}
	before, err := b.endOffset(ctx)
	if err != nil {
		return err
	}
	b.broker.Kill()
	if err := sut.WarmCache(b.broker.DataDir()); err != nil { // what recovery reads comes from memory each time
		return err
	}
	c.Progress("recovering")
	if err := b.broker.Start(ctx); err != nil {
		return err
	}
	m := r.Metrics
	m["recovery-sec"] = b.broker.Process().ReadyAfter().Seconds()
	after, err := b.endOffset(ctx)
	if err != nil {
		return err
	}
	r.check("no-acked-record-lost", after >= before, "the log ended at offset %d before the kill and at %d after", before, after)
	index, err := b.broker.LogFiles(".index", ".timeindex")
	if err != nil {
		return err
	}
	log, err := b.broker.LogFiles(".log")
	if err != nil {
		return err
	}
	m["index-bytes"], m["log-bytes"] = float64(index), float64(log)
	m["index-bytes/GB"] = float64(index) / (float64(max(1, log)) / 1e9)
	return b.seek(ctx, "seek-")
}
