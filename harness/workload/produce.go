package workload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tidemark-log/tidemark/harness/limits"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

func init() {
	runners[Produce] = runProduce
	runners[Compression] = runCompression
}

func runProduce(ctx context.Context, c *Cell, r *Result) error {
	p := &c.Workload
	room, err := makeRoom(c, r)
	if err != nil {
		return err
	}
	b, err := makeBed(ctx, c, r, segmentSettings(p, room))
	defer b.close()
	if err != nil {
		return err
	}
	w := b.window(ctx)
	leave, err := b.enterRegime(ctx, w, room)
	if err != nil {
		return err
	}
	st, err := b.produce(ctx, w, load.DialTCP)
	leave()
	if err != nil {
		return err
	}
	if err := b.addProduce(ctx, st); err != nil {
		return err
	}
	b.noteWriteback()
	if p.NoLimits {
		return nil
	}
	b.close() // the loop gets the machine to itself
	return addWriteLimit(ctx, c, r, room)
}

// DiskLoop measures the bare loop in the disk regime: what a server that does the least writes to this disk.
// Limit gives what the disk takes of a writer beside which there is no network.
func DiskLoop(ctx context.Context, c Cell) (Result, error) {
	r := newResult()
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return r, addWriteLoop(ctx, &c, &r, limits.Loop{SegmentBytes: limits.SegmentBytes})
}

// Limit measures only the machine's limit for the cell: what Run does as its last part.
func Limit(ctx context.Context, c Cell) (Result, error) {
	r := newResult()
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	switch c.Workload.Kind {
	case Produce:
		room, err := makeRoom(&c, &r)
		if err != nil {
			return r, err
		}
		return r, addWriteLimit(ctx, &c, &r, room)
	case Consume:
		return r, addFetchLimit(ctx, &c, &r)
	}
	return r, fmt.Errorf("workload: kind %s has no bare loop", c.Workload.Kind)
}

// makeRoom says how many bytes may be written in the cache regime, 0 in the disk regime.
func makeRoom(c *Cell, r *Result) (int64, error) {
	p := &c.Workload
	if p.Regime == RegimeDisk {
		return 0, nil
	}
	room, err := sut.WritebackRoom()
	if err != nil {
		return 0, err
	}
	bytes := min(p.DataBytes, room*8/10)
	if bytes < p.DataBytes/4 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("other dirty data leaves room for %d MB before writeback begins, asked for %d MB", bytes>>20, p.DataBytes>>20))
	}
	return max(bytes/int64(p.copies()), 1<<20), nil // every copy is dirty on this machine
}

// segmentSettings preallocates in the cache regime, all of it in one segment where that is possible.
func segmentSettings(p *Params, room int64) map[string]string {
	if p.Regime == RegimeDisk {
		return nil
	}
	segment := min(1<<31-1, max(1<<20, room+(64<<20)))
	return map[string]string{"log.preallocate": "true", "log.segment.bytes": strconv.FormatInt(segment, 10)}
}

// enterRegime keeps the window inside the cell's regime. leave ends what that takes.
func (b *bed) enterRegime(ctx context.Context, w *load.Window, room int64) (leave func(), err error) {
	if b.p.Regime != RegimeDisk {
		w.WarmupBytes = max(1, room/5)
		w.MeasureBytes = max(1, room-room/5)
		return func() {}, nil
	}
	b.c.Progress("waiting for the disk to settle")
	if b.disk, err = sut.EnterDiskRegime(ctx, b.c.Dir); err != nil {
		return nil, err
	}
	w.Enter(b.disk)
	var stops []func()
	for _, broker := range b.brokers() {
		stops = append(stops, sut.DropClean(broker.DataDir()))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// toDisk is the metric of the disk regime: bytes that reached the disk, of one copy.
const toDisk = "to-disk-bytes/s"

// addToDisk puts what reached the disk into the metrics.
func (b *bed) addToDisk(elapsed time.Duration) error {
	b.r.Warnings = append(b.r.Warnings, b.disk.Warnings("the broker")...)
	copies := float64(b.p.copies())
	reached, err := b.disk.Reached(int64(b.r.Metrics["bytes/s"] * elapsed.Seconds() * copies))
	b.r.Metrics[toDisk] = float64(reached) / elapsed.Seconds() / copies
	return err
}

// produce runs the cell's producer.
func (b *bed) produce(ctx context.Context, w *load.Window, dial load.Dial) (load.Stats, error) {
	p := b.p
	if p.Driver == "kgo" {
		return p.kgoProduce(b.addrs(), b.topic, b.c.Seed, dial).Run(ctx, w)
	}
	batches, err := p.spec(b.c.Seed).Prepare(p.variants())
	if err != nil {
		return load.Stats{}, err
	}
	leaders, err := b.leaders(ctx)
	if err != nil {
		return load.Stats{}, err
	}
	return load.RawProduce{
		Addr: b.addr(), Leaders: leaders, Topic: b.topic, Partitions: p.Partitions, Acks: p.acks(), Batches: batches, Depth: p.Inflight,
		RecordsPerS: p.RecordsPerS, Dial: dial,
	}.Run(ctx, w)
}

// kgoProduce is the cell's franz-go producer.
func (p *Params) kgoProduce(addrs []string, topic string, seed uint64, dial load.Dial) load.KgoProduce {
	return load.KgoProduce{
		Addrs: addrs, Topic: topic, Acks: p.acks(), Codec: p.Codec, Linger: p.Linger,
		BatchBytes: p.BatchBytes, BatchRecords: p.BatchRecords, RecordBytes: p.RecordBytes, Entropy: p.Entropy,
		RecordsPerS: p.RecordsPerS, Inflight: p.Inflight, Seed: seed, Dial: dial,
	}
}

// addProduce puts a producer's numbers and checks into the result.
func (b *bed) addProduce(ctx context.Context, st load.Stats) error {
	if err := b.addRates(st, "produce"); err != nil {
		return err
	}
	m, p := b.r.Metrics, b.p
	if p.Acks == "0" {
		b.countAtBroker(st)
	}
	wirePerPayload := float64(st.SentBytes) / float64(max(1, st.SentPayload))
	if p.Driver == "kgo" { // the driver counts values, since batches are made inside the client
		m["payload-bytes/s"] = m["bytes/s"]
		m["bytes/s"] *= wirePerPayload
		m["requests/s"] = m["records/s"] / (float64(st.SentPayload) / float64(p.RecordBytes) / float64(max(1, st.SentBatches)))
	} else {
		m["payload-bytes/s"] = m["bytes/s"] / wirePerPayload
	}
	b.addSamples(int64(m["bytes/s"]*st.Elapsed.Seconds()), false)
	m["wire-bytes/payload-byte"] = wirePerPayload
	m["records/batch"] = float64(st.SentPayload) / float64(p.RecordBytes) / float64(max(1, st.SentBatches))
	m["client-cpu-sec/GB"] = b.clientCPU.Seconds() / (m["payload-bytes/s"] * st.Elapsed.Seconds() / 1e9)
	if p.RecordsPerS > 0 {
		b.r.check("rate-sustained", m["records/s"] >= 0.95*p.RecordsPerS, "%.0f records/s of %.0f", m["records/s"], p.RecordsPerS)
		if b.r.Checks["rate-sustained"] != "" {
			b.warn("the rate was not sustained: %s", b.r.Checks["rate-sustained"])
		}
	}
	if p.Acks != "0" {
		b.r.check("offsets-contiguous", st.Gaps == 0, "%d answers whose offset did not follow the last", st.Gaps)
	}
	if b.disk != nil {
		return b.addToDisk(st.Elapsed)
	}
	return nil
}

// countAtBroker takes the rate of a producer that hears nothing from how far the
// log grew: what the driver has handed to its socket is not yet with the broker.
func (b *bed) countAtBroker(st load.Stats) {
	from, to := b.from.Broker, b.to.Broker
	if from == nil || to == nil || st.Records == 0 || b.c.Broker["lab.offsets"] == "byte" {
		b.warn("acks=0: rates are of what was sent, not of what arrived")
		return
	}
	// Every copy's log counts: the mean of the copies grew by so much.
	arrived := float64(to.Status.LogEndOffsets-from.Status.LogEndOffsets) / float64(b.p.copies()) / b.to.At.Sub(b.from.At).Seconds()
	share := arrived / b.r.Metrics["records/s"]
	for _, rate := range []string{"records/s", "bytes/s", "requests/s"} {
		b.r.Metrics[rate] *= share
	}
}

// noteWriteback looks whether the log's pages are still dirty, as they must be in
// the cache regime, unless the broker is told to flush.
func (b *bed) noteWriteback() {
	if b.p.Regime != RegimeCache {
		return
	}
	if from, to := b.from.Broker, b.to.Broker; from != nil && to != nil && to.Syncs() > from.Syncs() {
		return
	}
	var clean, size int64
	for _, broker := range b.brokers() {
		st, ok := sut.Cached(broker.DataDir())
		if !ok {
			b.warn("this kernel cannot tell whether writeback took part")
			return
		}
		clean, size = clean+st.Size-st.Dirty, size+st.Size
	}
	// Metadata files are small and synced; a log that is nearly all dirty was left alone.
	if clean > size/10+int64(len(b.brokers()))<<20 {
		b.r.Throttled = true
		b.warn("writeback took part: %d MB of %d MB were no longer dirty at the end", clean>>20, size>>20)
	}
}

// unboundedDepth stands for a producer that does not wait at all, in a bare loop that always answers.
const unboundedDepth = 64

// addWriteLimit measures the bare loop, or the disk, that bounds a produce cell.
func addWriteLimit(ctx context.Context, c *Cell, r *Result, room int64) error {
	p := &c.Workload
	c.Progress("measuring the machine's limit")
	if p.Regime == RegimeDisk {
		of, err := limits.Sustained(ctx, c.Dir, p.Measure)
		r.Limits[toDisk], r.Unfilled = of.Rate/float64(p.copies()), !of.Filled
		r.Warnings = append(r.Warnings, of.Warnings...)
		return err
	}
	return addWriteLoop(ctx, c, r, limits.Loop{FileBytes: room + (64 << 20), MaxBytes: room, Warmup: p.Warmup})
}

// addWriteLoop measures the bare loop for a produce cell. loop says what file it writes, and how long it warms up.
func addWriteLoop(ctx context.Context, c *Cell, r *Result, loop limits.Loop) error {
	p := &c.Workload
	batches, err := p.spec(c.Seed).Prepare(p.variants())
	if err != nil {
		return err
	}
	loop.Binary, loop.Dir, loop.Mode, loop.Measure = c.Binary, c.Dir, limits.ModeWrite, p.Measure
	loop.Requests, loop.Depth = load.ProduceFrames(topic, 1, batches), p.Inflight
	if p.Acks == "0" {
		loop.Depth = max(loop.Depth, unboundedDepth)
	}
	st, err := loop.Run(ctx)
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, st.Warnings...)
	// The loop writes one copy. A machine that writes several does no more than a share of that.
	r.Limits["bytes/s"], r.Metrics["bare-loop-cpu-sec/GB"] = st.BytesPerS()/float64(p.copies()), st.CPUPerGB()
	if loop.SegmentBytes > 0 {
		r.Limits[toDisk] = float64(st.Reached) / st.Elapsed.Seconds() / float64(p.copies())
	}
	return nil
}

func runCompression(ctx context.Context, c *Cell, r *Result) error {
	if c.Workload.Driver == "" {
		c.Workload.Driver = "kgo"
	}
	p := &c.Workload
	room, err := makeRoom(c, r)
	if err != nil {
		return err
	}
	b, err := makeBed(ctx, c, r, segmentSettings(p, room))
	defer b.close()
	if err != nil {
		return err
	}
	dial := load.DialTCP
	if p.LinkBytesPerS > 0 {
		dial = load.NewLink(p.LinkBytesPerS).Dial
	}
	w := b.window(ctx)
	leave, err := b.enterRegime(ctx, w, room)
	if err != nil {
		return err
	}
	st, err := b.produce(ctx, w, dial)
	leave()
	if err != nil {
		return err
	}
	if err := b.addProduce(ctx, st); err != nil {
		return err
	}
	disk, err := b.broker.LogFiles(".log")
	if err != nil {
		return err
	}
	r.Metrics["disk-bytes/payload-byte"] = float64(disk) / float64(max(1, st.SentPayload))
	if p.LinkBytesPerS > 0 {
		r.Limits["bytes/s"] = float64(p.LinkBytesPerS)
	}
	return nil
}
