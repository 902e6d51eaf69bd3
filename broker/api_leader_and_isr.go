package broker

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
)

// LeaderAndISR, version 6, from the controller: which replicas this broker has, who leads
// each, and its ISR. Our tagged field 10000 of a partition is its ELR (KIP-966), 10002 in the answer
// says where the log of a partition without a leader ends.
//
// The answer comes when the logs are open and the roles are taken. What a full list does
// not name is left as it is, and reported: deleting waits for a StopReplica.

// rolesOf is a command in work.
type rolesOf struct {
	b    *Broker
	req  *kmsg.LeaderAndISRRequest
	resp *kmsg.LeaderAndISRResponse

	topics  []topicNamed
	roles   [][]role // by topic and partition of the request
	parts   [][]*partition
	answers [][]*kmsg.LeaderAndISRResponseTopicPartition
}

func (b *Broker) handleLeaderAndISR(req *kmsg.LeaderAndISRRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.LeaderAndISRResponse)
	if resp.ErrorCode = b.checkCommand(req.Key(), req.ControllerEpoch, req.BrokerEpoch); resp.ErrorCode != codeNone {
		reply(Answer{Body: resp})
		return
	}
	for i := range req.LiveLeaders {
		l := &req.LiveLeaders[i]
		b.peers.put(l.BrokerID, l.Host, l.Port)
	}
	c := &rolesOf{b: b, req: req, resp: resp}
	c.read()
	b.changes.run(func(release func()) {
		// A newer controller may have spoken while this waited its turn.
		if resp.ErrorCode = b.checkCommand(req.Key(), req.ControllerEpoch, req.BrokerEpoch); resp.ErrorCode != codeNone {
			release()
			reply(Answer{Body: resp})
			return
		}
		c.run(func() {
			release()
			reply(Answer{Body: resp})
		})
	})
}

// read takes everything out of the request, whose strings alias the receive buffer.
func (c *rolesOf) read() {
	for i := range c.req.TopicStates {
		t := &c.req.TopicStates[i]
		c.topics = append(c.topics, topicNamed{strings.Clone(t.Topic), t.TopicID})
		roles := make([]role, len(t.PartitionStates))
		answer := kmsg.NewLeaderAndISRResponseTopic()
		answer.TopicID = t.TopicID
		answer.Partitions = make([]kmsg.LeaderAndISRResponseTopicPartition, len(roles))
		answers := make([]*kmsg.LeaderAndISRResponseTopicPartition, len(roles))
		for j := range t.PartitionStates {
			s := &t.PartitionStates[j]
			roles[j] = role{
				leader: s.Leader, leaderEpoch: s.LeaderEpoch, isr: s.ISR, replicas: s.Replicas,
				partitionEpoch: s.ZKVersion, controllerEpoch: s.ControllerEpoch,
			}
			s.UnknownTags.Each(func(tag uint32, value []byte) {
				switch tag {
				case tagELR:
					roles[j].elr = decodeIDs(value)
				case tagLastKnownELR:
					roles[j].lastKnown = decodeIDs(value)
				}
			})
			answer.Partitions[j].Default()
			answer.Partitions[j].Partition = s.Partition
			answers[j] = &answer.Partitions[j]
		}
		c.roles, c.answers = append(c.roles, roles), append(c.answers, answers)
		c.resp.Topics = append(c.resp.Topics, answer)
	}
}

// run opens what is not open, publishes it, and takes the roles.
func (c *rolesOf) run(done func()) {
	c.b.settingsOf(c.topics, func(overrides map[string]map[string]string) {
		m := c.b.meta.Load().edit()
		var fresh, stale []*partition
		for i, named := range c.topics {
			t := editTopic(m, named, overrides)
			parts := make([]*partition, len(c.roles[i]))
			for j := range parts {
				index := c.resp.Topics[i].Partitions[j].Partition
				if index < 0 || index >= c.b.static.MaxPartitionsPerTopic {
					c.answers[i][j].ErrorCode = codeInvalidRequest
					continue
				}
				p, isFresh, old := c.b.replicaOf(t, index)
				if isFresh {
					fresh = append(fresh, p)
				} else if p.repl == nil || !p.repl.told {
					p.adopt(t, c.b.topicConfig(t.overrides))
				}
				if old != nil {
					stale = append(stale, old)
				}
				t.grow(index)
				t.partitions[index] = p
				parts[j] = p
			}
			c.parts = append(c.parts, parts)
		}
		c.b.drop(stale, func() {
			c.b.openAll(fresh, func() {
				c.b.meta.Store(m.sort())
				c.take()
				done()
			})
		})
	})
}

// take gives each partition its role.
func (c *rolesOf) take() {
	b := c.b
	for i := range c.parts {
		for j, p := range c.parts[i] {
			if p == nil {
				continue
			}
			r := &c.roles[i][j]
			code, follow := p.become(r)
			answer := c.answers[i][j]
			answer.ErrorCode = code
			if code == codeNone && r.leader == noBroker {
				answer.UnknownTags.Set(tagLog, p.logEnd())
			}
			if follow {
				b.fetchers.follow(p, r.leader)
			} else if code == codeNone {
				b.fetchers.forget(p)
			}
		}
	}
	b.fetchers.run()
	if c.req.Type == 1 {
		b.reportStrays(c)
	}
}

// reportStrays tells of logs that a full list does not name.
func (b *Broker) reportStrays(c *rolesOf) {
	named := map[*partition]bool{}
	for i := range c.parts {
		for _, p := range c.parts[i] {
			named[p] = true
		}
	}
	for _, name := range sortedPartitions(b.held) {
		if p := b.held[name]; !named[p] {
			b.report(env.Warn, "partition %s-%d in %s is assigned to this broker no more: it is left as it is until the controller says", name.topic, name.index, p.dir.path)
		}
	}
}
