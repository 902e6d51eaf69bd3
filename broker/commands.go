package broker

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// checkCommand says whether a command of the controller is for this incarnation, and
// from the controller: not from one that was replaced (C4), not for the process that
// had this broker id before (C6).
func (b *Broker) checkCommand(key int16, controllerEpoch int32, brokerEpoch int64) int16 {
	m := b.member
	if m == nil {
		return codeStaleControllerEpoch // a cluster of one has no controller but itself
	}
	if b.rules.CommandBrokerEpoch && brokerEpoch >= 0 && brokerEpoch < m.bumped.Load() {
		return codeStaleBrokerEpoch
	}
	for {
		seen := m.commandEpoch.Load()
		if b.rules.ControllerEpochCheck && controllerEpoch < seen {
			return codeStaleControllerEpoch
		}
		if m.commandEpoch.CompareAndSwap(seen, max(seen, controllerEpoch)) {
			break
		}
	}
	if b.observer != nil {
		b.observer.CommandApplied(key, controllerEpoch)
	}
	return codeNone
}

func (b *Broker) observeLeader(p *partition, r *role) {
	if b.observer != nil {
		b.observer.BecameLeader(p.topic, p.index, r.leaderEpoch, r.isr)
	}
}

func (b *Broker) observeFollower(p *partition, r *role) {
	if b.observer != nil {
		b.observer.BecameFollower(p.topic, p.index, r.leaderEpoch, r.leader)
	}
}

// topicNamed is a topic that a command speaks of.
type topicNamed struct {
	name string
	id   topicID
}

// settingsOf reads the settings of those topics that the snapshot does not have, and
// hands them over by name. It is called inside a change.
func (b *Broker) settingsOf(topics []topicNamed, done func(overrides map[string]map[string]string)) {
	found := map[string]map[string]string{}
	m := b.meta.Load()
	var missing []string
	for _, t := range topics {
		if known := m.topics[t.name]; (known == nil || known.id != t.id) && !slices.Contains(missing, t.name) {
			missing = append(missing, t.name)
		}
	}
	client := b.cluster.client()
	end := newCountdown(len(missing), func() { done(found) })
	for _, name := range missing {
		client.Get(coord.TopicConfigPath(name), nil, func(data []byte, _ coord.Stat, err error) {
			if err == nil {
				overrides, err := coord.DecodeConfig(data)
				if err != nil {
					b.report(env.Error, "topic %s: %v: its settings are taken for the defaults", name, err)
				}
				found[name] = overrides
			}
			// Settings that cannot be read now come with the next session, which reads all.
			end.done()
		})
	}
	end.done()
}

// replicas are the partitions that this broker has a log of, by name, in a replicated
// cluster: also those of which no command has spoken yet. Under changes alone.
type replicas map[partitionName]*partition

// openHeld opens the logs that the directories hold, before this incarnation registers:
// only then is known whether they are what a clean shutdown left.
func (b *Broker) openHeld(done func(error)) {
	var parts []*partition
	seen := map[partitionName]*logDir{}
	for _, d := range b.dirs {
		found, err := d.store.Partitions()
		if err != nil {
			done(err)
			return
		}
		for _, f := range found {
			name := partitionName{f.Topic, f.Partition}
			if other := seen[name]; other != nil {
				done(errTwice(name, other, d))
				return
			}
			seen[name] = d
			t := &topic{name: f.Topic, id: f.TopicID}
			d.partitions.Add(1)
			p := b.newPartition(t, f.Partition, d, b.cfg.Load())
			parts = append(parts, p)
			b.held[name] = p
		}
	}
	b.openAll(parts, func() {
		b.settleAll(parts)
		done(nil)
	})
}

// replicaOf gives the partition that a command speaks of, and whether its log is still to be opened. A
// log of another topic of that name is no longer wanted by anybody.
func (b *Broker) replicaOf(t *topic, index int32) (p *partition, fresh bool, stale *partition) {
	name := partitionName{t.name, index}
	held := b.held[name]
	if held != nil && (held.id == t.id || held.id == topicID{}) {
		return held, false, nil
	}
	p = b.newPartition(t, index, b.emptiestDir(), b.topicConfig(t.overrides))
	b.held[name] = p
	return p, true, held
}

// drop ends replicas whose topic or assignment is gone, deletes their logs, and then calls done.
func (b *Broker) drop(parts []*partition, done func()) {
	idle := newCountdown(len(parts), func() {
		b.removeAll(parts, done)
	})
	for _, p := range parts {
		b.fetchers.forget(p)
		p.stop(errGone)
		p.whenIdle(idle.done)
	}
	idle.done()
}

// editTopic gives the topic to be changed in an edited snapshot: a copy, or a new one.
func editTopic(m *metadata, named topicNamed, overrides map[string]map[string]string) *topic {
	known := m.topics[named.name]
	if known == nil || known.id != named.id && named.id != (topicID{}) {
		t := &topic{name: strings.Clone(named.name), id: named.id, overrides: overrides[named.name]}
		m.put(t)
		return t
	}
	t := *known
	t.partitions = slices.Clone(known.partitions)
	t.placed = slices.Clone(known.placed)
	m.put(&t)
	return &t
}

// grow makes room for partition index.
func (t *topic) grow(index int32) {
	for len(t.partitions) <= int(index) {
		t.partitions = append(t.partitions, nil)
	}
	for len(t.placed) < len(t.partitions) {
		t.placed = append(t.placed, placement{leader: noBroker, leaderEpoch: -1})
	}
}

// sortedKeys gives a map's keys, ascending.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// sortedPartitions gives the names in a map, by topic and number.
func sortedPartitions[V any](m map[partitionName]V) []partitionName {
	return slices.SortedFunc(maps.Keys(m), func(a, b partitionName) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
}
