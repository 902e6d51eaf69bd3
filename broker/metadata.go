package broker

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// topicID is Kafka's UUID of a topic (KIP-516): a topic created again under a name is another topic.
type topicID = coord.UUID

// topic is one topic. It is immutable, except for what its partitions hold; a change makes another.
type topic struct {
	name       string
	id         topicID
	partitions []*partition      // this broker's replicas; nil where it has none
	placed     []placement       // by partition, as the controller last told; nil in a cluster of one
	overrides  map[string]string // the topic's own settings; never changed
}

// placement is who leads and who replicates a partition. It is never changed.
type placement struct {
	leader         int32 // noBroker: none
	leaderEpoch    int32
	replicas       []int32 // preferred leader first
	isr            []int32
	offline        []int32 // of replicas: those whose broker is not there
	partitionEpoch int32
}

// noBroker stands for no broker.
const noBroker int32 = -1

// node is a live broker, as the controller last told.
type node struct {
	id   int32
	host string
	port int32
	rack string
}

// metadata is an immutable snapshot of what the cluster holds: handlers read it without a lock.
type metadata struct {
	clusterID string
	topics    map[string]*topic
	byID      map[topicID]*topic
	collision map[string]string // collisionKey to name
	sorted    []*topic          // by name

	// nodes are the live brokers, ascending, and controller is one of them; in a
	// cluster of one nil and this broker's.
	nodes      []node
	controller int32
	toldBy     commandNumber // the UpdateMetadata that told it last
}

// commandNumber orders the commands of the controllers.
type commandNumber struct {
	controllerEpoch int32
	seq             uint64 // 0: not given, as by another kind of controller
}

// lateAfter is true where a command came after one that its controller sent later: (1) its connection broke, and the controller told
// what is new on another; (2) that came first; (3) the old one came, which nobody waits for. Nothing would correct what it says:
// dead brokers and deleted topics would be back.
func (n commandNumber) lateAfter(last commandNumber) bool {
	return n.seq > 0 && n.controllerEpoch == last.controllerEpoch && n.seq < last.seq
}

func newMetadata(clusterID string, topics []*topic) *metadata {
	m := &metadata{clusterID: clusterID, topics: map[string]*topic{}, byID: map[topicID]*topic{}, collision: map[string]string{}}
	for _, t := range topics {
		m.put(t)
	}
	return m.sort()
}

// edit gives a copy to change before it is published with sort.
func (m *metadata) edit() *metadata {
	n := *m
	n.topics, n.byID, n.collision, n.sorted = maps.Clone(m.topics), maps.Clone(m.byID), maps.Clone(m.collision), slices.Clone(m.sorted)
	return &n
}

// put adds t to a copy, or replaces the topic of its name.
func (m *metadata) put(t *topic) {
	if old := m.topics[t.name]; old != nil {
		delete(m.byID, old.id)
	}
	m.topics[t.name], m.byID[t.id], m.collision[collisionKey(t.name)] = t, t, t.name
}

// drop takes t out of a copy.
func (m *metadata) drop(t *topic) {
	delete(m.topics, t.name)
	delete(m.byID, t.id)
	delete(m.collision, collisionKey(t.name))
}

// sort brings the list of topics up to date, after which a copy is not changed any more.
func (m *metadata) sort() *metadata {
	m.sorted = m.sorted[:0:0]
	for _, name := range slices.Sorted(maps.Keys(m.topics)) {
		m.sorted = append(m.sorted, m.topics[name])
	}
	return m
}

// with gives m and t, which replaces a topic of its name.
func (m *metadata) with(t *topic) *metadata {
	n := m.edit()
	n.put(t)
	return n.sort()
}

// partitions counts the partitions of all topics.
func (m *metadata) partitions() int {
	n := 0
	for _, t := range m.sorted {
		n += len(t.partitions)
	}
	return n
}

func (m *metadata) partition(name string, index int32) *partition {
	return m.topics[name].partition(index)
}

// partition gives this broker's replica of a partition, or nil.
func (t *topic) partition(index int32) *partition {
	if t == nil || index < 0 || int(index) >= len(t.partitions) {
		return nil
	}
	return t.partitions[index]
}

// find gives this broker's replica of a partition of t, or the code that says why there is
// none: unknown when there is no such partition at all.
func (t *topic) find(index int32, unknown int16) (*partition, int16) {
	switch {
	case t == nil:
		return nil, unknown
	case index < 0 || int(index) >= len(t.partitions):
		return nil, codeUnknownTopicOrPartition
	case t.partitions[index] == nil:
		return nil, codeNotLeaderOrFollower
	}
	return t.partitions[index], codeNone
}

// newUUID is a random UUID, version 4, never one that begins with '-' as text: it
// would look like a flag.
func newUUID(random env.Rand) topicID {
	for {
		var id topicID
		binary.BigEndian.PutUint64(id[:], random.Uint64())
		binary.BigEndian.PutUint64(id[8:], random.Uint64())
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id
		}
	}
}
