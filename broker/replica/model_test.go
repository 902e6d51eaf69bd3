package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// memLog is a log of the model: one record an offset, from 0, with an epoch cache as storage keeps it.
type memLog struct {
	start   Offset
	records []memRecord // the first at start
	epochs  []EpochEnd  // End: where the epoch starts
}

type memRecord struct {
	epoch LeaderEpoch
	value string
}

func (l *memLog) LogStartOffset() Offset { return l.start }
func (l *memLog) LogEndOffset() Offset   { return l.start + Offset(len(l.records)) }

func (l *memLog) EndOffsetForEpoch(asked LeaderEpoch) (LeaderEpoch, Offset) {
	end := l.LogEndOffset()
	for i := len(l.epochs) - 1; i >= 0; i-- {
		if l.epochs[i].Epoch <= asked {
			return l.epochs[i].Epoch, end
		}
		end = l.epochs[i].End
	}
	return -1, -1
}

func (l *memLog) assign(epoch LeaderEpoch, at Offset) {
	if n := len(l.epochs); epoch < 0 || n > 0 && l.epochs[n-1].Epoch >= epoch {
		return
	}
	for n := len(l.epochs); n > 0 && l.epochs[n-1].End >= at; n-- {
		l.epochs = l.epochs[:n-1]
	}
	l.epochs = append(l.epochs, EpochEnd{epoch, at})
}

func (l *memLog) append(r memRecord) {
	l.assign(r.epoch, l.LogEndOffset())
	l.records = append(l.records, r)
}

func (l *memLog) truncate(to Offset) {
	to = max(min(to, l.LogEndOffset()), l.start)
	l.records = l.records[:to-l.start]
	for n := len(l.epochs); n > 0 && l.epochs[n-1].End >= to; n-- {
		l.epochs = l.epochs[:n-1]
	}
}

func (l *memLog) restart(at Offset) { *l = memLog{start: at} }

func (l *memLog) end(epoch LeaderEpoch) EpochEnd {
	e, end := l.EndOffsetForEpoch(epoch)
	return EpochEnd{e, end}
}

// model is three brokers with one partition, a coordination service, a controller that
// knows all, and messages that arrive in any order or not at all. A run is a random
// walk over it; after each step the invariants are checked against what was ever
// committed. Crashes keep the log (envelope E0 of the failure catalogue).
type model struct {
	rules   rules.Rules
	rng     *rand.Rand
	weights [9]int // drawn from the seed: some runs do much of one thing, some nothing (swarm)
	now     time.Duration
	brokers []*modelBroker
	deaf    BrokerID // hears the controller seldom in this run; 0: nobody
	state   State
	flight  []modelMessage
	values  int

	committed []memRecord // oracle: what was below any leader's high watermark, or acked
	told      Offset      // highest end offset told to a client
	trace     []string
	broken    string // the first violation
	reached   modelReached
}

// modelReached counts what a run without violation must have met to prove anything.
type modelReached struct {
	elections, shrinks, growths, joinersGone, lateWrites, lostAnswers, truncations, diverging, stale, fenced, elr int
}

type modelBroker struct {
	id       BrokerID
	epoch    BrokerEpoch
	up       bool
	known    bool // registered, and so not fenced
	log      *memLog
	hw       Offset
	leader   *Leader
	follower *Follower
	waiting  int // number of the question that is not answered yet, 0: none
}

// modelMessage is on its way to a broker, or to the coordination service (to 0).
type modelMessage struct {
	to   BrokerID
	what string
	do   func()
	lost func() // what the sender makes of its loss; nil: nothing

	command bool // from the controller
}

const modelRecords = 7 // a run writes no more: few values, many orders

func newModel(r rules.Rules, seed uint64) *model {
	m := &model{rules: r, rng: rand.New(rand.NewPCG(seed, 1))}
	for i, a := range modelActions {
		m.weights[i] = a.weight
		if a.swarm {
			m.weights[i] = a.weight * [...]int{0, 1, 1, 3, 8}[m.rng.IntN(5)]
		}
	}
	m.deaf = BrokerID(m.rng.IntN(4))
	m.state = State{Leader: 1, LeaderEpoch: 0, ISR: []BrokerID{1, 2, 3}}
	for id := BrokerID(1); id <= 3; id++ {
		b := &modelBroker{id: id, log: &memLog{}}
		m.brokers = append(m.brokers, b)
		m.start(b)
	}
	for _, b := range m.brokers {
		m.command(b, m.snapshot())
	}
	return m
}

func (m *model) broker(id BrokerID) *modelBroker { return m.brokers[id-1] }

func (m *model) start(b *modelBroker) {
	b.up, b.known, b.waiting = true, true, 0
	b.epoch++
	b.leader = NewLeader(m.rules, b.id, Settings{MinISR: 2, LagMax: 2 * time.Second})
	b.follower = NewFollower(m.rules, b.log, false)
}

func (m *model) snapshot() State {
	s := m.state
	s.ISR, s.ELR = slices.Clone(s.ISR), slices.Clone(s.ELR)
	return s
}

func (m *model) send(to BrokerID, what string, do, lost func()) {
	m.flight = append(m.flight, modelMessage{to: to, what: what, do: do, lost: lost})
}

// tell sends every broker the state, as LeaderAndIsr does.
func (m *model) tell() {
	s := m.snapshot()
	for _, b := range m.brokers {
		m.send(b.id, fmt.Sprintf("%d hears: leader %d epoch %d isr %v elr %v", b.id, s.Leader, s.LeaderEpoch, s.ISR, s.ELR), func() { m.command(b, s) }, nil)
		m.flight[len(m.flight)-1].command = true
	}
}

// command is a LeaderAndIsr command at a broker.
func (m *model) command(b *modelBroker, s State) {
	known := max(b.leader.LeaderEpoch(), b.follower.LeaderEpoch())
	switch {
	case s.LeaderEpoch > known && s.Leader == b.id:
		b.follower.Stop(s.LeaderEpoch, b.hw)
		b.log.assign(s.LeaderEpoch, b.log.LogEndOffset())
		fx, err := b.leader.Become(BecomeLeader{State: s, Replicas: []BrokerID{1, 2, 3}, LEO: b.log.LogEndOffset(), HW: b.hw, Now: m.now})
		if err != nil {
			panic(err)
		}
		m.act(b, fx)
	case s.LeaderEpoch > known:
		b.leader.Resign()
		b.waiting = 0
		d, err := b.follower.Become(BecomeFollower{Leader: s.Leader, LeaderEpoch: s.LeaderEpoch, HW: b.hw})
		if err != nil {
			panic(err)
		}
		m.carry(b, d, nil)
	case s.LeaderEpoch == known && b.leader.Leading():
		m.act(b, b.leader.StateChanged(s, m.now))
	}
}

// act carries out a leader's effects.
func (m *model) act(b *modelBroker, fx Effects) {
	l := b.leader
	if l.Leading() {
		b.hw = l.HighWatermark()
	}
	if fx.Advanced {
		m.commit(b, max(l.HighWatermark(), l.AckOffset()))
	}
	if p := fx.Propose; p != nil {
		m.propose(b, *p)
	}
	if fx.Reread {
		m.read(b, l)
	}
}

func (m *model) propose(b *modelBroker, p Proposal) {
	p.ISR, p.ELR = slices.Clone(p.ISR), slices.Clone(p.ELR)
	l := b.leader
	m.send(0, fmt.Sprintf("%d writes isr %v elr %v", b.id, p.ISR, p.ELR), func() { m.write(b, l, p) }, func() {
		m.reached.lateWrites++
		m.send(0, fmt.Sprintf("%d's write arrives late", b.id), func() { m.write(b, nil, p) }, nil)
		m.act(b, l.Unknown(p.Seq))
	})
}

// write is a proposal at the coordination service; l is nil when nobody waits for the answer.
func (m *model) write(b *modelBroker, l *Leader, p Proposal) {
	answer := func(what string, do func() Effects) {
		if l != nil {
			m.send(b.id, fmt.Sprintf("%d hears: %s", b.id, what), func() { m.act(b, do()) }, func() {
				m.reached.lostAnswers++
				m.act(b, l.Unknown(p.Seq))
			})
		}
	}
	switch {
	case p.Joiner >= 0 && p.JoinerEpoch >= 0 && m.broker(p.Joiner).epoch != p.JoinerEpoch, p.Joiner >= 0 && !m.broker(p.Joiner).known:
		m.reached.joinersGone++
		answer("joiner gone", func() Effects { return l.JoinerGone(p.Seq) })
	case p.PartitionEpoch >= 0 && p.PartitionEpoch != m.state.PartitionEpoch:
		answer("refused", func() Effects { return l.Refused(p.Seq) })
	default:
		if p.Joiner >= 0 {
			m.reached.growths++
		} else {
			m.reached.shrinks++
		}
		if len(p.ELR) > 0 {
			m.reached.elr++
		}
		m.state = State{Leader: b.id, LeaderEpoch: p.LeaderEpoch, ISR: slices.Clone(p.ISR), ELR: slices.Clone(p.ELR), PartitionEpoch: m.state.PartitionEpoch + 1}
		version := m.state.PartitionEpoch
		answer("accepted", func() Effects { return l.Accepted(p.Seq, version) })
	}
}

func (m *model) read(b *modelBroker, l *Leader) {
	m.send(0, fmt.Sprintf("%d reads the state", b.id), func() {
		s := m.snapshot()
		m.send(b.id, fmt.Sprintf("%d reads isr %v", b.id, s.ISR), func() { m.act(b, l.StateRead(s, m.now)) }, func() { m.read(b, l) })
	}, func() { m.read(b, l) })
}

// carry carries out what a follower wants done.
func (m *model) carry(b *modelBroker, d Do, records []memRecord) {
	f := b.follower
	switch d.Action {
	case DoTruncate:
		if d.Offset < b.log.LogEndOffset() {
			m.reached.truncations++
		}
		b.hw = f.HighWatermark() // what a reader sees before the cut (G1)
		m.checkReads(b)
		b.log.truncate(d.Offset)
		f.Truncated()
	case DoRestart:
		b.log.restart(d.Offset)
		f.Truncated()
	case DoAppend:
		for _, r := range records {
			b.log.append(r)
		}
		f.Appended()
	}
	if d.Stale {
		m.reached.stale++
	}
	b.hw = f.HighWatermark()
}

// ask sends a follower's next question.
func (m *model) ask(b *modelBroker) {
	f := b.follower
	a := f.Next(m.now)
	if a.Kind == AskNothing || b.waiting > 0 {
		return
	}
	m.values++
	id := m.values
	b.waiting = id
	failed := func() {
		if b.waiting == id {
			b.waiting = 0
			f.Failed(m.now)
		}
	}
	reply := func(what string, do func() Do, records []memRecord) {
		m.send(b.id, fmt.Sprintf("%d hears: %s", b.id, what), func() {
			if b.waiting == id {
				b.waiting = 0
			}
			if b.follower == f { // not restarted since
				m.carry(b, do(), records)
			}
		}, failed)
	}
	to, epoch := m.broker(a.Leader), b.epoch
	if a.Kind == AskEpochEnd {
		m.send(to.id, fmt.Sprintf("%d asks %d in epoch %d: end of epoch %d", b.id, to.id, a.LeaderEpoch, a.EndOf), func() {
			r := EpochEndReply{LeaderEpoch: a.LeaderEpoch, EndOf: a.EndOf, Code: to.leader.CheckEpoch(a.LeaderEpoch).Code(), Now: m.now}
			if r.Code == codeNone {
				r.EpochEnd = to.leader.EpochEndAnswer(a.EndOf, to.log)
			}
			reply(fmt.Sprintf("code %d, epoch %d ends at %d", r.Code, r.Epoch, r.End), func() Do { return f.EpochEnd(r) }, nil)
		}, failed)
		return
	}
	m.send(to.id, fmt.Sprintf("%d fetches from %d in epoch %d at %d after epoch %d", b.id, to.id, a.LeaderEpoch, a.Offset, a.LastFetched), func() {
		answer, fx := to.leader.Fetched(Fetch{From: b.id, BrokerEpoch: epoch, LeaderEpoch: a.LeaderEpoch, Offset: a.Offset, LastFetchedEpoch: a.LastFetched, EpochEnd: to.log.end(a.LastFetched), Now: m.now})
		m.act(to, fx)
		r := FetchReply{LeaderEpoch: a.LeaderEpoch, Offset: a.Offset, Code: answer.Verdict.Code(), HW: to.leader.HighWatermark(), Now: m.now}
		var records []memRecord
		switch answer.Verdict {
		case FetchDiverging:
			m.reached.diverging++
			r.IsDiverging, r.Diverging = true, answer.Diverging
		case FetchFenced, FetchUnknown:
			m.reached.fenced++
		case FetchOK:
			records = slices.Clone(to.log.records[a.Offset:min(a.Offset+2, to.log.LogEndOffset())])
			r.HasRecords = len(records) > 0
		}
		reply(fmt.Sprintf("%v, %v, hw %d", answer.Verdict, records, r.HW), func() Do { return f.Fetched(r) }, records)
	}, failed)
}
