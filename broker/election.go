package broker

import (
	"errors"
	"sync"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// election is this broker's part in the election of a controller: whoever creates
// /controller first is it, for as long as its session lives.
//
// The controller epoch rises in the same transaction. Every write of a controller
// checks that node's version, so one that was replaced and does not know it yet
// changes nothing (C4).
type election struct {
	m *member

	mu     sync.Mutex
	driver *driver // while this broker is the controller
}

// current gives the driver while this broker is the controller, else nil.
func (e *election) current() *driver {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.driver
}

// campaign looks who is the controller, stands where there is none, and looks again when that ends.
//
// Answers come in any order: (1) the answer that another broker is the controller is late. (2) That one
// dies, and this broker looks again, stands, and is elected. (3) The late answer comes. To believe it would end a
// term while the office is held, and no watch would tell. So only the newest look counts.
func (e *election) campaign(s *session) {
	look := s.looks.Add(1)
	again := func() { e.campaign(s) }
	changed := func(coord.Event) {
		if !s.over.Load() {
			e.campaign(s)
		}
	}
	s.client.Get(coord.ControllerPath, changed, func(_ []byte, st coord.Stat, err error) {
		switch {
		case look != s.looks.Load():
		case errors.Is(err, coord.ErrNoNode):
			e.drop(s, "somebody removed "+coord.ControllerPath)
			e.stand(s)
		case err != nil:
			s.failed(err, again)
		case st.EphemeralOwner == s.client.Session():
			e.confirm(s)
		default:
			e.drop(s, "another broker is the controller")
		}
	})
}

// stand tries to become the controller.
func (e *election) stand(s *session) {
	s.client.Get(coord.ControllerEpochPath, nil, func(data []byte, st coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode):
			s.client.Create(coord.ControllerEpochPath, coord.EncodeControllerEpoch(0), coord.Persistent, func(_ string, _ coord.Stat, err error) {
				if err == nil || errors.Is(err, coord.ErrNodeExists) {
					e.stand(s)
				} else {
					s.failed(err, func() { e.campaign(s) })
				}
			})
		case err != nil:
			s.failed(err, func() { e.campaign(s) })
		default:
			epoch, err := coord.DecodeControllerEpoch(data)
			if err != nil {
				s.m.b.report(env.Error, "%s: %v: this broker does not stand for controller", coord.ControllerEpochPath, err)
				s.again(coordRetry, func() { e.campaign(s) })
				return
			}
			e.claim(s, epoch+1, st.Version)
		}
	})
}

// claim takes the office and raises its epoch, or neither.
func (e *election) claim(s *session, epoch, version int32) {
	me := coord.Controller{Broker: s.m.b.static.BrokerID, Timestamp: s.m.b.env.Wall().UnixMilli()}
	ops := []coord.Op{
		coord.SetOp(coord.ControllerEpochPath, coord.EncodeControllerEpoch(epoch), version),
		coord.CreateOp(coord.ControllerPath, me.Encode(), coord.Ephemeral),
	}
	s.client.Multi(ops, func(_ []coord.Result, err error) {
		if err != nil && s.failed(err, func() { e.campaign(s) }) {
			return
		}
		// Elected or not: the next look tells, and sets the watch. Somebody may have been faster.
		e.campaign(s)
	})
}

// confirm begins the term of this session, unless it has begun. While this session
// holds /controller nobody else can have raised the epoch since.
func (e *election) confirm(s *session) {
	if d := e.current(); d != nil && d.s == s {
		return
	}
	s.client.Get(coord.ControllerEpochPath, nil, func(data []byte, st coord.Stat, err error) {
		if err != nil {
			s.failed(err, func() { e.campaign(s) })
			return
		}
		epoch, err := coord.DecodeControllerEpoch(data)
		if err != nil {
			s.m.b.report(env.Error, "%s: %v", coord.ControllerEpochPath, err)
			return
		}
		e.elected(s, epoch, st.Version)
	})
}

func (e *election) elected(s *session, epoch, version int32) {
	b := s.m.b
	d := &driver{b: b, s: s, epoch: epoch, version: version, topics: map[string]bool{}, damaged: map[controller.TopicPartition]bool{}, answers: map[uint64]func(controller.Answer){}}
	cfg := b.cfg.Load()
	d.c = controller.New(controller.Config{
		Rules: b.rules, ReplaceAfter: cfg.ReplaceAfter, PreferredCheck: cfg.preferredCheck(), ImbalancePercent: cfg.ImbalancePercent,
		LogsWait: logsWait,
	})
	e.mu.Lock()
	if s.over.Load() || e.driver != nil && e.driver.s == s {
		e.mu.Unlock()
		return
	}
	e.driver = d
	e.mu.Unlock()
	b.report(env.Info, "broker %d is the controller, epoch %d", b.static.BrokerID, epoch)
	if b.observer != nil {
		b.observer.ControllerElected(epoch)
	}
	d.load()
}

// drop ends a term of s that is over.
func (e *election) drop(s *session, why string) {
	e.mu.Lock()
	d := e.driver
	if d == nil || d.s != s {
		e.mu.Unlock()
		return
	}
	e.driver = nil
	e.mu.Unlock()
	d.end(why)
}

// lost ends the term of a session that is over.
func (e *election) lost(s *session) { e.drop(s, "the session is over") }
