package chaos

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadata asks every broker that is up, and gives the answers in order of their ids; nil: there was none.
func (c *cluster) metadata() []*kmsg.MetadataResponse {
	answers := make([]*kmsg.MetadataResponse, len(c.Brokers))
	var all sync.WaitGroup
	for i := range c.Brokers {
		if c.is(int32(i)+1, up) {
			all.Go(func() { answers[i] = c.metadataOf(i) })
		}
	}
	all.Wait()
	return answers
}

func (c *cluster) metadataOf(i int) *kmsg.MetadataResponse {
	if c.ask[i] == nil {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers[i].Addr))
		if err != nil {
			return nil
		}
		c.ask[i] = client
	}
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil
	resp, err := c.ask[i].SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil
	}
	return resp.(*kmsg.MetadataResponse)
}

// newest puts answers together, as far as they can be told old from new; nil: there is none.
//
// A broker that stood still answers from what it knew before, first of all that it leads
// itself. Of a partition the answer of the highest leader epoch counts, of equal ones the
// leader's own, which hears of its ISR first. A controller has no epoch in metadata: the one whom
// most name counts, and of equally many the one who is named by others than itself.
func newest(answers []*kmsg.MetadataResponse) *kmsg.MetadataResponse {
	votes := map[int32]int{}
	partitions := map[int32]kmsg.MetadataResponseTopicPartition{}
	var m *kmsg.MetadataResponse
	for i, a := range answers {
		if a == nil {
			continue
		}
		id := int32(i) + 1
		votes[a.ControllerID] += 2
		if a.ControllerID == id {
			votes[id]--
		}
		if m == nil {
			m = a
		}
		for _, p := range partitionsOf(a) {
			known, seen := partitions[p.Partition]
			if !seen || p.LeaderEpoch > known.LeaderEpoch || p.LeaderEpoch == known.LeaderEpoch && p.Leader == id {
				partitions[p.Partition] = p
			}
		}
	}
	if m == nil {
		return nil
	}
	controller := m.ControllerID
	for i, a := range answers {
		if a != nil && votes[a.ControllerID] > votes[controller] {
			controller, m = a.ControllerID, answers[i] // who knows the controller knows who is registered
		}
	}
	if own := int(controller) - 1; own >= 0 && own < len(answers) && answers[own] != nil {
		m = answers[own]
	}
	name := topic
	t := kmsg.MetadataResponseTopic{Topic: &name}
	for p := range int32(len(partitions)) {
		t.Partitions = append(t.Partitions, partitions[p])
	}
	return &kmsg.MetadataResponse{ControllerID: controller, Brokers: m.Brokers, Topics: []kmsg.MetadataResponseTopic{t}}
}

// holds says whether a condition holds now. Where nobody answers, it is not known to.
func holds(m *kmsg.MetadataResponse, when string, acked int) bool {
	if m == nil {
		return false
	}
	for _, one := range strings.Split(when, " and ") {
		if is := parseCondition(one); is == nil || !is(m, acked) {
			return false
		}
	}
	return true
}

// allSayInSync says whether every broker answers, and that all is in sync: clients ask any of them.
func (c *cluster) allSayInSync() (bool, error) { return allSayInSync(c.metadata()), nil }

func allSayInSync(answers []*kmsg.MetadataResponse) bool {
	for _, a := range answers {
		if !holds(a, "in sync", 0) {
			return false
		}
	}
	return true
}
