package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// crowdPoll is how often the cluster is asked: seldom, as an answer about so many partitions costs the brokers something.
const crowdPoll = 100 * time.Millisecond

// crowdClients talk to each broker of a crowd by itself, one request at a time.
type crowdClients struct {
	one        []*kgo.Client // of broker i+1
	partitions int
	batch      []byte
}

func newCrowdClients(addrs []string, partitions int, batch []byte) (*crowdClients, error) {
	c := &crowdClients{partitions: partitions, batch: batch}
	for _, addr := range addrs {
		one, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("tidemark-harness"), kgo.RequestTimeoutOverhead(crowdPatience))
		if err != nil {
			c.close()
			return nil, fmt.Errorf("workload: %w", err)
		}
		c.one = append(c.one, one)
	}
	return c, nil
}

func (c *crowdClients) close() {
	for _, one := range c.one {
		one.Close()
	}
}

// ask sends broker id a request, once.
func (c *crowdClients) ask(ctx context.Context, id int, req kmsg.Request) (kmsg.Response, error) {
	return c.one[id-1].SeedBrokers()[0].Request(ctx, req)
}

func (c *crowdClients) create(ctx context.Context, assignment [][]int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(crowdPatience.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = crowdTopic, -1, -1
	for p, replicas := range assignment {
		t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(p), Replicas: replicas})
	}
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(ctx, 1, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

func (c *crowdClients) controller(ctx context.Context) (int, error) {
	resp, err := c.ask(ctx, 1, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return 0, err
	}
	return int(resp.(*kmsg.MetadataResponse).ControllerID), nil
}

// topic is what broker id knows of the topic; nil when that is nothing.
func (c *crowdClients) topic(ctx context.Context, id int) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(crowdTopic)
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(ctx, id, req)
	if err != nil {
		return nil, err
	}
	topic := &resp.(*kmsg.MetadataResponse).Topics[0]
	return topic, kerr.ErrorForCode(topic.ErrorCode)
}

// untilEach waits until each of the brokers says of every partition that it is as wanted.
func (c *crowdClients) untilEach(ctx context.Context, ids []int, wanted func(*kmsg.MetadataResponseTopicPartition) bool) error {
	for _, id := range ids {
		err := untilEvery(ctx, crowdPoll, func() (string, error) {
			t, err := c.topic(ctx, id)
			if err != nil {
				return "", err
			}
			n := 0
			for i := range t.Partitions {
				if wanted(&t.Partitions[i]) {
					n++
				}
			}
			if n < c.partitions {
				return fmt.Sprintf("broker %d: %d partitions of %d are as wanted", id, n, c.partitions), nil
			}
			return "", nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *crowdClients) untilInSync(ctx context.Context, replicas int, ids []int) error {
	return c.untilEach(ctx, ids, func(p *kmsg.MetadataResponseTopicPartition) bool { return p.Leader >= 0 && len(p.ISR) == replicas })
}

func (c *crowdClients) untilLed(ctx context.Context, ids []int) error {
	return c.untilEach(ctx, ids, func(p *kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode == 0 && p.Leader >= 0 })
}

// ledBy are the partitions that a broker leads.
func (c *crowdClients) ledBy(ctx context.Context, id int) ([]int32, error) {
	t, err := c.topic(ctx, id)
	if err != nil {
		return nil, err
	}
	var led []int32
	for i := range t.Partitions {
		if int(t.Partitions[i].Leader) == id {
			led = append(led, t.Partitions[i].Partition)
		}
	}
	return led, nil
}

// untilAllTake is untilTake of every partition.
func (c *crowdClients) untilAllTake(ctx context.Context, ids []int) error {
	all := make([]int32, c.partitions)
	for p := range all {
		all[p] = int32(p)
	}
	return c.untilTake(ctx, ids, all)
}

// untilTake produces one record to each of the partitions, acks=all, and again to those that did not take it.
// It asks the brokers ids, in turn, who leads.
func (c *crowdClients) untilTake(ctx context.Context, ids []int, partitions []int32) error {
	left := make(map[int32]bool, len(partitions))
	for _, p := range partitions {
		left[p] = true
	}
	asked := 0
	return untilEvery(ctx, crowdPoll, func() (string, error) {
		id := ids[asked%len(ids)]
		asked++
		t, err := c.topic(ctx, id)
		if err != nil {
			return "", err
		}
		byLeader := make([][]int32, len(c.one))
		for _, p := range t.Partitions {
			if p.Leader >= 1 && int(p.Leader) <= len(c.one) && left[p.Partition] {
				byLeader[p.Leader-1] = append(byLeader[p.Leader-1], p.Partition)
			}
		}
		for i, parts := range byLeader {
			if err := c.produce(ctx, i+1, t, parts, left); err != nil {
				return "", err
			}
		}
		if len(left) > 0 {
			return fmt.Sprintf("%d partitions of %d have not taken a record", len(left), len(partitions)), nil
		}
		return "", nil
	})
}

// produce sends broker id a record for each of the partitions, and takes those that took it off left.
func (c *crowdClients) produce(ctx context.Context, id int, topic *kmsg.MetadataResponseTopic, partitions []int32, left map[int32]bool) error {
	if len(partitions) == 0 {
		return nil
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = crowdTopic, topic.TopicID
	for _, p := range partitions {
		one := kmsg.NewProduceRequestTopicPartition()
		one.Partition, one.Records = p, slices.Clone(c.batch)
		t.Partitions = append(t.Partitions, one)
	}
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(ctx, id, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				delete(left, p.Partition)
			}
		}
	}
	return nil
}
