package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sample"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// topic is the one topic of a cell.
const topic = "cell"

// errNotOurs keeps a broker that we did not start from being sampled.
var errNotOurs = errors.New("the broker is not ours")

// bed is what a cell lies in: a broker of its own with one topic, and a sampler
// that looks at it while the window is open.
type bed struct {
	c      *Cell
	p      *Params
	r      *Result
	dir    string
	cgroup *sut.Cgroup
	// broker serves the cell. In a cluster it is the first of cluster.Brokers, which all serve.
	broker  *sut.Broker
	cluster *sut.Cluster // nil: a cluster of one
	topic   string
	remote  []string // the bootstrap addresses of brokers that are not ours; empty: broker's

	sampler   sample.Group
	from, to  sample.Snapshot
	sampleErr error
	clientCPU time.Duration // of this process inside the window
	rssMax    int64
	onTick    func(load.Tick) // may be nil
	disk      *sut.DiskRegime // nil in the cache regime
}

// makeBed starts the broker and creates the topic. The caller closes the bed, also after an error.
func makeBed(ctx context.Context, c *Cell, r *Result, defaults map[string]string) (*bed, error) {
	b := &bed{c: c, p: &c.Workload, r: r, topic: topic, dir: filepath.Join(c.Dir, "cell")}
	// A run that was killed may have left its broker's data here.
	if err := os.RemoveAll(b.dir); err != nil {
		return b, fmt.Errorf("workload: %w", err)
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return b, fmt.Errorf("workload: %w", err)
	}
	if b.p.MemoryLimit > 0 {
		var err error
		if b.cgroup, err = sut.NewCgroup(b.p.MemoryLimit); errors.Is(err, sut.ErrNoCgroup) {
			return b, fmt.Errorf("%w: %w", ErrNotPossible, err)
		} else if err != nil {
			return b, err
		}
	}
	if err := b.start(ctx, defaults); err != nil {
		return b, err
	}
	if b.p.Partitions > 0 && !slices.Contains(placingKinds, b.p.Kind) {
		if err := b.createTopic(ctx, b.topic, b.p.Partitions); err != nil {
			return b, err
		}
	}
	return b, b.touchMemory()
}

// start starts the broker, or all of the cluster.
func (b *bed) start(ctx context.Context, defaults map[string]string) (err error) {
	if b.p.Brokers > 1 {
		b.c.Progress("starting the cluster")
		return b.startCluster(ctx, defaults)
	}
	b.c.Progress("starting the broker")
	b.broker, err = sut.StartBroker(ctx, sut.BrokerSpec{Binary: b.c.Binary, Dir: b.dir, Overrides: b.overrides(defaults), Cgroup: b.cgroup})
	return err
}

// touchMemory sees that the cell's page cache comes from memory the host has given.
// It is called with the broker running and the last cell's data gone.
func (b *bed) touchMemory() error {
	if b.p.Kind == Idle || slices.Contains(placingKinds, b.p.Kind) {
		return nil
	}
	bytes := b.p.DataBytes
	if b.p.Regime == RegimeDisk { // what the page cache holds then is what is dirty
		limit, err := sut.DirtyLimit()
		if err != nil {
			return err
		}
		bytes = limit
	}
	b.c.Progress("touching memory")
	return sut.TouchMemory(bytes)
}

// overrides puts the cell's switches over what the kind and the workload need.
func (b *bed) overrides(defaults map[string]string) map[string]string {
	o := map[string]string{
		// A batch of the cell must fit, whatever its size.
		"message.max.bytes":               strconv.Itoa(max(1<<20, b.p.BatchBytes, b.p.BatchRecords*(b.p.RecordBytes+20)) + 4096),
		"log.retention.check.interval.ms": "600000", // nothing is deleted while it is measured
	}
	for _, m := range []map[string]string{defaults, b.c.Broker} {
		for k, v := range m {
			o[k] = v
		}
	}
	return o
}

// close stops the broker without asking it to flush, and removes what it wrote:
// what is still dirty then never goes to the disk and does not disturb the next cell.
func (b *bed) close() {
	if b.cluster != nil {
		b.cluster.Kill()
	} else if b.broker != nil && b.broker.Process() != nil {
		b.broker.Kill()
	}
	if err := os.RemoveAll(b.dir); err != nil {
		b.warn("scratch was not removed: %v", err)
	}
	if b.cgroup != nil {
		if err := b.cgroup.Close(); err != nil {
			b.warn("%v", err)
		}
	}
}

func (b *bed) warn(format string, args ...any) {
	b.r.Warnings = append(b.r.Warnings, fmt.Sprintf(format, args...))
}

// addr is where clients connect; in a cluster, where one of its brokers is.
func (b *bed) addr() string {
	if b.remote != nil {
		return b.remote[0]
	}
	return b.broker.Addr
}

func (b *bed) admin() (*kadm.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs()...), kgo.ClientID("tidemark-harness"))
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	return kadm.NewClient(client), nil
}

func (b *bed) createTopic(ctx context.Context, name string, partitions int) error {
	if b.cluster != nil {
		return b.createReplicated(ctx, name, b.spread(partitions))
	}
	adm, err := b.admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := adm.CreateTopic(ctx, int32(partitions), 1, nil, name); err != nil {
		return fmt.Errorf("workload: create topic %s with %d partitions: %w", name, partitions, err)
	}
	return nil
}

// endOffset is the sum of the log end offsets of the topic's partitions.
func (b *bed) endOffset(ctx context.Context) (int64, error) {
	adm, err := b.admin()
	if err != nil {
		return 0, err
	}
	defer adm.Close()
	offsets, err := adm.ListEndOffsets(ctx, b.topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("workload: list offsets: %w", err)
	}
	var sum int64
	offsets.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum, nil
}

// window is a window of the cell's length that samples the broker at its edges.
func (b *bed) window(ctx context.Context) *load.Window {
	if b.remote != nil {
		b.sampleErr = errNotOurs
	} else {
		b.sampler, b.sampleErr = b.samplers()
	}
	var clientFrom time.Duration
	return &load.Window{
		Warmup: b.p.Warmup, Measure: b.p.Measure,
		OnOpen:  func() { b.take(ctx, &b.from); clientFrom = sample.OwnCPU() },
		OnClose: func() { b.clientCPU = sample.OwnCPU() - clientFrom; b.take(ctx, &b.to) },
		OnTick:  b.tick,
	}
}

// brokers are all that serve the cell.
func (b *bed) brokers() []*sut.Broker {
	if b.cluster != nil {
		return b.cluster.Brokers
	}
	return []*sut.Broker{b.broker}
}

// samplers look at every broker's process as it is now. The embedded ZooKeeper's is left out.
func (b *bed) samplers() (sample.Group, error) {
	var all sample.Group
	for _, broker := range b.brokers() {
		s, err := sample.New(broker.Process().PID(), broker.Admin)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (b *bed) take(ctx context.Context, snap *sample.Snapshot) {
	if b.sampleErr == nil {
		*snap, b.sampleErr = b.sampler.Take(ctx)
	}
}

func (b *bed) tick(t load.Tick) {
	if b.sampleErr == nil {
		if rss, err := b.sampler.RSS(); err == nil {
			b.rssMax = max(b.rssMax, rss)
		}
	}
	if b.onTick != nil {
		b.onTick(t)
	}
	b.c.Progress(fmt.Sprintf("%s, %.0f MB", [...]string{"warming up", "measuring"}[min(t.Phase, 1)], float64(t.Bytes)/1e6))
}

// addSamples puts what the sampler saw into the metrics.
func (b *bed) addSamples(bytes int64, delivered bool) {
	if b.sampleErr == errNotOurs {
		return
	} else if b.sampleErr != nil {
		b.warn("the broker was not sampled: %v", b.sampleErr)
		return
	}
	for name, v := range sample.Metrics(b.from, b.to, bytes, delivered) {
		b.r.Metrics[name] = v
	}
	b.r.Metrics["broker-rss-bytes"] = max(b.r.Metrics["broker-rss-bytes"], float64(b.rssMax))
}

// addRates puts a driver's rates and latencies into the metrics.
func (b *bed) addRates(st load.Stats, latency string) error {
	if st.Elapsed <= 0 || st.Requests == 0 {
		return fmt.Errorf("workload: the measured part is empty: too little data (%d bytes) or time (%s) for the warmup of %s", b.p.DataBytes, b.p.Measure, b.p.Warmup)
	}
	m := b.r.Metrics
	m["bytes/s"], m["records/s"] = st.BytesPerS(), st.RecordsPerS()
	m["requests/s"] = float64(st.Requests) / st.Elapsed.Seconds()
	m["measured-sec"] = st.Elapsed.Seconds()
	b.addLatency(latency, "", st.Latency)
	return nil
}

// addLatency keeps a histogram and its quantiles, in seconds.
func (b *bed) addLatency(name, prefix string, h *hdrhistogram.Histogram) {
	b.r.Latency[name] = h
	for suffix, q := range map[string]float64{"p50-sec": 50, "p99-sec": 99, "p999-sec": 99.9, "max-sec": 100} {
		b.r.Metrics[prefix+suffix] = float64(h.ValueAtQuantile(q)) / 1e6
	}
}

// check notes the outcome of a check.
func (r *Result) check(name string, held bool, format string, args ...any) {
	if held {
		r.Checks[name] = ""
	} else {
		r.Checks[name] = fmt.Sprintf(format, args...)
	}
}

func (p *Params) acks() int16 {
	return map[string]int16{"0": 0, "1": 1, "all": -1}[p.Acks]
}

// spec is the shape of the cell's batches.
func (p *Params) spec(seed uint64) load.BatchSpec {
	return load.BatchSpec{
		RecordBytes: p.RecordBytes, BatchRecords: p.BatchRecords, BatchBytes: p.BatchBytes, Entropy: p.Entropy, Codec: p.Codec,
		Timestamp: time.Now().UnixMilli(), Seed: seed,
	}
}

// variants is how many different batches are prepared: about 4 MB of them, so that
// the sender reads from memory or the last cache, not from the first.
func (p *Params) variants() int {
	size := p.BatchBytes
	if p.BatchRecords > 0 {
		size = p.BatchRecords * (p.RecordBytes + 10)
	}
	return max(2, min(64, (4<<20)/max(1, size)))
}
