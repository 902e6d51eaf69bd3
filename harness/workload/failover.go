package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

func init() { runners[Failover] = runFailover }

// publishedPerPartition is what was published in 2015 of electing leaders after a
// broker's death, in ZooKeeper's era: about 5 ms for each partition that it led.
const publishedPerPartition = 5 * time.Millisecond

// failoverPoll is how often a client looks for new leaders, and so the grain of what is seen.
const failoverPoll = 5 * time.Millisecond

// runFailover kills a broker that leads every partition and looks, as a client
// does, until each of them has a new leader that serves it.
func runFailover(ctx context.Context, c *Cell, r *Result) error {
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	victim, err := b.victim(ctx, b.p.Victim)
	if err != nil {
		return err
	}
	m, began := r.Metrics, time.Now()
	if err := b.createReplicated(ctx, b.topic, b.allFrom(victim)); err != nil {
		return err
	}
	m["create-sec"] = time.Since(began).Seconds()
	gone, stop, err := watchRegistration(b.cluster.ZooKeeper, victim)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, b.failoverBound()+clusterPatience)
	defer cancel()
	watchers := b.survivors(victim)
	c.Progress(fmt.Sprintf("broker %d is killed, which leads %d partitions", victim, b.p.Partitions))
	killed := time.Now()
	b.cluster.Brokers[victim-1].Kill()
	var detected time.Time
	select {
	case detected = <-gone:
	case <-ctx.Done():
		return fmt.Errorf("workload: the session of the killed broker did not end: %w", ctx.Err())
	}
	c.Progress("its session has ended")
	first := time.Time{}
	for _, w := range watchers { // one after the other: the last to know decides, whoever is asked first
		seen, err := b.untilLedByOthers(ctx, w.Addr, int32(victim))
		if err != nil {
			return err
		}
		if first.IsZero() || seen.Before(first) {
			first = seen
		}
	}
	adm, err := b.adminOf(watchers)
	if err != nil {
		return err
	}
	defer adm.Close()
	if err := until(ctx, func() (string, error) { return notServed(ctx, adm, b.topic) }); err != nil {
		return fmt.Errorf("workload: after the failover: %w", err)
	}
	served := time.Now()
	election := served.Sub(detected)
	m["detect-sec"], m["first-leader-sec"], m["failover-sec"] = detected.Sub(killed).Seconds(), first.Sub(killed).Seconds(), served.Sub(killed).Seconds()
	m["election-sec"], m["election-sec/partition"] = election.Seconds(), election.Seconds()/float64(b.p.Partitions)
	m["failover/bound"] = served.Sub(killed).Seconds() / b.failoverBound().Seconds()
	m["election/published"] = election.Seconds() / (float64(b.p.Partitions) * publishedPerPartition.Seconds())
	return nil
}

// watchRegistration tells when a broker's registration goes: the moment from which the controller may know of its death.
func watchRegistration(zookeeper string, id int) (gone <-chan time.Time, stop func(), err error) {
	conn, _, err := zk.Connect([]string{zookeeper}, coord.TickMs*5*time.Millisecond, zk.WithLogger(silent{}), zk.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, addr, timeout)
	}))
	if err != nil {
		return nil, nil, fmt.Errorf("workload: %w", err)
	}
	there, _, events, err := conn.ExistsW(fmt.Sprintf("/brokers/ids/%d", id))
	if err == nil && !there {
		err = fmt.Errorf("broker %d is not registered", id)
	}
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("workload: %w", err)
	}
	at := make(chan time.Time, 1)
	go func() {
		if e := <-events; e.Type == zk.EventNodeDeleted {
			at <- time.Now()
		}
	}()
	return at, conn.Close, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// untilLedByOthers waits until one broker's metadata names a leader of every
// partition that is not the victim, and says when the first of them had one.
func (b *bed) untilLedByOthers(ctx context.Context, addr string, victim int32) (first time.Time, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("tidemark-harness"))
	if err != nil {
		return first, fmt.Errorf("workload: %w", err)
	}
	defer client.Close()
	only := client.SeedBrokers()[0] // no other: it may be the dead one
	for {
		led, err := ledByOthers(ctx, only, b.topic, victim)
		if err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			return first, fmt.Errorf("workload: metadata of a surviving broker: %w", err)
		}
		if led > 0 && first.IsZero() {
			first = time.Now()
		}
		if led == b.p.Partitions {
			return first, nil
		}
		if err := sleepUntil(ctx, time.Now().Add(failoverPoll)); err != nil {
			return first, fmt.Errorf("workload: %d of %d partitions have a new leader: %w", led, b.p.Partitions, err)
		}
	}
}

// ledByOthers counts the topic's partitions that a broker says are led by another than the victim.
func ledByOthers(ctx context.Context, broker *kgo.Broker, topic string, victim int32) (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	answer, err := broker.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	led := 0
	for _, t := range answer.(*kmsg.MetadataResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return 0, err
		}
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 && p.Leader != victim {
				led++
			}
		}
	}
	return led, nil
}
