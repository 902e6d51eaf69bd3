package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-log/tidemark/harness/limits"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

func init() {
	runners[Consume] = runConsume
}

func runConsume(ctx context.Context, c *Cell, r *Result) error {
	p := &c.Workload
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	records, err := b.fill(ctx, p.DataBytes)
	if err != nil {
		return err
	}
	if err := b.bringCacheInto(ctx, p.CacheState); err != nil {
		return err
	}
	w := b.window(ctx)
	if p.CacheState != Warm {
		w.Warmup, w.Measure = 0, time.Hour // the first pass is the measurement, all of it
	}
	st, err := b.consume(ctx, w, records, p.CacheState == Warm)
	if err != nil {
		return err
	}
	if err := b.addRates(st, "fetch"); err != nil {
		return err
	}
	if p.Driver == "kgo" {
		if err := b.wrapped(); err != nil {
			return err
		}
	}
	b.addSamples(st.Bytes, true)
	r.check("offsets-contiguous", st.Gaps == 0, "%d batches whose offset did not follow the last", st.Gaps)
	if p.CacheState != Warm {
		r.check("counts-match", st.Records == records, "%d records read, %d written", st.Records, records)
	}
	if p.NoLimits || p.Partitions != 1 {
		return nil
	}
	b.close()
	return addFetchLimit(ctx, c, r)
}

// wrapped takes the rate of a driver that counts values for what it is, and gives that of the batches they came in:
// it is the one that the machine's limit bounds.
func (b *bed) wrapped() error {
	batch, err := b.p.spec(b.c.Seed).Prepare(1)
	if err != nil {
		return err
	}
	m := b.r.Metrics
	m["payload-bytes/s"] = m["bytes/s"]
	m["bytes/s"] *= float64(len(batch[0].Bytes)) / float64(max(1, batch[0].Payload))
	return nil
}

// fill writes bytes of record batches into the topic and gives the number of records.
func (b *bed) fill(ctx context.Context, bytes int64) (records int64, err error) {
	p := b.p
	batches, err := p.spec(b.c.Seed).Prepare(p.variants())
	if err != nil {
		return 0, err
	}
	connections := min(p.Partitions, 4)
	requests := bytes / int64(len(batches[0].Bytes)) / int64(connections)
	w := &load.Window{Measure: time.Hour, OnTick: func(t load.Tick) {
		b.c.Progress(fmt.Sprintf("filling, %d of %d MB", t.Bytes/1e6, bytes/1e6))
	}}
	_, err = load.RawProduce{
		Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, Connections: connections, Acks: 1,
		Batches: batches, Depth: 4, Requests: max(1, requests),
	}.Run(ctx, w)
	if err != nil {
		return 0, fmt.Errorf("workload: fill: %w", err)
	}
	for i := range max(1, requests) {
		records += int64(batches[i%int64(len(batches))].Records)
	}
	return records * int64(connections), nil
}

// bringCacheInto sees that the consumer finds the cache as the cell says.
func (b *bed) bringCacheInto(ctx context.Context, state CacheState) error {
	b.c.Progress("bringing the cache into state " + string(state))
	// Dirty pages would be written back during the measurement.
	if err := sut.WriteBack(b.broker.DataDir()); err != nil {
		return err
	}
	switch state {
	case Cold:
		// The broker too: a cache of its own would stay warm.
		if err := b.broker.Stop(); err != nil {
			return err
		}
		if err := sut.DropCache(b.broker.DataDir()); err != nil {
			return err
		}
		if err := b.broker.Start(ctx); err != nil {
			return err
		}
		if st, ok := sut.Cached(b.broker.DataDir()); ok && st.Cached > st.Size/10 {
			b.warn("not cold: %d MB of %d MB stayed in the page cache", st.Cached>>20, st.Size>>20)
		}
		return nil
	case Restarted:
		if err := b.broker.Stop(); err != nil {
			return err
		}
		return b.broker.Start(ctx)
	default:
		// One pass through the broker fills whatever cache it keeps.
		_, err := b.consume(ctx, &load.Window{Measure: time.Hour}, 0, false)
		return err
	}
}

// consume runs the cell's consumer over all that is there, once or until the window closes.
func (b *bed) consume(ctx context.Context, w *load.Window, records int64, loop bool) (load.Stats, error) {
	p := b.p
	if p.Driver == "kgo" {
		if loop {
			return b.consumeAgain(ctx, w, records)
		}
		if records == 0 {
			var err error
			if records, err = b.endOffset(ctx); err != nil {
				return load.Stats{}, err
			}
		}
		return load.KgoConsume{Addrs: b.addrs(), Topic: b.topic, FetchBytes: p.FetchBytes, Until: records}.Run(ctx, w)
	}
	return load.RawFetch{
		Addr: b.addr(), Topic: b.topic, Partitions: p.Partitions, FetchBytes: p.FetchBytes, Depth: p.Inflight, Verify: p.Verify, Loop: loop,
	}.Run(ctx, w)
}

// consumeAgain lets one franz-go client after another read the topic until the window closes.
func (b *bed) consumeAgain(ctx context.Context, w *load.Window, records int64) (load.Stats, error) {
	all := load.Stats{Latency: load.NewHistogram()}
	for {
		st, err := load.KgoConsume{Addrs: b.addrs(), Topic: b.topic, FetchBytes: b.p.FetchBytes, Until: records, KeepOpen: true}.Run(ctx, w)
		all.Gaps += st.Gaps
		if err != nil {
			return all, err
		}
		if _, closed := w.Closed(); closed {
			all.Tick = w.Measured()
			return all, nil
		}
	}
}

// loopMode is the bare loop that takes the cell's way from memory to the socket.
func loopMode(broker map[string]string) limits.Mode {
	inProcess := broker["lab.cache"] == "process" || broker["lab.cache"] == "direct" || broker["lab.storage.engine"] == "btree"
	switch transfer := broker["lab.fetch.transfer"]; {
	case inProcess, transfer == "mmap":
		return limits.ModeMemory
	case transfer == "copy":
		return limits.ModeCopy
	}
	return limits.ModeSendfile
}

func addFetchLimit(ctx context.Context, c *Cell, r *Result) error {
	p := &c.Workload
	c.Progress("measuring the machine's limit")
	one, err := p.spec(c.Seed).Prepare(1)
	if err != nil {
		return err
	}
	batch := len(one[0].Bytes)
	chunk := max(1, p.FetchBytes/batch) * batch // an answer holds whole batches; see limits.Loop for why the loop's must too
	st, err := limits.Loop{
		Binary: c.Binary, Dir: c.Dir, Mode: loopMode(c.Broker), FillBytes: batch, FetchBytes: chunk, Depth: p.Inflight,
		FileBytes: max(p.DataBytes, int64(chunk)), Warmup: p.Warmup, Measure: p.Measure,
	}.Run(ctx)
	if err != nil {
		return err
	}
	r.Limits["bytes/s"], r.Metrics["bare-loop-cpu-sec/GB"] = st.BytesPerS(), st.CPUPerGB()
	return nil
}
