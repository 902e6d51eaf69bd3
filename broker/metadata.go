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
	partitions []*partition
	overrides  map[string]string // the topic's own settings; never changed
}

// metadata is an immutable snapshot of what the cluster holds: handlers read it without a lock.
type metadata struct {
	clusterID string
	topics    map[string]*topic
	byID      map[topicID]*topic
	collision map[string]string // collisionKey to name
	sorted    []*topic          // by name
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
	return &metadata{m.clusterID, maps.Clone(m.topics), maps.Clone(m.byID), maps.Clone(m.collision), slices.Clone(m.sorted)}
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

func (t *topic) partition(index int32) *partition {
	if t == nil || index < 0 || int(index) >= len(t.partitions) {
		return nil
	}
	return t.partitions[index]
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
