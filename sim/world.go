package sim

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/experiments/history"
)

// World is one run: one broker at a time, its clients, and what is wrong.
type World struct {
	base
	*node
	cfg config

	partitions []*history.Partition
	producers  []*producer
	consumer   *consumer
	admin      *admin

	// generation counts the topic's lives: even while it is there, odd while it is
	// being deleted and made again. What was asked in another one says nothing.
	generation int

	powerCut bool // since what was recovered was judged last
	fault    *event
}

const topicName = "t"

// newWorld draws a world from the seed. Nothing has happened yet.
func newWorld(seed uint64, plant string, echo func(string)) *World {
	w := &World{base: newBase(seed, probeNames, echo)}
	w.cfg = draw(w.rng)
	w.planted = plants[plant]
	w.planted.w = w
	w.planted.config(&w.cfg)
	w.slow = w.cfg.slow
	w.node = newNode(&w.base, 0, w.cfg.syncMax)
	w.partitions = history.New(int(w.cfg.partitions), w.cfg.promises)
	w.trace.say(0, "%s", w.cfg.String())
	for i, p := range w.cfg.producers {
		w.producers = append(w.producers, newProducer(w, i, p))
	}
	w.consumer = newConsumer(w)
	w.admin = newAdmin(w)
	return w
}

// judge takes a checker's answer; true: all is well.
func (w *World) judge(v *history.Violation) bool {
	if v != nil {
		w.violated("%s", v.Text)
	}
	return v == nil
}

// healMax is how long after the heal everything must have come to rest.
const healMax = 60 * time.Second

// run is the whole story: the part with faults, the heal, and the demand that
// all that waits comes to an end.
func (w *World) run() {
	w.boot()
	w.scheduleFault()
	for _, p := range w.producers {
		w.after(nil, w.between(0, 20*time.Millisecond), p.produce)
	}
	w.after(nil, 0, w.consumer.connect)
	w.after(nil, 0, w.admin.connect)
	for w.violation == "" && w.step(w.cfg.duration, w.crashed) {
	}
	if w.violation != "" {
		return
	}
	w.heal()
	// The end is looked for at intervals, since it is no event of its own.
	for end := w.now; w.violation == "" && w.now < w.cfg.duration+healMax; {
		end += 200 * time.Millisecond
		for w.violation == "" && w.step(end, w.crashed) {
		}
		w.now = max(w.now, end)
		if w.violation == "" && w.pending() == "" {
			w.finish()
			return
		}
	}
	if p := w.pending(); w.violation == "" && p != "" {
		w.violated("L6: %v after the heal there is still pending: %s", healMax, p)
	}
}

// heal stops the faults and sees to it that the broker is up.
func (w *World) heal() {
	w.healed = true
	w.trace.say(w.now, "heal")
	if w.fault != nil {
		w.stop(w.fault)
	}
	if i := w.live; i != nil {
		i.crashIn, i.fail = 0, nil
		if i.injected { // whatever reported an error is restarted by its operator
			w.kill()
		}
	}
	for _, p := range w.producers {
		p.wind()
	}
}

// pending says in words what has not come to rest, or "".
func (w *World) pending() string {
	switch {
	case w.live == nil || !w.live.open:
		return "the broker does not serve"
	case !w.admin.created:
		return "the topic is not made"
	}
	for _, p := range w.producers {
		if n := len(p.queue); n > 0 {
			return fmt.Sprintf("producer %d has %d batches unacknowledged, the first is batch %d to partition %d", p.number, n, p.queue[0].Number, p.queue[0].Partition)
		}
	}
	for _, s := range w.live.broker.Status().Partitions {
		at := w.consumer.positions[s.Partition]
		if bases := w.partitions[s.Partition].Bases(); w.cfg.promises.ByteOffsets && len(bases) > 0 && at > bases[len(bases)-1] {
			continue // inside the last batch, behind its record count: what follows is the next one
		}
		if at < s.HighWatermark {
			return fmt.Sprintf("the consumer is at offset %d of partition %d, whose high watermark is %d", at, s.Partition, s.HighWatermark)
		}
	}
	return ""
}

// finish judges the log of the live broker for the last time.
func (w *World) finish() {
	w.guarded(func() { w.audit() }, w.crashed)
	if w.violation == "" {
		w.trace.say(w.now, "end: %d lives", w.lives)
	}
}

// boot starts a new life of the broker on what the disk holds.
func (w *World) boot() {
	for len(w.conns) > 0 {
		w.conns[0].breakDown()
	}
	i := w.begin()
	w.trace.say(w.now, "life %d begins", w.lives)
	if !w.healed && (w.cfg.kills || w.cfg.powerCuts) && w.chance(5) {
		i.crashIn, i.power = 1+w.rng.Int64N(80), w.drawPower()
	}
	if !w.healed && w.cfg.ioErrors && w.chance(10) {
		i.fail = drawFailure(w.rng)
	}
	i.broker = newBroker(w.planted.env(i), w.cfg.broker)
	w.after(&i.process, 0, func() {
		i.broker.Start(func(err error) {
			i.started = true
			if err != nil {
				w.startFailed(err)
				return
			}
			w.after(&i.process, 0, w.open)
		})
	})
}

func (w *World) startFailed(err error) {
	if !w.live.injected {
		w.violated("the broker does not start: %v", err)
		return
	}
	w.trace.say(w.now, "start fails: %s", err.Error())
	w.kill()
}

// open judges what was recovered and then lets clients in. Under visibility
// "flushed" the log can be read to its end only when that is durable.
func (w *World) open() {
	i := w.live
	if i.down {
		return // the fault that did it sees to the restart
	}
	for _, p := range i.broker.Status().Partitions {
		if p.Offline {
			if !i.injected {
				w.violated("partition %d is offline after a restart", p.Partition)
			}
			i.down = true
			w.after(&i.process, 10*time.Millisecond, w.kill)
			return
		}
		if p.HighWatermark < p.LogEndOffset {
			w.after(&i.process, time.Millisecond, w.open)
			return
		}
	}
	if w.audit() {
		w.powerCut = false
		i.open = true
		w.trace.say(w.now, "life %d serves", i.number)
	}
}

// audit reads every partition from its log start to its end, within one event,
// and holds it against what is known.
func (w *World) audit() bool {
	status := w.live.broker.Status()
	if w.generation%2 == 1 { // whose the partitions are, if there are any, nobody knows
		if n := len(status.Partitions); w.admin.deleted && n > 0 {
			w.violated("the topic was deleted, and after a restart there are %d partitions", n)
		}
		w.trace.probe("restart while the topic was deleted")
		return w.violation == ""
	}
	if n := len(status.Partitions); w.admin.created && n != int(w.cfg.partitions) {
		w.violated("S7: the topic was created with %d partitions, and after a restart there are %d", w.cfg.partitions, n)
		return false
	}
	for _, s := range status.Partitions {
		if s.HighWatermark < s.LogEndOffset {
			continue // only at the end of a run: what is not flushed cannot be read
		}
		p := w.partitions[s.Partition]
		data, ok := w.readAll(s)
		if !ok {
			return false
		}
		before := p.End()
		found, v := p.Recovered(s.LogStartOffset, s.LogEndOffset, data, w.powerCut, w.wallMs())
		if !w.judge(v) {
			return false
		}
		if found.Lost > 0 {
			w.trace.probe("recovered log shorter than before")
		}
		if found.LostAcked > 0 {
			w.trace.probe("acknowledged but not durable batch lost")
		}
		w.trace.say(w.now, "partition %d: [%d, %d), known up to %d, %d lost", s.Partition, s.LogStartOffset, s.LogEndOffset, before, found.Lost)
	}
	return true
}

// readAll fetches a partition from start to end; the answers come at once.
func (w *World) readAll(s broker.PartitionStatus) (data []byte, ok bool) {
	failed := false
	for at := s.LogStartOffset; at < s.LogEndOffset; {
		req := fetchRequest([]int64{at}, s.Partition, 1<<20, 0)
		req.SetVersion(12)
		var got []byte
		c := &conn{w: &w.base, to: w.live}
		w.live.broker.Handle(broker.Request{Body: req}, func(a broker.Answer) {
			body, err := c.encode(&call{req: req, answer: &a})
			a.Fetch.Release()
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			if err == nil {
				err = resp.ReadFrom(body)
			}
			if err == nil {
				part := resp.Topics[0].Partitions[0]
				if got = part.RecordBatches; part.ErrorCode != 0 || len(got) == 0 {
					err = fmt.Errorf("a fetch at %d answers error %d and %d bytes", at, part.ErrorCode, len(got))
				} else if nextOffset(got, at) <= at { // or this would go on for ever
					err = fmt.Errorf("a fetch at %d answers %d bytes in which no batch reaches past it", at, len(got))
				}
			}
			if err != nil {
				failed = true
				w.trace.say(w.now, "partition %d cannot be read: %s", s.Partition, err.Error())
				if !w.live.injected {
					w.violated("S26: partition %d: the log is [%d, %d): %v", s.Partition, s.LogStartOffset, s.LogEndOffset, err)
				}
			}
		})
		if failed {
			w.after(&w.live.process, 10*time.Millisecond, w.kill)
			return nil, false
		}
		data = append(data, got...)
		at = nextOffset(got, at)
	}
	return data, true
}
