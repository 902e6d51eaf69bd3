package controller

import (
	"slices"
	"time"
)

// commands is what a broker is to be told. Partitions wait here by reference, and a
// command is made when it can be sent: so a newer state replaces an older one, and the queue has
// at most each partition once.
type commands struct {
	full      bool         // a full LeaderAndISR is due; lai is empty
	lai       []*partition // LeaderAndISR; see partition.laiFor
	metaTo    uint64       // it confirmed the metadata up to this number of the change list
	liveTo    uint64       // and this list of live brokers
	stops     map[TopicPartition]stop
	stopOrder []TopicPartition // may have names that are not in stops any more

	seq          uint64 // of the last Send
	sending      Command
	sent         []*partition // of the LeaderAndISR in flight
	sentMeta     uint64
	sentLive     uint64
	sentStops    []stop
	blockedUntil time.Duration // after a failure
}

type stop struct {
	p           *partition
	leaderEpoch int32
	delete      bool
}

// reset forgets what an incarnation was told. Deletions stay: the replicas are still on its disk.
func (b *broker) reset(full bool) {
	b.forget()
	for _, s := range b.sentStops {
		b.addStop(s)
	}
	for _, tp := range b.stopOrder {
		if s, ok := b.stops[tp]; ok && !s.delete {
			delete(b.stops, tp)
		}
	}
	b.full = full
	b.sending, b.sent, b.sentStops = nil, nil, nil
	b.metaTo, b.liveTo, b.blockedUntil = 0, 0, 0
}

func (b *broker) addStop(s stop) {
	tp := s.p.name()
	if old, ok := b.stops[tp]; ok {
		if s.delete || old.p != s.p {
			b.stops[tp] = s
		}
		return
	}
	if b.stops == nil {
		b.stops = map[TopicPartition]stop{}
	}
	if len(b.stopOrder) > 2*len(b.stops)+16 { // mostly cancelled ones, and some twice
		seen := make(map[TopicPartition]bool, len(b.stops))
		b.stopOrder = slices.DeleteFunc(b.stopOrder, func(tp TopicPartition) bool {
			_, ok := b.stops[tp]
			drop := !ok || seen[tp]
			seen[tp] = true
			return drop
		})
	}
	b.stops[tp] = s
	b.stopOrder = append(b.stopOrder, tp)
}

// cancelStop: the broker is a replica again.
func (b *broker) cancelStop(tp TopicPartition) {
	delete(b.stops, tp)
	b.sentStops = slices.DeleteFunc(b.sentStops, func(s stop) bool { return s.p.name() == tp })
}

func (c *Controller) stop(b *broker, p *partition, del bool) {
	if b.live || del {
		b.addStop(stop{p, p.state.LeaderEpoch, del})
	}
}

// forget empties the LeaderAndISR queue.
func (b *broker) forget() {
	for _, p := range b.lai {
		p.laiFor = without(p.laiFor, []int32{b.id})
	}
	b.lai = nil
}

func (b *broker) addLAI(p *partition) {
	if !b.full && !slices.Contains(p.laiFor, b.id) {
		p.laiFor = append(p.laiFor, b.id)
		b.lai = append(b.lai, p)
	}
}

// tellReplicas queues p's state for its replicas. Who is about to stop and does not lead any
// more stops fetching now, so that its leader does not take it back into the ISR (C2).
func (c *Controller) tellReplicas(p *partition) {
	for _, id := range p.replicas {
		switch b := c.lookup(p, id); {
		case !b.live:
		case b.shuttingDown && p.state.Leader != id:
			c.stop(b, p, false)
		default:
			b.addLAI(p)
		}
	}
}

// pumpCommands sends the next command to b if none is in flight: first what its
// replicas must do, then what clients may know, then what it must stop.
func (c *Controller) pumpCommands(b *broker) {
	if !b.live || b.sending != nil || c.now < b.blockedUntil {
		return
	}
	var command Command
	if b.full {
		command = c.fullLAI(b)
	} else if len(b.lai) > 0 {
		command = c.partialLAI(b)
	}
	if command == nil {
		command = c.updateMetadata(b)
	}
	if command == nil && len(b.stops) > 0 {
		command = c.stopReplica(b)
	}
	if command == nil {
		return
	}
	c.commandSeq++
	b.seq = c.commandSeq
	b.sending = command
	epoch := b.reg.Epoch
	if !c.cfg.Rules.CommandBrokerEpoch {
		epoch = -1
	}
	c.emit(Send{b.reg, b.seq, c.epoch, epoch, command})
}

func (c *Controller) fullLAI(b *broker) Command {
	b.forget()
	b.full = false
	l := &LeaderAndISR{Full: true}
	for _, p := range b.partitions {
		c.addToLAI(b, l, p)
	}
	c.liveLeaders(l)
	return l
}

// partialLAI is nil when nothing that waited is of concern any more.
func (c *Controller) partialLAI(b *broker) Command {
	l := &LeaderAndISR{}
	n := 0
	for ; n < len(b.lai) && len(l.Partitions) < c.cfg.PartitionsPerCommandMax; n++ {
		p := b.lai[n]
		b.lai[n] = nil
		i := slices.Index(p.laiFor, b.id)
		p.laiFor[i] = p.laiFor[len(p.laiFor)-1]
		p.laiFor = p.laiFor[:len(p.laiFor)-1]
		if c.addToLAI(b, l, p) {
			b.sent = append(b.sent, p)
		}
	}
	if b.lai = b.lai[n:]; len(b.lai) == 0 {
		b.lai = nil
	}
	if len(l.Partitions) == 0 {
		return nil
	}
	c.liveLeaders(l)
	return l
}

func (c *Controller) addToLAI(b *broker, l *LeaderAndISR, p *partition) bool {
	if !p.known || p.topic.deleting || !slices.Contains(p.replicas, b.id) {
		return false
	}
	info := c.info(p)
	info.ELR, info.LastKnownELR, info.Adding, info.Removing = p.state.ELR, p.state.LastKnownELR, p.adding, p.removing
	l.Partitions = append(l.Partitions, info)
	return true
}

func (c *Controller) liveLeaders(l *LeaderAndISR) {
	var ids []int32
	for i := range l.Partitions {
		if id := l.Partitions[i].Leader; len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
		if len(ids) > 2*len(c.brokerIDs) {
			slices.Sort(ids)
			ids = slices.Compact(ids)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if b := c.brokers[id]; b != nil && b.live {
			l.LiveLeaders = append(l.LiveLeaders, b.reg)
		}
	}
}

func (c *Controller) info(p *partition) PartitionInfo {
	return PartitionInfo{
		Partition: p.name(), TopicID: p.topic.id, Leader: p.state.Leader, LeaderEpoch: p.state.LeaderEpoch, ISR: p.state.ISR,
		PartitionEpoch: p.version, Replicas: p.replicas, ControllerEpoch: p.state.ControllerEpoch,
	}
}

// updateMetadata is nil when b knows everything.
func (c *Controller) updateMetadata(b *broker) Command {
	if b.metaTo >= c.changes.seq && b.liveTo >= c.liveSeq {
		return nil
	}
	u := &UpdateMetadata{}
	b.sentMeta, b.sentLive = c.changes.seq, c.liveSeq
	for p := c.changes.after(b.metaTo); p != nil; p = p.next {
		if len(u.Partitions) == c.cfg.PartitionsPerCommandMax {
			b.sentMeta = p.prev.seq
			break
		}
		if !p.known && !p.topic.deleting {
			continue
		}
		info := c.info(p)
		if p.topic.deleting {
			info.Leader = LeaderDuringDelete
		}
		for _, id := range p.replicas {
			if !c.usable(p, id) {
				info.Offline = append(info.Offline, id)
			}
		}
		u.Partitions = append(u.Partitions, info)
	}
	if len(u.Partitions) == 0 && b.liveTo >= c.liveSeq {
		b.metaTo = b.sentMeta
		return nil
	}
	for _, id := range c.brokerIDs {
		if l := c.brokers[id]; l.live {
			u.Brokers = append(u.Brokers, l.reg)
		}
	}
	return u
}

func (c *Controller) stopReplica(b *broker) Command {
	s := &StopReplica{}
	n := 0
	for ; n < len(b.stopOrder) && len(s.Partitions) < c.cfg.PartitionsPerCommandMax; n++ {
		st, ok := b.stops[b.stopOrder[n]]
		if !ok {
			continue
		}
		delete(b.stops, b.stopOrder[n])
		p := st.p
		s.Partitions = append(s.Partitions, StopPartition{p.name(), p.topic.id, max(st.leaderEpoch, p.state.LeaderEpoch), st.delete})
		b.sentStops = append(b.sentStops, st)
	}
	b.stopOrder = b.stopOrder[n:]
	if len(s.Partitions) == 0 {
		return nil
	}
	return s
}

// commandDone ends what is in flight. What failed goes back to the front of its
// queue, to be sent again, or what replaced it (C18).
func (c *Controller) commandDone(in CommandDone) {
	b := c.brokers[in.Broker]
	if b == nil || b.sending == nil || in.Seq != b.seq {
		return // of an earlier incarnation
	}
	command, sent, stops := b.sending, b.sent, b.sentStops
	b.sending, b.sent, b.sentStops = nil, nil, nil
	if !in.Failed && in.Code == codeStaleControllerEpoch {
		c.resign("a broker knows of a newer controller")
		return
	}
	if in.Failed || in.Code != codeNone {
		b.blockedUntil = c.now + c.cfg.RetryBackoff
		switch command := command.(type) {
		case *LeaderAndISR:
			if command.Full {
				b.forget()
				b.full = true
			}
			c.sendAgain(b, sent)
		case *StopReplica:
			for _, s := range stops {
				b.addStop(s)
			}
		}
		if in.Code == codeStaleBrokerEpoch {
			c.emit(ReadBrokers{})
		}
		return
	}
	switch command.(type) {
	case *LeaderAndISR:
		c.laiErrors(b, in.Errors)
		c.logsTold(b, in.Logs)
	case *UpdateMetadata:
		b.metaTo, b.liveTo = b.sentMeta, b.sentLive
	case *StopReplica:
		c.stopped(b, stops, in.Errors)
	}
}

func (c *Controller) sendAgain(b *broker, ps []*partition) {
	waiting := b.lai
	b.lai = nil
	for _, p := range ps {
		if !p.topic.gone {
			b.addLAI(p)
		}
	}
	b.lai = append(b.lai, waiting...)
}

func (c *Controller) laiErrors(b *broker, errors []PartitionError) {
	for _, e := range errors {
		p := c.find(e.Partition)
		switch {
		case p == nil:
		case e.Code == codeKafkaStorageError:
			c.replicaOffline(p, b.id)
		case e.Code == codeStaleControllerEpoch || e.Code == codeFencedLeaderEpoch: // it knows something newer already
		default:
			b.blockedUntil = c.now + c.cfg.RetryBackoff
			b.addLAI(p)
		}
	}
}

// stopped: what was to be deleted and was not, is asked for again.
func (c *Controller) stopped(b *broker, stops []stop, errors []PartitionError) {
	failed := make(map[TopicPartition]int16, len(errors))
	for _, e := range errors {
		failed[e.Partition] = e.Code
	}
	for _, s := range stops {
		code := failed[s.p.name()]
		if code != codeNone && s.delete && code != codeUnknownTopicOrPartition && !(code == codeFencedLeaderEpoch && !s.p.topic.deleting) {
			b.blockedUntil = c.now + c.cfg.RetryBackoff
			b.addStop(s)
			continue
		}
		if s.delete && s.p.topic.deleting {
			c.confirmDeleted(s.p, b.id)
		}
	}
}
