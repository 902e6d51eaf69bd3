package broker

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// StopReplica, version 3, from the controller: which replicas this broker stops, and which
// of them it deletes. A replica that knows a newer leader epoch refuses (KIP-570). Our tagged
// field 10001 of a topic is its id.

func (b *Broker) handleStopReplica(req *kmsg.StopReplicaRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.StopReplicaResponse)
	if resp.ErrorCode = b.checkCommand(req.Key(), req.ControllerEpoch, req.BrokerEpoch); resp.ErrorCode != codeNone {
		reply(Answer{Body: resp})
		return
	}
	topics := make([]topicNamed, len(req.Topics))
	for i := range req.Topics {
		topics[i].name = strings.Clone(req.Topics[i].Topic)
		req.Topics[i].UnknownTags.Each(func(tag uint32, value []byte) {
			if tag == tagTopicID {
				copy(topics[i].id[:], value)
			}
		})
	}
	b.changes.run(func(release func()) {
		if resp.ErrorCode = b.checkCommand(req.Key(), req.ControllerEpoch, req.BrokerEpoch); resp.ErrorCode != codeNone {
			release()
			reply(Answer{Body: resp})
			return
		}
		m := b.meta.Load().edit()
		var deleted []*partition
		for i := range req.Topics {
			for _, s := range req.Topics[i].PartitionStates {
				name := partitionName{topics[i].name, s.Partition}
				answer := kmsg.NewStopReplicaResponsePartition()
				answer.Topic, answer.Partition = name.topic, name.index
				var p *partition
				if p, answer.ErrorCode = b.stopReplica(m, name, topics[i].id, s.LeaderEpoch, s.Delete); p != nil {
					deleted = append(deleted, p)
				}
				resp.Partitions = append(resp.Partitions, answer)
			}
		}
		b.meta.Store(m.sort())
		b.drop(deleted, func() {
			release()
			reply(Answer{Body: resp})
			b.metadataChanged()
		})
	})
}

// stopReplica takes a replica out of an edited snapshot, and gives it if it is to be deleted.
func (b *Broker) stopReplica(m *metadata, name partitionName, id topicID, leaderEpoch int32, remove bool) (*partition, int16) {
	p := b.held[name]
	if p == nil || p.id != id && p.id != (topicID{}) && id != (topicID{}) {
		return nil, codeNone // it is not here, or another topic's of that name: as wanted
	}
	code := codeNone
	p.step(func(fx *effects) {
		if leaderEpoch >= 0 && p.repl != nil && p.repl.told && leaderEpoch < p.epoch {
			code = codeFencedLeaderEpoch
			return
		}
		p.stopReplicating(fx)
	})
	if code != codeNone {
		return nil, code
	}
	b.fetchers.forget(p)
	if !remove {
		return nil, codeNone
	}
	delete(b.held, name)
	if t := m.topics[name.topic]; t != nil && t.id == p.id && t.partition(name.index) == p {
		edited := editTopic(m, topicNamed{t.name, t.id}, nil)
		edited.partitions[name.index] = nil
	}
	return p, codeNone
}

// stopReplicating ends the partition's part, as leader or follower, until it gets another.
func (p *partition) stopReplicating(fx *effects) {
	q := p.repl
	if q == nil {
		return
	}
	hw := p.committed()
	if q.leader.Leading() {
		q.leader.Resign()
	}
	q.follower.Stop(p.epoch, hw)
	q.leaderID = noBroker
	p.failCommitWaiters(fx, errNotLeader)
	p.waiting.wakeAll(fx)
}
