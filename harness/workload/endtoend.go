package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/storage/record"
)

func init() { runners[EndToEnd] = runEndToEnd }

func runEndToEnd(ctx context.Context, c *Cell, r *Result) error {
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	w := b.window(ctx)
	endToEnd := b.rawEndToEnd
	if b.p.Driver == "kgo" {
		endToEnd = b.kgoEndToEnd
	}
	st, delivered, err := endToEnd(ctx, w)
	if err != nil {
		return err
	}
	if err := b.addProduce(ctx, st); err != nil {
		return err
	}
	b.addLatency("produce", "ack-", st.Latency)
	b.addLatency("end-to-end", "", delivered)
	return nil
}

// deliveryGrace is how long a consumer may take to see what was acknowledged before the window closed.
const deliveryGrace = 5 * time.Second

// deliveries times raw batches from the moment each was meant to be sent. A
// producer on one connection sends to the partitions by turns, so the k-th batch
// of partition p is number k·P+p, and that says when it was due.
type deliveries struct {
	w          *load.Window
	partitions int64

	mu       sync.Mutex
	start    time.Time
	interval time.Duration
	seen     []int64 // batches, by partition
	total    int64
	due      []delivery
}

type delivery struct{ due, at time.Time }

func (d *deliveries) started(start time.Time, interval time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start, d.interval = start, interval
}

func (d *deliveries) batch(partition int32, _ record.Header, _ []byte) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	number := d.seen[partition]*d.partitions + int64(partition)
	d.seen[partition]++
	d.total++
	d.due = append(d.due, delivery{d.start.Add(time.Duration(number) * d.interval), now})
}

// histogram is of the batches that were due inside the window.
func (d *deliveries) histogram() *hdrhistogram.Histogram {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := load.NewHistogram()
	open, _ := d.w.Opened()
	closed, _ := d.w.Closed()
	for _, x := range d.due {
		if !x.due.Before(open) && x.due.Before(closed) {
			h.RecordValue(max(1, x.at.Sub(x.due).Microseconds()))
		}
	}
	return h
}

func (d *deliveries) count() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

func (b *bed) rawEndToEnd(ctx context.Context, w *load.Window) (load.Stats, *hdrhistogram.Histogram, error) {
	p := b.p
	batches, err := p.spec(b.c.Seed).Prepare(p.variants())
	if err != nil {
		return load.Stats{}, nil, err
	}
	d := &deliveries{w: w, partitions: int64(p.Partitions), seen: make([]int64, p.Partitions)}
	consumerCtx, stopConsumer := context.WithCancel(ctx)
	defer stopConsumer()
	consumer := make(chan error, 1)
	all := make(chan struct{}) // closed when the consumer has seen all that was sent
	var acked int64
	var once sync.Once
	sent := make(chan struct{}) // closed when acked is final
	go func() {
		_, err := load.RawFetch{
			Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, FetchBytes: p.FetchBytes, Depth: 1, Follow: true, MaxWait: 500 * time.Millisecond,
			OnBatch: func(partition int32, h record.Header, raw []byte) {
				d.batch(partition, h, raw)
				select {
				case <-sent:
					if d.count() >= acked {
						once.Do(func() { close(all) })
					}
				default:
				}
			},
		}.Run(consumerCtx, &load.Window{Warmup: 24 * time.Hour})
		consumer <- err
	}()
	st, err := load.RawProduce{
		Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, Acks: p.acks(), Batches: batches, Depth: p.Inflight,
		RecordsPerS: p.RecordsPerS, OnStart: d.started, OnAck: func(int32, int, int64) { acked++ },
	}.Run(ctx, w)
	if p.Acks == "0" {
		acked = st.SentBatches
	}
	close(sent)
	if err == nil && d.count() < acked {
		grace := time.NewTimer(deliveryGrace)
		defer grace.Stop()
		select {
		case <-all:
		case err = <-consumer:
			consumer <- err
		case <-grace.C:
			b.warn("%d of %d batches were not delivered within %s: their latency is missing", acked-d.count(), acked, deliveryGrace)
		}
	}
	stopConsumer()
	if e := <-consumer; err == nil && !errors.Is(e, context.Canceled) {
		err = e
	}
	h := d.histogram()
	if err == nil && h.TotalCount() == 0 {
		err = errors.New("workload: nothing that was sent in the window was delivered")
	}
	return st, h, err
}

func (b *bed) kgoEndToEnd(ctx context.Context, w *load.Window) (load.Stats, *hdrhistogram.Histogram, error) {
	p := b.p
	consumerCtx, stopConsumer := context.WithCancel(ctx)
	defer stopConsumer()
	ready, done := make(chan struct{}), make(chan struct{})
	// The consumer's window is a little shorter, so that it closes while records still come.
	cw := &load.Window{Warmup: p.Warmup, Measure: p.Measure * 9 / 10}
	var delivered load.Stats
	var consumeErr error
	go func() {
		defer close(done)
		delivered, consumeErr = load.KgoConsume{
			Addrs: b.addrs(), Topic: b.topic, FetchBytes: p.FetchBytes, Stamped: true, FromEnd: b.remote != nil, Ready: func() { close(ready) },
		}.Run(consumerCtx, cw)
	}()
	<-ready
	producer := p.kgoProduce(b.addrs(), b.topic, b.c.Seed, nil)
	producer.Stamp = true
	st, err := producer.Run(ctx, w)
	grace := time.NewTimer(deliveryGrace)
	defer grace.Stop()
	if err == nil {
		select {
		case <-done:
		case <-grace.C:
		}
	}
	stopConsumer()
	<-done
	if err == nil && !errors.Is(consumeErr, context.Canceled) {
		err = consumeErr
	}
	if err == nil {
		err = b.delivery(cw, delivered)
	}
	st.Gaps += delivered.Gaps
	return st, delivered.Latency, err
}

// delivery says what a stamped consumer missed: what came late, or never, is in no latency of it.
func (b *bed) delivery(w *load.Window, st load.Stats) error {
	if st.Latency == nil || st.Latency.TotalCount() == 0 {
		return errors.New("workload: nothing that was sent in the window was delivered")
	}
	if _, closed := w.Closed(); !closed {
		b.warn("a consumer's window had not closed %s after the producer's: what was delivered later is not in the latency", deliveryGrace)
	}
	return nil
}
