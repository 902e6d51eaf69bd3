package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-log/tidemark/harness/load"
)

// Bench is a one-off load on a broker that runs already, ours or not.
type Bench struct {
	Bootstrap []string // brokers to begin with, host:port; the raw driver consumes from the first alone
	Topic     string   // created with Workload.Partitions partitions when it is not there
	Workload  Params   // Kind is Produce, Consume or EndToEnd
	Seed      uint64
	// Records bounds a consume, in records; 0: all that is there when it begins.
	Records int64
	OnTick  func(load.Tick)
}

// Run runs the load and gives the metrics that the broker's own process is not needed for.
func (o Bench) Run(ctx context.Context) (Result, error) {
	r := newResult()
	c := &Cell{Workload: o.Workload, Seed: o.Seed, Progress: func(string) {}}
	b := &bed{c: c, p: &c.Workload, r: &r, topic: o.Topic, remote: o.Bootstrap, onTick: o.OnTick}
	if err := o.Workload.Check(); err != nil {
		return r, err
	}
	if len(o.Bootstrap) == 0 {
		return r, errors.New("bench: no address of a broker")
	}
	if err := b.findTopic(ctx, o.Workload.Kind != Consume); err != nil {
		return r, err
	}
	w := b.window(ctx)
	switch o.Workload.Kind {
	case Produce:
		st, err := b.produce(ctx, w, load.DialTCP)
		if err != nil {
			return r, err
		}
		return r, b.addProduce(ctx, st)
	case Consume:
		return r, b.benchConsume(ctx, w, o.Records)
	case EndToEnd:
		st, delivered, err := b.kgoEndToEnd(ctx, w)
		if err != nil {
			return r, err
		}
		if err := b.addProduce(ctx, st); err != nil {
			return r, err
		}
		b.addLatency("produce", "ack-", st.Latency)
		b.addLatency("end-to-end", "", delivered)
		return r, nil
	}
	return r, fmt.Errorf("bench: kind %s needs a broker of its own: use an experiment", o.Workload.Kind)
}

func (b *bed) benchConsume(ctx context.Context, w *load.Window, records int64) error {
	// All of it is measured: there is no second pass to warm up for.
	w.Warmup, w.Measure = 0, 365*24*time.Hour
	b.p.Driver = strings.TrimSpace(b.p.Driver)
	if b.p.Driver == "raw" && records > 0 {
		return errors.New("bench: the raw driver reads whole partitions: leave the number of records out, or use --driver kgo")
	}
	if records == 0 {
		var err error
		if records, err = b.endOffset(ctx); err != nil {
			return err
		}
	}
	st, err := b.consume(ctx, w, records, false)
	if err != nil {
		return err
	}
	if st.Records == 0 {
		return fmt.Errorf("bench: topic %s is empty", b.topic)
	}
	if err := b.addRates(st, "fetch"); err != nil {
		return err
	}
	if b.p.Driver == "kgo" { // it counts values; what they were wrapped in is not known
		b.r.Metrics["payload-bytes/s"] = b.r.Metrics["bytes/s"]
		delete(b.r.Metrics, "bytes/s")
	}
	return nil
}

// findTopic learns how many partitions the topic has, and creates it when it may.
func (b *bed) findTopic(ctx context.Context, create bool) error {
	adm, err := b.admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	topics, err := adm.ListTopics(ctx, b.topic)
	if err != nil {
		return fmt.Errorf("bench: no answer from %s: %w", strings.Join(b.remote, " or "), err)
	}
	var t kadm.TopicDetail
	if t = topics[b.topic]; t.Err == nil && len(t.Partitions) > 0 {
		b.p.Partitions = len(t.Partitions)
		return nil
	}
	if !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("bench: topic %s: %w", b.topic, t.Err)
	}
	if !create {
		return fmt.Errorf("bench: topic %s does not exist", b.topic)
	}
	return b.createTopic(ctx, b.topic, b.p.Partitions)
}

// Sweep produces at one rate after another, from low records/s up, until the
// broker or the client no longer keeps up, and then closes in on the highest rate
// sustained. onPoint hears of each rate as it is done.
func (o Bench) Sweep(ctx context.Context, low float64, onPoint func(load.Point)) (knee float64, err error) {
	const halvings = 4
	_, knee, err = load.Sweep(ctx, low, halvings, func(ctx context.Context, rate float64) (load.Point, error) {
		o.Workload.RecordsPerS = rate
		r, err := o.Run(ctx)
		if err != nil {
			return load.Point{}, err
		}
		seconds := func(metric string) time.Duration { return time.Duration(r.Metrics[metric] * float64(time.Second)) }
		p := load.Point{Asked: rate, Reached: r.Metrics["records/s"], P50: seconds("p50-sec"), P99: seconds("p99-sec")}
		onPoint(p)
		return p, nil
	})
	return knee, err
}
