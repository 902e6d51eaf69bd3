package broker

import (
	"errors"
	"slices"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// awaitFenced registers once no partition counts on the incarnation before this one
// (rule fence-before-reregister, A7): what that had may be lost, and nobody may
// take this one for it. The controller sees to it when the old registration is gone.
//
// Where it is proven that nothing was lost since the incarnation that a controller dealt with last, which is the only one
// that states can name, this one is as good, and no state of thousands need be read: the
// controller begins with it as with any other start.
func (s *session) awaitFenced(inc incarnation) {
	if !s.m.b.rules.FenceBeforeReregister {
		s.register(inc)
		return
	}
	s.client.Get(coord.BrokersHandledPath, nil, func(data []byte, _ coord.Stat, err error) {
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			s.failed(err, func() { s.awaitFenced(inc) })
			return
		}
		handled, _ := decodeHandled(data) // what cannot be read proves nothing
		if inc.lostNothingSince(handled, s.m.b.static.BrokerID) {
			s.register(inc)
			return
		}
		s.awaitStates(inc)
	})
}

// lostNothingSince is what the controller will say of this start, see controller.StartsClean.
func (i incarnation) lostNothingSince(handled []controller.BrokerEpoch, id int32) bool {
	at := slices.IndexFunc(handled, func(h controller.BrokerEpoch) bool { return h.Broker == id })
	return at >= 0 && controller.StartsClean(controller.Broker{ID: id, Epoch: i.epoch, CleanEpoch: i.clean, CleanRun: i.cleanRun}, handled[at].Epoch)
}

// awaitStates looks at every partition that this broker replicates.
func (s *session) awaitStates(inc incarnation) {
	s.client.Children(coord.TopicsPath, nil, func(names []string, _ coord.Stat, err error) {
		if err != nil {
			s.failed(err, func() { s.awaitStates(inc) })
			return
		}
		f := &fencing{s: s, done: func() { s.register(inc) }}
		each(len(names), func(i int, end func()) { f.topic(names[i], end) }, f.look)
	})
}

// fencing looks through the partitions that this broker replicates.
type fencing struct {
	s        *session
	waiting  []coord.TopicPartition // those that count on the old incarnation, or could not be read
	done     func()
	reported bool
}

func (f *fencing) topic(name string, end func()) {
	f.s.client.Get(coord.TopicPath(name), nil, func(data []byte, _ coord.Stat, err error) {
		if err == nil {
			var a coord.TopicAssignment
			if a, err = coord.DecodeTopicAssignment(data); err == nil {
				for i, replicas := range a.Replicas {
					if slices.Contains(replicas, f.s.m.b.static.BrokerID) {
						f.waiting = append(f.waiting, coord.TopicPartition{Topic: name, Partition: int32(i)})
					}
				}
			}
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			if f.s.failed(err, func() { f.topic(name, end) }) {
				return
			}
			f.s.m.b.report(env.Error, "topic %s: %v", name, err)
		}
		end()
	})
}

// fencingLookMax partitions are read before it is seen whether any of them still counts on the old incarnation: then
// the others are not read yet, since the controller is not done.
const fencingLookMax = 8 * eachMax

// look reads the states that are waited for, until none is left.
func (f *fencing) look() {
	if len(f.waiting) == 0 {
		f.done()
		return
	}
	n := min(len(f.waiting), fencingLookMax)
	asked, later := f.waiting[:n], f.waiting[n:]
	var still []coord.TopicPartition
	each(n, func(i int, end func()) {
		f.s.client.Get(coord.PartitionStatePath(asked[i].Topic, asked[i].Partition), nil, func(data []byte, _ coord.Stat, err error) {
			if f.counted(data, err) {
				still = append(still, asked[i])
			}
			end()
		})
	}, func() {
		f.waiting = later
		if len(still) == 0 {
			f.look()
			return
		}
		f.waiting = append(still, later...)
		if p := still[0]; !f.reported {
			f.reported = true
			f.s.m.b.report(env.Info, "waiting until the controller has fenced this broker's last incarnation: %s-%d counts on it, and %d partitions are to be looked at", p.Topic, p.Partition, len(f.waiting)-1)
		}
		f.s.again(fencedPoll, f.look)
	})
}

// counted says whether a partition's state still counts on this broker, or cannot be read.
func (f *fencing) counted(data []byte, err error) bool {
	if errors.Is(err, coord.ErrNoNode) {
		return false
	}
	if err != nil {
		return true
	}
	st, err := coord.DecodePartitionState(data)
	if err != nil {
		return false // nobody can be elected by it
	}
	id := f.s.m.b.static.BrokerID
	return st.Leader == id || slices.Contains(st.ISR, id)
}
