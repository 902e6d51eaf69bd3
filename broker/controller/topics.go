package controller

import "slices"

// topicsRead takes topics that are new or changed.
func (c *Controller) topicsRead(in TopicsRead) {
	for i := range in.Topics {
		n := &in.Topics[i]
		t := c.topics[n.Name]
		switch {
		case t == nil:
			t = &topic{name: n.Name, id: n.ID, version: -1, batchMax: c.cfg.PartitionsPerTopicWrite}
			c.topics[n.Name] = t
		case t.id != n.ID || n.Version < t.version || t.deleting && t.version == -1:
			continue // read before a change that is known already
		}
		if t.minISR != n.MinISR || t.unclean != n.Unclean {
			t.minISR, t.unclean = n.MinISR, n.Unclean
			for _, p := range t.parts {
				c.decideLater(p)
			}
		}
		if n.Version > t.version {
			t.version = n.Version
			c.assignments(t, n.Partitions)
		}
		if len(t.reread) > 0 { // a ReadTopics is answered
			c.read(t.reread)
			t.reread, t.busy = nil, false
		}
		c.topicLater(t)
	}
	for _, name := range in.Missing {
		c.topicMissing(name)
	}
}

// topicMissing: a topic that was read just before it was deleted is forgotten. One that has states is not:
// its node does not go before they do.
func (c *Controller) topicMissing(name string) {
	t := c.topics[name]
	if t != nil && len(t.reread) > 0 {
		c.retryLater(func() { c.emit(ReadTopics{[]string{name}}) })
	}
	if t == nil || t.deleting || slices.ContainsFunc(t.parts, func(p *partition) bool { return p.known || p.doing == writing }) {
		return
	}
	c.dropTopic(t)
}

func (c *Controller) assignments(t *topic, assignments []Assignment) {
	for number, a := range assignments {
		if number == len(t.parts) {
			p := &partition{topic: t, number: int32(number)}
			t.parts = append(t.parts, p)
			c.assign(p, a)
			c.decideLater(p)
			if t.deleting {
				c.deletePartition(p)
			}
			continue
		}
		p := t.parts[number]
		if slices.Equal(p.replicas, a.Replicas) && slices.Equal(p.adding, a.Adding) && slices.Equal(p.removing, a.Removing) {
			continue
		}
		// A controller wrote it, with the state: we ourselves, without hearing of the outcome.
		c.assign(p, a)
		if p.known && p.doing != reReading {
			c.tellReplicas(p)
		}
		c.decideLater(p)
	}
}

// assign makes a the assignment of p. Who is a replica no longer is told to delete it.
func (c *Controller) assign(p *partition, a Assignment) {
	gone, added := without(p.replicas, a.Replicas), without(a.Replicas, p.replicas)
	p.replicas, p.adding, p.removing = a.Replicas, a.Adding, a.Removing
	p.offline = without(p.offline, gone)
	c.index(p)
	if p.topic.deleting { // those that are gone were told already
		c.mustDelete(p, added)
	} else {
		for _, id := range p.replicas {
			c.broker(id).cancelStop(p.name())
		}
		for _, id := range gone {
			c.stop(c.broker(id), p, true)
		}
	}
	if p.auto && len(p.adding) == 0 && len(p.removing) == 0 && p.target == nil {
		p.auto = false
		c.replacing--
	}
	c.changed(p)
}

func (c *Controller) topicLater(t *topic) {
	if !t.queued {
		t.queued = true
		c.topicTodo = append(c.topicTodo, t)
	}
}

func (c *Controller) wantTopic(p *partition) {
	if p.wanted {
		return
	}
	p.wanted = true
	p.topic.wants = append(p.topic.wants, p)
	c.topicLater(p.topic)
}

func (c *Controller) wantCreate(p *partition) {
	if p.wanted {
		return
	}
	p.wanted = true
	p.topic.creates = append(p.topic.creates, p)
	c.topicLater(p.topic)
}

// pumpTopics gives out what is done a topic at a time.
func (c *Controller) pumpTopics() {
	later := c.topicTodo[:0:0]
	for _, t := range c.topicTodo {
		t.queued = false
		if t.gone {
			continue
		}
		c.createStates(t)
		c.writeTopic(t)
		if len(t.creates) > 0 || len(t.wants) > 0 && !t.busy {
			t.queued = true
			later = append(later, t)
		}
	}
	c.topicTodo = later
}

// createStates emits the first states of new partitions, as many as there is room for.
func (c *Controller) createStates(t *topic) {
	for len(t.creates) > 0 && c.writesInFlight < c.cfg.WritesInFlightMax {
		n := min(len(t.creates), c.cfg.CreatesPerWriteMax)
		var writes []StateWrite
		for _, p := range t.creates[:n] {
			p.wanted = false
			s, ok := c.firstState(p)
			if !ok || p.known || p.doing != idle || t.deleting {
				c.decideLater(p)
				continue
			}
			p.doing, p.proposal = creating, s
			writes = append(writes, StateWrite{Partition: p.name(), Version: -1, State: s})
		}
		t.creates = t.creates[n:]
		if len(writes) > 0 {
			c.writesInFlight++
			c.emit(CreateStates{c.checkVersion(), t.name, writes})
		}
	}
}

// firstState is what a new partition begins with: its ISR has live replicas only (C15),
// since the high watermark would wait for the others. With none it waits.
func (c *Controller) firstState(p *partition) (s State, ok bool) {
	if p.lost {
		s, _ = c.decide(p)
		s.ControllerEpoch = c.epoch
		return s, true
	}
	s = State{ControllerEpoch: c.epoch, Leader: NoLeader, LastLeader: NoLeader}
	for _, id := range p.replicas {
		live := c.staying(p, id)
		if live && s.Leader == NoLeader {
			s.Leader = id
		}
		if live || !c.cfg.Rules.CreateChecksFenced {
			s.ISR = append(s.ISR, id)
		}
	}
	if s.Leader == NoLeader && !c.cfg.Rules.CreateChecksFenced {
		s.Leader = p.preferredLeader()
	}
	return s, s.Leader != NoLeader
}

func (c *Controller) statesCreated(in StatesCreated) {
	t := c.topics[in.Topic]
	if t == nil {
		return
	}
	c.writesInFlight--
	var again []*partition
	for _, number := range in.Partitions {
		p := c.find(TopicPartition{in.Topic, number})
		if p == nil || p.doing != creating {
			continue
		}
		p.doing = idle
		switch in.Outcome {
		case Accepted:
			c.created(p)
		case Fenced:
			c.fenced()
			return
		default:
			again = append(again, p)
		}
	}
	if len(again) > 0 {
		c.emit(ReadTopics{[]string{t.name}})
		c.read(again)
	}
}

// created: without rule C15 nobody looks at the ISR until something changes, as before that fix.
func (c *Controller) created(p *partition) {
	c.adopt(p, p.proposal, 0)
	p.proposal, p.lost = State{}, false
	c.tellReplicas(p)
	if c.cfg.Rules.CreateChecksFenced || p.again {
		c.decideLater(p)
	}
	c.rest(p)
	c.maybeDelete(p.topic)
}
