package broker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
)

// growth gives a topic of a replicated cluster more partitions.
type growth struct {
	b     *Broker
	t     *topic
	count int                // of its partitions then
	asked [][]int32          // the new ones' replicas; nil: the brokers decide
	r     *topicResult       // says what is wrong with the request
	wrote *writtenPartitions // what a try without an answer may have written; nil: there is none
}

// writtenPartitions are the replicas of the partitions from 'from' on.
type writtenPartitions struct {
	from     int
	replicas [][]int32
}

// in says whether a topic has them.
func (w *writtenPartitions) in(have [][]int32) bool {
	end := w.from + len(w.replicas)
	return len(have) >= end && slices.EqualFunc(have[w.from:end], w.replicas, slices.Equal)
}

// growReplicatedTopic is growTopic where a controller does the work.
func (b *Broker) growReplicatedTopic(t *topic, count int32, assignment [][]int32, done func(topicResult)) {
	var r topicResult
	g := &growth{b: b, t: t, count: int(count), asked: assignment, r: &r}
	b.settle(topicWait, g.try, func(err error) {
		switch {
		case err != nil:
			r.fail(codeRequestTimedOut, errMetadata(err))
		case r.code == codeNone:
			b.await(topicWait, func(m *metadata) bool { return m.served(t.id, int(count)) }, func(ok bool) {
				if !ok {
					r.fail(codeRequestTimedOut, "the partitions are noted, and have no leaders yet")
				}
				done(r)
			})
			return
		}
		done(r)
	})
}

// try writes the topic's larger assignment. A try whose write was not answered is known by what it wrote, not by
// the number of partitions: another request may have asked for the same number, and that one was granted.
func (g *growth) try(_ bool, done func(error)) {
	path := coord.TopicPath(g.t.name)
	g.b.cluster.client().Get(path, nil, func(data []byte, st coord.Stat, err error) {
		var a coord.TopicAssignment
		if err == nil {
			a, err = coord.DecodeTopicAssignment(data)
		}
		switch {
		case errors.Is(err, coord.ErrNoNode), err == nil && a.TopicID != g.t.id:
			g.r.fail(codeUnknownTopicOrPartition, "there is no topic "+g.t.name+" any more")
			done(nil)
			return
		case err != nil:
			done(err)
			return
		case len(a.Replicas) >= g.count:
			if g.wrote == nil || !g.wrote.in(a.Replicas) {
				g.r.fail(codeInvalidPartitions, fmt.Sprintf("topic %s has %d partitions, so it cannot grow to %d", g.t.name, len(a.Replicas), g.count))
			}
			done(nil)
			return
		}
		w := g.place(a.Replicas)
		if w == nil {
			done(nil)
			return
		}
		a.Replicas = append(a.Replicas, w.replicas...)
		g.b.cluster.client().Set(path, a.Encode(), st.Version, func(_ coord.Stat, err error) {
			if open(err) {
				g.wrote = w
			}
			done(err)
		})
	})
}

// place is where the partitions go that the topic lacks; nil: r says why they cannot go anywhere. What was
// written before is written again: either is then known by the same.
func (g *growth) place(have [][]int32) *writtenPartitions {
	lacks := g.count - len(have)
	switch {
	case g.wrote != nil && g.wrote.from == len(have):
		return g.wrote
	case g.asked == nil:
		m, factor := g.b.meta.Load(), 1
		if len(have) > 0 {
			factor = len(have[0])
		}
		replicas, err := controller.Place(m.placeable(), lacks, factor, len(have), g.b.draw(len(m.nodes)), g.b.draw(len(m.nodes)))
		if err != nil {
			g.r.fail(codeInvalidReplicationFactor, err.Error())
			return nil
		}
		return &writtenPartitions{len(have), replicas}
	case len(g.asked) != lacks: // it has grown since the request was looked at
		g.r.fail(codeInvalidReplicaAssignment, fmt.Sprintf("topic %s has %d partitions: %d replica lists do not make %d", g.t.name, len(have), len(g.asked), g.count))
		return nil
	}
	return &writtenPartitions{len(have), g.asked}
}
