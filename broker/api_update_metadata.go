package broker

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// UpdateMetadata, version 7, from the controller: the live brokers, and who leads and
// replicates what, for clients to ask.

// leaderDuringDelete is the leader of a partition that is being deleted: it is forgotten.
const leaderDuringDelete = -2

func (b *Broker) handleUpdateMetadata(req *kmsg.UpdateMetadataRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.UpdateMetadataResponse)
	if resp.ErrorCode = b.checkCommand(req.Key(), req.ControllerEpoch, req.BrokerEpoch); resp.ErrorCode != codeNone {
		reply(Answer{Body: resp})
		return
	}
	nodes := make([]node, len(req.LiveBrokers))
	for i := range req.LiveBrokers {
		nodes[i] = decodeLiveBroker(&req.LiveBrokers[i])
	}
	slices.SortFunc(nodes, func(x, y node) int { return int(x.id) - int(y.id) })
	told := numberOf(req)
	topics := make([]topicNamed, len(req.TopicStates))
	for i := range req.TopicStates {
		topics[i] = topicNamed{strings.Clone(req.TopicStates[i].Topic), req.TopicStates[i].TopicID}
	}
	b.changes.run(func(release func()) {
		if resp.ErrorCode = b.checkCommand(req.Key(), req.ControllerEpoch, req.BrokerEpoch); resp.ErrorCode != codeNone {
			release()
			reply(Answer{Body: resp})
			return
		}
		if told.lateAfter(b.meta.Load().toldBy) {
			release()
			reply(Answer{Body: resp})
			return
		}
		for i := range nodes {
			b.peers.put(nodes[i].id, nodes[i].host, nodes[i].port)
		}
		b.settingsOf(topics, func(overrides map[string]map[string]string) {
			m := b.meta.Load().edit()
			m.nodes, m.controller, m.toldBy = nodes, req.ControllerID, told
			for i := range topics {
				m.place(topics[i], req.TopicStates[i].PartitionStates, overrides)
			}
			b.meta.Store(m.sort())
			release()
			reply(Answer{Body: resp})
			b.metadataChanged()
		})
	})
}

func numberOf(req *kmsg.UpdateMetadataRequest) commandNumber {
	n := commandNumber{controllerEpoch: req.ControllerEpoch}
	req.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == tagSeq && len(value) == 8 {
			n.seq = binary.BigEndian.Uint64(value)
		}
	})
	return n
}

// decodeLiveBroker copies what it keeps: the request's strings alias the receive buffer.
func decodeLiveBroker(l *kmsg.UpdateMetadataRequestLiveBroker) node {
	n := node{id: l.ID}
	if len(l.Endpoints) > 0 {
		n.host, n.port = strings.Clone(l.Endpoints[0].Host), l.Endpoints[0].Port
	}
	if l.Rack != nil {
		n.rack = strings.Clone(*l.Rack)
	}
	return n
}

// place puts partitions' placements into an edited snapshot.
func (m *metadata) place(named topicNamed, states []kmsg.UpdateMetadataRequestTopicPartition, overrides map[string]map[string]string) {
	gone := len(states) > 0 && !slices.ContainsFunc(states, func(s kmsg.UpdateMetadataRequestTopicPartition) bool { return s.Leader != leaderDuringDelete })
	if known := m.topics[named.name]; gone {
		if known != nil && known.id == named.id {
			m.drop(known)
		}
		return
	}
	t := editTopic(m, named, overrides)
	for i := range states {
		s := &states[i]
		if s.Partition < 0 || s.Partition >= partitionsMax || s.Leader == leaderDuringDelete {
			continue
		}
		t.grow(s.Partition)
		t.placed[s.Partition] = placement{
			leader: s.Leader, leaderEpoch: s.LeaderEpoch, replicas: s.Replicas, isr: s.ISR, offline: s.OfflineReplicas, partitionEpoch: s.ZKVersion,
		}
	}
}

// partitionsMax bounds what a partition number in a command may make this broker allocate.
const partitionsMax = 1_000_000

// metadataChanged lets those look who wait for what a change of metadata brings.
func (b *Broker) metadataChanged() { b.awaited.look(b.meta.Load()) }
