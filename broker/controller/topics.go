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
		case t.id != n.ID || n.Version < t.version:
			continue // read before a change that is known already
		}
		t.busy = t.busy && len(t.written) > 0 // a ReadTopics is answered
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
		c.topicLater(t)
	}
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
		// Written by a controller: ourselves with an unknown outcome. The states were written with it.
		c.assign(p, a)
		if p.doing == idle && p.known {
			c.read([]*partition{p})
		}
		c.decideLater(p)
	}
}

// assign makes a the assignment of p. Who is a replica no longer is told to delete it.
func (c *Controller) assign(p *partition, a Assignment) {
	gone := without(p.replicas, a.Replicas)
	p.replicas, p.adding, p.removing = a.Replicas, a.Adding, a.Removing
	p.offline = without(p.offline, gone)
	for _, id := range p.replicas {
		c.broker(id).cancelStop(p.name())
	}
	c.index(p)
	for _, id := range gone {
		c.stop(c.broker(id), p, true)
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
		if (len(t.creates) > 0 || len(t.wants) > 0 && !t.busy) && !t.deleting {
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
			writes = append(writes, StateWrite{p.name(), -1, s})
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
	s = State{ControllerEpoch: c.epoch, Leader: NoLeader, LastLeader: NoLeader, LeaderEpoch: p.state.LeaderEpoch}
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
	c.read(again)
}

// created: without rule C15 nobody looks at the ISR until something changes, as before that fix.
func (c *Controller) created(p *partition) {
	c.adopt(p, p.proposal, 0)
	p.proposal = State{}
	c.tellReplicas(p)
	if c.cfg.Rules.CreateChecksFenced || p.again {
		c.decideLater(p)
	}
	c.rest(p)
	c.maybeDelete(p.topic)
}
