package controller

import "slices"

// deleteTopics begins deletions. Every replica must confirm, also those whose brokers are
// away now: the topic's nodes stay until they came back and were told, so that no old
// replica meets a new topic of its name.
func (c *Controller) deleteTopics(names []string) {
	for _, name := range names {
		t := c.topics[name]
		if t == nil {
			// Only the mark is there, or a topic so new that no broker has heard of it.
			c.topics[name] = &topic{name: name, version: -1, deleting: true, deleteSent: true}
			c.emit(DeleteTopic{c.checkVersion(), name})
			continue
		}
		if t.deleting {
			continue
		}
		t.deleting = true
		for _, p := range t.parts {
			c.deletePartition(p)
		}
		c.maybeDelete(t)
	}
}

func (c *Controller) deletePartition(p *partition) {
	c.changed(p)
	c.decideLater(p) // for those who wait for it
	if !p.known && p.doing != creating {
		return // no broker has heard of it
	}
	c.mustDelete(p, p.replicas)
}

func (c *Controller) mustDelete(p *partition, brokers []int32) {
	for _, id := range brokers {
		if !slices.Contains(p.undeleted, id) {
			p.undeleted = append(p.undeleted, id)
			p.topic.toDelete++
			c.stop(c.broker(id), p, true)
		}
	}
}

func (c *Controller) confirmDeleted(p *partition, id int32) {
	if i := slices.Index(p.undeleted, id); i >= 0 {
		p.undeleted = slices.Delete(p.undeleted, i, i+1)
		p.topic.toDelete--
		c.maybeDelete(p.topic)
	}
}

// maybeDelete removes the topic's nodes once no replica is left and no write of it is in flight.
func (c *Controller) maybeDelete(t *topic) {
	if !t.deleting || t.gone || t.deleteSent || t.toDelete > 0 || len(t.written) > 0 {
		return
	}
	for _, p := range t.parts {
		if p.doing != idle {
			return
		}
	}
	t.deleteSent = true
	c.emit(DeleteTopic{c.checkVersion(), t.name})
}

func (c *Controller) topicDeleted(in TopicDeleted) {
	t := c.topics[in.Topic]
	switch {
	case in.Outcome == Fenced:
		c.fenced()
	case t == nil || !t.deleteSent:
	case in.Outcome != Accepted:
		c.retryLater(func() {
			t.deleteSent = false
			for _, p := range t.parts { // nothing was decided meanwhile, and perhaps nothing deleted
				c.decideLater(p)
			}
			c.maybeDelete(t)
		})
	default:
		c.dropTopic(t)
	}
}

func (c *Controller) dropTopic(t *topic) {
	t.gone = true
	delete(c.topics, t.name)
	for _, p := range t.parts {
		c.changes.remove(p)
		p.replicas, p.state.ISR = nil, nil
		c.index(p)
		if p.auto {
			p.auto = false
			c.replacing--
		}
		p.wanted = false
		c.rest(p)
	}
}
