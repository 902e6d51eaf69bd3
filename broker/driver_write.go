package broker

import (
	"errors"
	"strconv"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
)

// statesPerWrite bounds how many states one transaction writes.
const statesPerWrite = 128

// writeStates writes partition states, and reports them together.
func (d *driver) writeStates(e controller.WriteStates) {
	results := make([]controller.StateWritten, len(e.Writes))
	for i := range results {
		results[i].Partition = e.Writes[i].Partition
	}
	end := newCountdown((len(results)+statesPerWrite-1)/statesPerWrite, func() { d.step(controller.StatesWritten{Results: results}) })
	for at := 0; at < len(results); at += statesPerWrite {
		upTo := min(at+statesPerWrite, len(results))
		d.writeTogether(e.EpochVersion, e.Writes[at:upTo], results[at:upTo], end.done)
	}
	// Nobody is called back inside the calls above, so this is not the last.
	d.b.env.After(0, end.done)
}

// writeTogether writes states in one transaction. Where one of them, or a broker that it takes in, is not
// as the controller believes, nothing was written, and each is tried on its own.
func (d *driver) writeTogether(epochVersion int32, writes []controller.StateWrite, results []controller.StateWritten, done func()) {
	var own []coord.Op
	sets := make([]int, len(writes)) // where in own the state's set is
	for i := range writes {
		w := &writes[i]
		for _, j := range w.Join {
			own = append(own, coord.CheckOp(coord.BrokerEpochPath(j.Broker), int32(j.Epoch)))
		}
		sets[i] = len(own)
		own = append(own, coord.SetOp(coord.PartitionStatePath(w.Partition.Topic, w.Partition.Partition), encodeState(&w.State), w.Version))
	}
	ops, checked := guarded(epochVersion, own...)
	d.s.client.Multi(ops, func(written []coord.Result, err error) {
		o := outcome(checked, written, err)
		if len(writes) > 1 && (o == controller.Conflict || errors.Is(err, coord.ErrTooLarge)) {
			end := newCountdown(len(writes), done)
			for i := range writes {
				d.writeTogether(epochVersion, writes[i:i+1], results[i:i+1], end.done)
			}
			end.done()
			return
		}
		for i := range results {
			if results[i].Outcome = o; err == nil {
				results[i].Version = written[len(written)-len(own)+sets[i]].Stat.Version
			}
		}
		done()
	})
}

// createStates makes the states of a new topic's partitions. Their parent is made
// before, on its own: it may be there from an earlier part of the topic.
func (d *driver) createStates(e controller.CreateStates) {
	parent := func(done func(error)) {
		ops, _ := guarded(e.EpochVersion, coord.CreateOp(coord.PartitionsPath(e.Topic), nil, coord.Persistent))
		d.s.client.Multi(ops, func(_ []coord.Result, err error) {
			if errors.Is(err, coord.ErrNodeExists) {
				err = nil
			}
			done(err)
		})
	}
	numbers := make([]int32, len(e.Writes))
	var ops []coord.Op
	for i := range e.Writes {
		w := &e.Writes[i]
		numbers[i] = w.Partition.Partition
		ops = append(ops,
			coord.CreateOp(coord.PartitionPath(e.Topic, numbers[i]), nil, coord.Persistent),
			coord.CreateOp(coord.PartitionStatePath(e.Topic, numbers[i]), encodeState(&w.State), coord.Persistent))
	}
	ended := func(o controller.Outcome) {
		d.step(controller.StatesCreated{Topic: e.Topic, Partitions: numbers, Outcome: o})
	}
	parent(func(err error) {
		if err != nil {
			ended(outcome(false, nil, err))
			return
		}
		all, checked := guarded(e.EpochVersion, ops...)
		d.s.client.Multi(all, func(done []coord.Result, err error) { ended(outcome(checked, done, err)) })
	})
}

// writeTopic writes a topic's assignment and states that change with it.
func (d *driver) writeTopic(e controller.WriteTopic) {
	ops := []coord.Op{coord.SetOp(coord.TopicPath(e.Topic), encodeAssignment(&e), e.Version)}
	for i := range e.States {
		w := &e.States[i]
		ops = append(ops, coord.SetOp(coord.PartitionStatePath(w.Partition.Topic, w.Partition.Partition), encodeState(&w.State), w.Version))
	}
	all, checked := guarded(e.EpochVersion, ops...)
	d.s.client.Multi(all, func(done []coord.Result, err error) {
		in := controller.TopicWritten{Topic: e.Topic, Outcome: outcome(checked, done, err)}
		if err == nil {
			done = done[len(done)-len(ops):]
			in.Version = done[0].Stat.Version
			for _, r := range done[1:] {
				in.States = append(in.States, r.Stat.Version)
			}
		}
		d.step(in)
	})
}

// writeHandled notes which incarnations were dealt with; the node is made by its first write.
func (d *driver) writeHandled(e controller.WriteHandled, op coord.Op) {
	ops, checked := guarded(e.EpochVersion, op)
	d.s.client.Multi(ops, func(done []coord.Result, err error) {
		if errors.Is(err, coord.ErrNoNode) && op.Kind == coord.OpSet {
			d.writeHandled(e, coord.CreateOp(coord.BrokersHandledPath, op.Data, coord.Persistent))
			return
		}
		d.step(controller.HandledWritten{Outcome: outcome(checked, done, err)})
	})
}

// topicDeletion removes a topic's nodes, its own and the mark of its deletion last, so that a
// controller which dies in between leaves the mark for the next one. The two go together,
// and nothing goes without the mark: a topic that is made under the name right then is another.
type topicDeletion struct {
	d *driver
	e controller.DeleteTopic
	// failed is the first outcome that is not Accepted.
	failed controller.Outcome
}

func newTopicDeletion(d *driver, e controller.DeleteTopic) *topicDeletion {
	return &topicDeletion{d: d, e: e, failed: controller.Accepted}
}

func (t *topicDeletion) begin() {
	t.d.s.client.Children(coord.PartitionsPath(t.e.Topic), nil, func(names []string, _ coord.Stat, err error) {
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			t.end(outcome(false, nil, err))
			return
		}
		each(len(names), func(i int, end func()) {
			n, err := strconv.ParseInt(names[i], 10, 32)
			if err != nil {
				end()
				return
			}
			t.remove(coord.PartitionStatePath(t.e.Topic, int32(n)), func() { t.remove(coord.PartitionPath(t.e.Topic, int32(n)), end) })
		}, func() {
			t.remove(coord.PartitionsPath(t.e.Topic), func() { t.remove(coord.TopicConfigPath(t.e.Topic), t.removeLast) })
		})
	})
}

func (t *topicDeletion) removeLast() {
	if t.failed != controller.Accepted {
		t.end(t.failed)
		return
	}
	topic, mark := coord.TopicPath(t.e.Topic), coord.DeleteTopicPath(t.e.Topic)
	ops, checked := guarded(t.e.EpochVersion, coord.DeleteOp(topic, coord.AnyVersion), coord.DeleteOp(mark, coord.AnyVersion))
	t.d.s.client.Multi(ops, func(done []coord.Result, err error) {
		if errors.Is(err, coord.ErrNoNode) { // a mark without a topic, or this was done before
			t.remove(mark, func() { t.end(t.failed) })
			return
		}
		t.end(outcome(checked, done, err))
	})
}

// remove deletes a node; one that is gone counts as deleted.
func (t *topicDeletion) remove(path string, end func()) {
	ops, checked := guarded(t.e.EpochVersion, coord.CheckOp(coord.DeleteTopicPath(t.e.Topic), coord.AnyVersion), coord.DeleteOp(path, coord.AnyVersion))
	t.d.s.client.Multi(ops, func(done []coord.Result, err error) {
		if o := outcome(checked, done, err); o != controller.Accepted && !errors.Is(err, coord.ErrNoNode) && t.failed == controller.Accepted {
			t.failed = o
		}
		end()
	})
}

// end reports. Another topic of the name may be there before it was seen that this one went: so it is looked for.
func (t *topicDeletion) end(o controller.Outcome) {
	t.d.step(controller.TopicDeleted{Topic: t.e.Topic, Outcome: o})
	if o == controller.Accepted {
		t.d.forgetTopic(t.e.Topic)
		t.d.readTopics([]string{t.e.Topic})
	}
}
