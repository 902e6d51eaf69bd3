package broker

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

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
	m := &metadata{
		clusterID: clusterID,
		topics:    make(map[string]*topic, len(topics)),
		byID:      make(map[topicID]*topic, len(topics)),
		collision: make(map[string]string, len(topics)),
		sorted:    slices.SortedFunc(slices.Values(topics), func(x, y *topic) int { return strings.Compare(x.name, y.name) }),
	}
	for _, t := range topics {
		m.topics[t.name] = t
		m.byID[t.id] = t
		m.collision[collisionKey(t.name)] = t.name
	}
	return m
}

// with gives m and t, which replaces a topic of its name.
func (m *metadata) with(t *topic) *metadata {
	n := &metadata{m.clusterID, maps.Clone(m.topics), maps.Clone(m.byID), maps.Clone(m.collision), slices.Clone(m.sorted)}
	if old := m.topics[t.name]; old != nil {
		delete(n.byID, old.id)
	}
	n.topics[t.name], n.byID[t.id], n.collision[collisionKey(t.name)] = t, t, t.name
	i, found := slices.BinarySearchFunc(n.sorted, t.name, func(x *topic, name string) int { return strings.Compare(x.name, name) })
	if found {
		n.sorted[i] = t
	} else {
		n.sorted = slices.Insert(n.sorted, i, t)
	}
	return n
}

// without gives m less the topic t.
func (m *metadata) without(t *topic) *metadata {
	n := &metadata{m.clusterID, maps.Clone(m.topics), maps.Clone(m.byID), maps.Clone(m.collision), nil}
	delete(n.topics, t.name)
	delete(n.byID, t.id)
	delete(n.collision, collisionKey(t.name))
	n.sorted = slices.DeleteFunc(slices.Clone(m.sorted), func(x *topic) bool { return x.name == t.name })
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
