package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// driver carries out what package controller decides, for one term: it reads and
// watches the nodes, writes with the controller epoch checked, sends commands,
// and tells the controller what became of it all.
type driver struct {
	b              *Broker
	s              *session
	epoch, version int32 // of the controller, and of the node that keeps it

	mu         sync.Mutex // of this and what is below; held while effects are carried out, which call nothing back
	c          *controller.Controller
	over       bool
	loaded     bool
	stop       func() bool // the tick's timer
	topics     map[string]bool
	listed     map[string]int64                   // path: transaction of the newest list of its children that was taken
	damaged    map[controller.TopicPartition]bool // whose states could not be read, and that was reported
	changed    []func()                           // looks again at what changed before all was read
	isrChanges changedStates
	request    uint64
	answers    map[uint64]func(controller.Answer) // of requests that wait; bounded by the requests in flight
}

// tickMax is the longest that the controller goes without a tick.
const tickMax = 500 * time.Millisecond

// step gives the controller an input and carries out what follows.
func (d *driver) step(in controller.Input) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepLocked(in)
}

func (d *driver) stepLocked(in controller.Input) {
	if d.over || d.s.over.Load() {
		return
	}
	for _, e := range d.c.Step(d.b.env.Now(), in) {
		d.carryOut(e)
	}
	d.scheduleTick()
}

func (d *driver) scheduleTick() {
	if d.over {
		return
	}
	pause := tickMax
	if at, ok := d.c.NextTick(); ok {
		pause = min(pause, max(at-d.b.env.Now(), time.Millisecond))
	}
	if d.stop != nil {
		d.stop()
	}
	d.stop = d.b.env.After(pause, func() { d.step(controller.Tick{}) })
}

// ask gives the controller a request and waits for its answer; nil when the term ends first.
func (d *driver) ask(in func(id uint64) controller.Input, done func(*controller.Answer)) {
	d.mu.Lock()
	if d.over || !d.loaded {
		d.mu.Unlock()
		done(nil)
		return
	}
	d.request++
	d.answers[d.request] = func(a controller.Answer) { d.b.env.After(0, func() { done(&a) }) }
	d.stepLocked(in(d.request))
	d.mu.Unlock()
}

// end ends the term. What waits for an answer is answered by whoever asks again elsewhere.
func (d *driver) end(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	d.over = true
	if d.stop != nil {
		d.stop()
	}
	for _, id := range sortedKeys(d.answers) {
		d.answers[id](controller.Answer{Request: id, Code: codeNotController})
	}
	d.answers = nil
	d.b.report(env.Info, "broker %d is no longer the controller: %s", d.b.static.BrokerID, why)
}

func (d *driver) carryOut(e controller.Effect) {
	switch e := e.(type) {
	case controller.WriteStates:
		d.writeStates(e)
	case controller.CreateStates:
		d.createStates(e)
	case controller.WriteTopic:
		d.writeTopic(e)
	case controller.DeleteTopic:
		newTopicDeletion(d, e).begin()
	case controller.WriteHandled:
		d.writeHandled(e, coord.SetOp(coord.BrokersHandledPath, encodeHandled(e.Handled), coord.AnyVersion))
	case controller.ReadBrokers:
		d.readBrokers()
	case controller.ReadTopics:
		d.readTopics(e.Topics)
	case controller.ReadStates:
		d.readStates(e.Partitions)
	case controller.Answer:
		if answer := d.answers[e.Request]; answer != nil {
			delete(d.answers, e.Request)
			answer(e)
		}
	case controller.Resign:
		d.resign(e.Reason)
	case controller.Send:
		d.send(e)
	default:
		panic("BUG: broker: unknown effect of the controller")
	}
}

// resign gives the office up. The election takes part again when the node is gone.
func (d *driver) resign(reason string) {
	s, e := d.s, &d.s.m.election
	d.b.env.After(0, func() {
		e.drop(s, reason)
		s.client.Get(coord.ControllerPath, nil, func(_ []byte, st coord.Stat, err error) {
			if err == nil && st.EphemeralOwner == s.client.Session() {
				s.client.Delete(coord.ControllerPath, st.Version, func(error) { e.campaign(s) })
				return
			}
			s.failed(err, func() { e.campaign(s) })
		})
	})
}

// outcome says what became of a controller's transaction whose first operation is the check, if it has one.
func outcome(checked bool, results []coord.Result, err error) controller.Outcome {
	switch {
	case err == nil:
		return controller.Accepted
	case errors.Is(err, coord.ErrSessionExpired), checked && len(results) > 0 && results[0].Err != nil:
		return controller.Fenced
	case errors.Is(err, coord.ErrBadVersion), errors.Is(err, coord.ErrNoNode), errors.Is(err, coord.ErrNodeExists), errors.Is(err, coord.ErrNotEmpty):
		return controller.Conflict
	}
	return controller.Unknown
}

// guarded puts the check of the controller epoch before a transaction.
func guarded(epochVersion int32, ops ...coord.Op) (all []coord.Op, checked bool) {
	if epochVersion < 0 {
		return ops, false
	}
	return append([]coord.Op{coord.CheckOp(coord.ControllerEpochPath, epochVersion)}, ops...), true
}
