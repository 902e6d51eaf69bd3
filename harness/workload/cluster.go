package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/harness/sut"
)

// clusterPatience bounds what a healthy cluster does at once: create a topic, bring its replicas in sync.
const clusterPatience = time.Minute

// clusterPoll is how often the cluster is asked whether it has got there.
const clusterPoll = 10 * time.Millisecond

// membersPatience is more than brokers that have started take to hear of each other, and clusterStarts how often it is tried.
const (
	membersPatience = 10 * time.Second
	clusterStarts   = 3
)

// startCluster starts the brokers and what they coordinate through. Brokers that
// do not find each other are no cluster to measure: it is started again, and a warning says so.
func (b *bed) startCluster(ctx context.Context, defaults map[string]string) error {
	if b.cgroup != nil {
		return errors.New("workload: memory_limit: a cluster's memory cannot be limited so far")
	}
	for attempt := 1; ; attempt++ {
		err := b.startMembers(ctx, defaults)
		if err == nil || ctx.Err() != nil || attempt == clusterStarts {
			return err
		}
		b.warn("the cluster was started again: %v", err)
		if b.cluster != nil {
			b.cluster.Kill()
		}
		if err := os.RemoveAll(b.dir); err != nil {
			return err
		}
	}
}

// startMembers starts the cluster once. Broker N stands in rack N.
func (b *bed) startMembers(ctx context.Context, defaults map[string]string) (err error) {
	b.cluster, err = sut.StartCluster(ctx, sut.ClusterSpec{
		Binary: b.c.Binary, Dir: b.dir, Brokers: b.p.Brokers, Overrides: b.overrides(defaults), InMemory: true,
		Per: func(id int) map[string]string { return map[string]string{"broker.rack": rack(id)} },
	})
	if err != nil {
		return err
	}
	b.broker = b.cluster.Brokers[0]
	return b.untilMembersKnown(ctx)
}

// untilMembersKnown waits until every broker knows all others and the controller.
func (b *bed) untilMembersKnown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, membersPatience)
	defer cancel()
	return b.eachBroker(func(adm *kadm.Client) error {
		return until(ctx, func() (string, error) {
			m, err := adm.BrokerMetadata(ctx)
			if err != nil {
				return "", err
			}
			if len(m.Brokers) != b.p.Brokers || m.Controller < 1 {
				return fmt.Sprintf("%d brokers are known of %d, and controller %d", len(m.Brokers), b.p.Brokers, m.Controller), nil
			}
			return "", nil
		})
	})
}

// eachBroker hands f a client for each broker of the cluster, one after the other.
func (b *bed) eachBroker(f func(*kadm.Client) error) error {
	for _, broker := range b.cluster.Brokers {
		own, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.ClientID("tidemark-harness"), kgo.MetadataMinAge(clusterPoll))
		if err != nil {
			return err
		}
		err = f(kadm.NewClient(own))
		own.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// ended says which brokers' processes are not running, by what they ended, and what they said last; nil when all run.
func (b *bed) ended() error {
	var all []error
	for i, broker := range b.cluster.Brokers {
		select {
		case <-broker.Process().Exited():
			all = append(all, fmt.Errorf("broker %d has ended: %s", i+1, broker.Process().HowEnded()))
		default:
		}
	}
	return errors.Join(all...)
}

// addrs are where clients connect.
func (b *bed) addrs() []string {
	if b.cluster != nil {
		return b.cluster.Addrs()
	}
	if b.remote != nil {
		return b.remote
	}
	return []string{b.addr()}
}

// spread places partitions so that each broker leads as many as the others: p's
// leader is broker p+1, its followers are the next ones, in a circle.
func (b *bed) spread(partitions int) [][]int32 {
	all := make([][]int32, partitions)
	for p := range all {
		all[p] = b.replicasFrom(p%b.p.Brokers + 1)
	}
	return all
}

// replicasFrom is a replica list of the cell's length that begins with broker first.
func (b *bed) replicasFrom(first int) []int32 {
	replicas := make([]int32, b.p.copies())
	for i := range replicas {
		replicas[i] = int32((first-1+i)%b.p.Brokers + 1)
	}
	return replicas
}

// createReplicated creates a topic whose partition p has the replicas assignment[p],
// the first of them leader, and waits until all of them lead and are in sync.
func (b *bed) createReplicated(ctx context.Context, name string, assignment [][]int32) error {
	b.c.Progress(fmt.Sprintf("creating %d partitions", len(assignment)))
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs()...), kgo.ClientID("tidemark-harness"))
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(clusterPatience.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for p, replicas := range assignment {
		t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(p), Replicas: replicas})
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("workload: create topic %s with %d partitions: %w", name, len(assignment), err)
	}
	if err := b.untilInSync(ctx, name, assignment); err != nil {
		return fmt.Errorf("workload: topic %s: %w", name, err)
	}
	return until(ctx, func() (string, error) { return notServed(ctx, kadm.NewClient(client), name) })
}

// untilInSync waits until every broker says that each partition is led by its
// first replica and has all of them in its ISR: clients may ask any broker.
func (b *bed) untilInSync(ctx context.Context, name string, assignment [][]int32) error {
	return b.eachBroker(func(adm *kadm.Client) error {
		return until(ctx, func() (string, error) {
			topics, err := adm.ListTopics(ctx, name)
			if err != nil {
				return "", err
			}
			return notInSync(topics[name], assignment), nil
		})
	})
}

// notInSync says what is still missing, or "".
func notInSync(t kadm.TopicDetail, assignment [][]int32) string {
	if len(t.Partitions) != len(assignment) {
		return fmt.Sprintf("%d partitions are known of %d", len(t.Partitions), len(assignment))
	}
	for p, replicas := range assignment {
		d := t.Partitions[int32(p)]
		isr := slices.Clone(d.ISR)
		slices.Sort(isr)
		if d.Leader != replicas[0] || len(isr) != len(replicas) {
			return fmt.Sprintf("partition %d has leader %d and ISR %v, of replicas %v", p, d.Leader, d.ISR, replicas)
		}
	}
	return ""
}

// notServed says which partition's leader does not serve it yet, or "". A leader is known to others before it knows itself.
func notServed(ctx context.Context, adm *kadm.Client, name string) (string, error) {
	offsets, err := adm.ListEndOffsets(ctx, name)
	if err != nil {
		return "", err
	}
	missing := ""
	offsets.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			missing = fmt.Sprintf("partition %d: %v", o.Partition, o.Err)
		}
	})
	return missing, nil
}

// until asks again and again until nothing is missing; the error of a wait that ended too early says what was.
func until(ctx context.Context, missing func() (string, error)) error {
	return untilEvery(ctx, clusterPoll, missing)
}

func untilEvery(ctx context.Context, pause time.Duration, missing func() (string, error)) error {
	last := ""
	for {
		what, err := missing()
		if err == nil && what == "" {
			return nil
		}
		if err != nil {
			what = err.Error()
		}
		if ctx.Err() == nil {
			last = what
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; what was missing: %s", ctx.Err(), last)
		}
	}
}

// leaders has the address of each partition's leader; nil in a cluster of one that is ours.
func (b *bed) leaders(ctx context.Context) ([]string, error) {
	if b.cluster == nil && b.remote == nil {
		return nil, nil
	}
	adm, err := b.admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	m, err := adm.Metadata(ctx, b.topic)
	if err != nil {
		return nil, fmt.Errorf("workload: leaders: %w", err)
	}
	at := map[int32]string{}
	for _, broker := range m.Brokers {
		at[broker.NodeID] = net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	}
	addrs := make([]string, b.p.Partitions)
	for p := range addrs {
		if addrs[p] = at[m.Topics[b.topic].Partitions[int32(p)].Leader]; addrs[p] == "" {
			return nil, fmt.Errorf("workload: partition %d has no leader", p)
		}
	}
	return addrs, nil
}
