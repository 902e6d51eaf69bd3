package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
)

func init() { runners[RackRead] = runRackRead }

// runRackRead lets one consumer in each rack read the same topic.
func runRackRead(ctx context.Context, c *Cell, r *Result) error {
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	if b.p.RecordsPerS > 0 {
		return b.followTail(ctx)
	}
	return b.readBacklog(ctx)
}

// rack is that of broker id, and of the consumer who stands beside it.
func rack(id int) string { return "rack-" + strconv.Itoa(id) }

// readBacklog measures consumers that read what is there, each again and again.
func (b *bed) readBacklog(ctx context.Context) error {
	records, err := b.fillCluster(ctx)
	if err != nil {
		return err
	}
	w := b.window(ctx)
	delivered := func() []int64 { return b.delivered(ctx) }
	var from, to []int64
	open, done := w.OnOpen, w.OnClose
	w.OnOpen = func() { open(); from = delivered() }
	w.OnClose = func() { to = delivered(); done() }
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stats, errs := make([]load.Stats, b.p.Brokers), make([]error, b.p.Brokers)
	var all sync.WaitGroup
	for i := range stats {
		all.Go(func() {
			if stats[i], errs[i] = b.readInRack(ctx, w, rack(i+1), records); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	st := load.Stats{Tick: w.Measured(), Latency: load.NewHistogram()}
	for _, s := range stats {
		st.Gaps += s.Gaps
		st.Latency.Merge(s.Latency)
	}
	if err := b.addRates(st, "fetch"); err != nil {
		return err
	}
	b.addSamples(st.Bytes, true)
	b.r.check("offsets-contiguous", st.Gaps == 0, "%d batches whose offset did not follow the last", st.Gaps)
	return b.addSpread(from, to)
}

// fillCluster writes the cell's data and gives the number of records.
func (b *bed) fillCluster(ctx context.Context) (records int64, err error) {
	p := b.p
	b.c.Progress("filling")
	batches, err := p.spec(b.c.Seed).Prepare(p.variants())
	if err != nil {
		return 0, err
	}
	leaders, err := b.leaders(ctx)
	if err != nil {
		return 0, err
	}
	st, err := load.RawProduce{
		Leaders: leaders, Topic: b.topic, Partitions: p.Partitions, Acks: -1, Batches: batches, Depth: 4,
	}.Run(ctx, &load.Window{Measure: time.Hour, MeasureBytes: p.DataBytes / int64(p.copies())})
	if err != nil {
		return 0, fmt.Errorf("workload: fill: %w", err)
	}
	return st.Records, nil
}

// readInRack reads the topic again and again until the window closes.
func (b *bed) readInRack(ctx context.Context, w *load.Window, rack string, records int64) (load.Stats, error) {
	all := load.Stats{Latency: load.NewHistogram()}
	for {
		st, err := load.KgoConsume{Addrs: b.addrs(), Topic: b.topic, FetchBytes: b.p.FetchBytes, Until: records, KeepOpen: true, Rack: rack}.Run(ctx, w)
		all.Gaps += st.Gaps
		if err != nil {
			return all, err
		}
		all.Latency.Merge(st.Latency)
		if _, closed := w.Closed(); closed {
			return all, nil
		}
	}
}

// delivered is the record bytes that each broker has delivered so far; nil when one does not answer.
func (b *bed) delivered(ctx context.Context) []int64 {
	all := make([]int64, len(b.sampler))
	for i, s := range b.sampler {
		c, err := s.Counters(ctx)
		if err != nil {
			b.sampleErr = err
			return nil
		}
		all[i] = c.Delivered
	}
	return all
}

// addSpread says how the brokers shared what was delivered.
func (b *bed) addSpread(from, to []int64) error {
	if len(from) == 0 || len(to) == 0 {
		return fmt.Errorf("workload: what each broker delivered is not known: %w", b.sampleErr)
	}
	var most, sum int64
	for i := range from {
		n := to[i] - from[i]
		b.r.Metrics[fmt.Sprintf("broker-%d-bytes/s", i+1)] = float64(n) / b.r.Metrics["measured-sec"]
		most, sum = max(most, n), sum+n
	}
	b.r.Metrics["busiest-share"] = float64(most) / float64(max(1, sum))
	return nil
}

// followTail measures how old records are when consumers get them that wait at the end of
// the log: those in the racks of followers, and the one beside the leader.
func (b *bed) followTail(ctx context.Context) error {
	p := b.p
	consumers, stop := context.WithCancel(ctx)
	defer stop()
	seen, windows, errs := make([]load.Stats, p.Brokers), make([]*load.Window, p.Brokers), make([]error, p.Brokers)
	var ready, all sync.WaitGroup
	for i := range seen {
		ready.Add(1)
		// A little shorter than the producer's, so that it closes while records still come.
		windows[i] = &load.Window{Warmup: p.Warmup, Measure: p.Measure * 9 / 10}
		all.Go(func() {
			seen[i], errs[i] = load.KgoConsume{
				Addrs: b.addrs(), Topic: b.topic, FetchBytes: p.FetchBytes, Stamped: true, Rack: rack(i + 1), Ready: ready.Done,
			}.Run(consumers, windows[i])
			if errors.Is(errs[i], context.Canceled) && ctx.Err() == nil { // it was told to stop
				errs[i] = nil
			}
		})
	}
	ready.Wait()
	producer := p.kgoProduce(b.addrs(), b.topic, b.c.Seed, nil)
	producer.Stamp = true
	st, err := producer.Run(ctx, b.window(ctx))
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	grace := time.NewTimer(deliveryGrace)
	defer grace.Stop()
	if err == nil {
		select {
		case <-done:
		case <-grace.C:
		}
	}
	stop()
	<-done
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for i, s := range seen {
		if err := b.delivery(windows[i], s); err != nil {
			return fmt.Errorf("%s: %w", rack(i+1), err)
		}
		st.Gaps += s.Gaps
	}
	p.Driver = "kgo" // who counts values
	if err := b.addProduce(ctx, st); err != nil {
		return err
	}
	b.addLatency("produce", "ack-", st.Latency)
	far := load.NewHistogram()
	for i, s := range seen { // partition 0 is led by broker 1
		if i > 0 {
			far.Merge(s.Latency)
		}
	}
	b.addLatency("near", "near-", seen[0].Latency)
	b.addLatency("far", "", far)
	return nil
}
