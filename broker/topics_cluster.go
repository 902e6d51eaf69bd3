package broker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
)

// Topics of a replicated cluster. Any broker writes what is wanted into the
// coordination service; the controller sees it there, and has it done. The answer
// waits until this broker hears that it is.

// topicWait is how long a request waits for that when it does not say.
const topicWait = 30 * time.Second

// awaitedMetadata is who waits for a change of metadata. Bounded by the requests in flight.
type awaitedMetadata struct {
	mu   sync.Mutex
	list []*awaitedChange
}

type awaitedChange struct {
	there func(*metadata) bool
	done  func(ok bool)
	stop  func() bool
}

// await calls done with true once there holds, or with false after d.
func (b *Broker) await(d time.Duration, there func(*metadata) bool, done func(ok bool)) {
	w := &awaitedChange{there: there, done: done}
	a := &b.awaited
	a.mu.Lock()
	w.stop = b.env.After(d, func() {
		if a.take(w) {
			done(false)
		}
	})
	a.list = append(a.list, w)
	a.mu.Unlock()
	a.look(b.meta.Load())
}

func (a *awaitedMetadata) take(w *awaitedChange) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.list, w)
	if i < 0 {
		return false
	}
	a.list = slices.Delete(a.list, i, i+1)
	return true
}

// look ends the waits that the snapshot satisfies.
func (a *awaitedMetadata) look(m *metadata) {
	a.mu.Lock()
	var over []*awaitedChange
	a.list = slices.DeleteFunc(a.list, func(w *awaitedChange) bool {
		if !w.there(m) {
			return false
		}
		over = append(over, w)
		return true
	})
	a.mu.Unlock()
	for _, w := range over {
		w.stop()
		w.done(true)
	}
}

// served is true when every partition of a topic has a leader.
func (m *metadata) served(id topicID, partitions int) bool {
	t := m.byID[id]
	return t != nil && len(t.placed) >= partitions && !slices.ContainsFunc(t.placed, func(p placement) bool { return p.leader < 0 })
}

// createReplicatedTopics is createTopics where a controller does the work.
func (b *Broker) createReplicatedTopics(specs []topicSpec, done func([]topicResult)) {
	results := make([]topicResult, len(specs))
	end := newCountdown(len(specs), func() { done(results) })
	m := b.meta.Load()
	wanted, partitions := m.edit(), m.partitions()
	for i := range specs {
		spec, r := &specs[i], &results[i]
		b.checkSpec(wanted, spec, partitions, r)
		var replicas [][]int32
		if r.code == codeNone {
			replicas = b.placeReplicas(m, spec, r)
		}
		if r.code != codeNone {
			end.done()
			continue
		}
		r.t.partitions = make([]*partition, spec.partitions)
		wanted.put(r.t)
		partitions += int(spec.partitions)
		if spec.dryRun {
			end.done()
			continue
		}
		b.createReplicated(spec, r, replicas, end.done)
	}
	end.done()
}

// placeReplicas is the assignment asked for, or one over the live brokers.
func (b *Broker) placeReplicas(m *metadata, spec *topicSpec, r *topicResult) [][]int32 {
	if spec.assignment != nil {
		for i, replicas := range spec.assignment {
			for _, id := range replicas {
				if !slices.ContainsFunc(m.nodes, func(n node) bool { return n.id == id }) {
					r.fail(codeInvalidReplicaAssignment, fmt.Sprintf("partition %d: there is no live broker %d", i, id))
					return nil
				}
			}
		}
		return spec.assignment
	}
	factor := int(spec.factor)
	if factor < 0 {
		factor = int(b.cfg.Load().ReplicationFactor)
	}
	if factor < 1 || factor > len(m.nodes) {
		r.fail(codeInvalidReplicationFactor, fmt.Sprintf("replication factor %d: there are %d live brokers", factor, len(m.nodes)))
		return nil
	}
	replicas, err := controller.Place(m.placeable(), int(spec.partitions), factor, 0, b.draw(len(m.nodes)), b.draw(len(m.nodes)))
	if err != nil {
		r.fail(codeInvalidReplicationFactor, err.Error())
	}
	return replicas
}

// draw is a random number below n.
func (b *Broker) draw(n int) int { return int(b.env.Rand().Int64N(int64(max(n, 1)))) }

// placeable are the live brokers as the controller's placement wants them.
func (m *metadata) placeable() []controller.Broker {
	brokers := make([]controller.Broker, len(m.nodes))
	for i, n := range m.nodes {
		brokers[i] = controller.Broker{ID: n.id, Rack: n.rack}
	}
	return brokers
}

// wait is how long the request waits.
func (s *topicSpec) wait() time.Duration {
	if s.timeout > 0 {
		return min(s.timeout, produceTimeoutMax)
	}
	return topicWait
}

// deleteReplicatedTopics is deleteTopics where a controller does the work.
func (b *Broker) deleteReplicatedTopics(targets []*topic, timeout time.Duration, done func([]topicResult)) {
	results := make([]topicResult, len(targets))
	end := newCountdown(len(targets), func() { done(results) })
	for i, t := range targets {
		r := &results[i]
		b.settle(timeout, func(again bool, done func(error)) { b.markDeleted(t, again, done) }, func(err error) {
			if err != nil && !errors.Is(err, coord.ErrNodeExists) {
				r.fail(codeRequestTimedOut, errMetadata(err))
				end.done()
				return
			}
			b.await(timeout, func(m *metadata) bool { return m.byID[t.id] == nil }, func(ok bool) {
				if r.t = t; !ok {
					r.fail(codeRequestTimedOut, "the deletion of topic "+t.name+" is noted, and not done yet")
				}
				end.done()
			})
		})
	}
	end.done()
}

// markDeleted asks the controller to delete a topic, by name. Where an earlier try may have been carried out, the
// topic may be gone, and another have its name: that one is nobody's wish to delete.
func (b *Broker) markDeleted(t *topic, again bool, done func(error)) {
	mark := func() {
		b.cluster.client().Create(coord.DeleteTopicPath(t.name), nil, coord.Persistent, func(_ string, _ coord.Stat, err error) { done(err) })
	}
	if !again {
		mark()
		return
	}
	b.cluster.client().Get(coord.TopicPath(t.name), nil, func(data []byte, _ coord.Stat, err error) {
		a, damaged := coord.DecodeTopicAssignment(data)
		switch {
		case errors.Is(err, coord.ErrNoNode), err == nil && damaged == nil && a.TopicID != t.id:
			done(nil)
		case err != nil:
			done(err)
		default:
			mark()
		}
	})
}
