package ghost

import (
	"fmt"
	"slices"
)

// Picture is what the world sees of the cluster at one moment, beside what the ghost knows itself.
type Picture struct {
	Controller int32 // in the coordination service; -1: none
	// Produces are batches that producers still wait for, in words.
	Produces []string
	// Lags are positions of consumers.
	Lags []Lag
	// ISRChanges are partitions' changes that leaders have proposed and not heard of, in words.
	ISRChanges []string
	// Metadata is what brokers answer about partitions.
	Metadata []Metadata
}

// Lag is how far a consumer is in a partition.
type Lag struct {
	Consumer string
	TP       TP
	Position int64
}

// Metadata is one broker's view of one partition.
type Metadata struct {
	Broker      int32
	TP          TP
	Leader      int32
	LeaderEpoch int32
	ISR         []int32
}

// Pending says in words which liveness invariant is not kept yet, or "" when the cluster has come to rest.
func (s *State) Pending(pic Picture) string {
	for _, l := range []struct {
		name  string
		check func(Picture) string
	}{
		{"L1", s.l1OneController}, {"L3", s.l3BrokersUnfenced}, {"L2", s.l2PartitionsLed}, {"L4", s.l4ISRFull}, {"L10", s.l10NoPendingISRChange},
		{"L6", s.l6ProducesEnd}, {"L7", s.l7AckedReadable}, {"L5", s.l5FullyReplicated}, {"L9", s.l9NoLag}, {"L11", s.l11MetadataEqual}, {"L12", s.l12PreferredLeaders},
	} {
		if what := l.check(pic); what != "" {
			return l.name + ": " + what
		}
	}
	return ""
}

// l1OneController: there is a controller, and it runs.
func (s *State) l1OneController(pic Picture) string {
	if b := s.broker(pic.Controller); b == nil || !b.running {
		return fmt.Sprintf("the controller is broker %d, which does not run", pic.Controller)
	}
	return ""
}

// l2PartitionsLed: every partition has a leader that knows it. That it accepts writes L6 shows.
func (s *State) l2PartitionsLed(Picture) string {
	for _, p := range s.sorted {
		if !p.stateSeen {
			continue
		}
		if p.state.Leader < 0 {
			return fmt.Sprintf("%v has no leader: ISR %v, ELR %v, replicas %v", p.tp, p.state.ISR, p.state.ELR, p.state.Replicas)
		}
		if r := p.replica(p.state.Leader); !r.leads || r.epoch != p.state.LeaderEpoch {
			return fmt.Sprintf("%v: broker %d is leader in epoch %d and acts in epoch %d (as leader: %v)", p.tp, r.b.id, p.state.LeaderEpoch, r.epoch, r.leads)
		}
	}
	return ""
}

// l3BrokersUnfenced: every running broker is registered.
func (s *State) l3BrokersUnfenced(Picture) string {
	for _, b := range s.brokers {
		if !b.running || !b.registered {
			return fmt.Sprintf("broker %d is not registered (running: %v)", b.id, b.running)
		}
	}
	return ""
}

// l4ISRFull: the ISR is all assigned replicas.
func (s *State) l4ISRFull(Picture) string {
	for _, p := range s.sorted {
		if !p.stateSeen {
			continue
		}
		for _, id := range p.state.Replicas {
			if !slices.Contains(p.state.ISR, id) {
				return fmt.Sprintf("%v: broker %d is not in ISR %v", p.tp, id, p.state.ISR)
			}
		}
	}
	return ""
}

// l5FullyReplicated: everything committed is on all assigned replicas, and the ELR is empty.
func (s *State) l5FullyReplicated(Picture) string {
	for _, p := range s.sorted {
		if !p.stateSeen {
			continue
		}
		if len(p.state.ELR) > 0 {
			return fmt.Sprintf("%v: the ELR is %v", p.tp, p.state.ELR)
		}
		for _, id := range p.state.Replicas {
			if r := p.replica(id); !r.here || r.agrees < p.end() {
				return fmt.Sprintf("%v: broker %d has what was committed up to %d of %d", p.tp, id, r.agrees, p.end())
			}
		}
	}
	return ""
}

// l6ProducesEnd: no produce waits for ever.
func (s *State) l6ProducesEnd(pic Picture) string {
	if n := len(pic.Produces); n > 0 {
		return fmt.Sprintf("%d batches wait, the first is %s", n, pic.Produces[0])
	}
	return ""
}

// l7AckedReadable: what was acknowledged lies below the high watermark, and the leader's passes all that it has.
func (s *State) l7AckedReadable(Picture) string {
	for _, p := range s.sorted {
		if p.ackedEnd > p.end() {
			return fmt.Sprintf("%v: everything below %d was acknowledged, committed is up to %d", p.tp, p.ackedEnd, p.end())
		}
		if p.stateSeen && p.state.Leader >= 0 {
			if r := p.replica(p.state.Leader); r.hw < r.end {
				return fmt.Sprintf("%v: the leader's log ends at %d, its high watermark is %d", p.tp, r.end, r.hw)
			}
		}
	}
	return ""
}

// l9NoLag: every consumer has read all that is committed.
func (s *State) l9NoLag(pic Picture) string {
	for _, l := range pic.Lags {
		if end := s.partition(l.TP).end(); l.Position < end {
			return fmt.Sprintf("%s is at offset %d of %v, committed is up to %d", l.Consumer, l.Position, l.TP, end)
		}
	}
	return ""
}

// l10NoPendingISRChange: no proposal of a leader is left unanswered.
func (s *State) l10NoPendingISRChange(pic Picture) string {
	if len(pic.ISRChanges) > 0 {
		return "an ISR change waits: " + pic.ISRChanges[0]
	}
	return ""
}

// l11MetadataEqual: every broker's answers are what the coordination service has.
func (s *State) l11MetadataEqual(pic Picture) string {
	for _, m := range pic.Metadata {
		st := s.partition(m.TP).state
		if m.Leader != st.Leader || m.LeaderEpoch != st.LeaderEpoch || !sameSet(m.ISR, st.ISR) {
			return fmt.Sprintf("broker %d says of %v leader %d, epoch %d, ISR %v; the coordination service has %d, %d, %v", m.Broker, m.TP, m.Leader, m.LeaderEpoch, m.ISR, st.Leader, st.LeaderEpoch, st.ISR)
		}
	}
	return ""
}

func sameSet(a, b []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// l12PreferredLeaders: where balance is promised, the first replica leads.
func (s *State) l12PreferredLeaders(Picture) string {
	for _, p := range s.sorted {
		if s.rules.Balanced && p.stateSeen && len(p.state.Replicas) > 0 && p.state.Leader != p.state.Replicas[0] {
			return fmt.Sprintf("%v is led by broker %d, and broker %d is preferred", p.tp, p.state.Leader, p.state.Replicas[0])
		}
	}
	return ""
}

// Outstanding counts the replicas beside broker id's whose lossy restart is not mended
// yet, in the partition where they are most: the envelope E1 allows min.insync.replicas−1
// of them in all.
func (s *State) Outstanding(id int32) int {
	most := 0
	for _, p := range s.sorted {
		if !slices.Contains(p.state.Replicas, id) && !p.replica(id).here {
			continue
		}
		n := 0
		for _, r := range p.replicas {
			if r.b.id != id && (r.lossy || r.unmended || r.b.lost || r.b.lossy && r.b.running && !r.b.registered || r.here && r.b.lossy && !slices.Contains(p.state.ISR, r.b.id)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// The roles that faults aim at.

// Partitions lists what is known, in order.
func (s *State) Partitions() []TP {
	all := make([]TP, len(s.sorted))
	for i, p := range s.sorted {
		all[i] = p.tp
	}
	return all
}

// Leader is who leads a partition as the coordination service has it; -1: nobody.
func (s *State) Leader(tp TP) int32 { return s.partition(tp).state.Leader }

// InSync lists the ISR without the leader.
func (s *State) InSync(tp TP) []int32 {
	p := s.partition(tp)
	return slices.DeleteFunc(slices.Clone(p.state.ISR), func(id int32) bool { return id == p.state.Leader })
}

// StateOf is a partition's state in the coordination service.
func (s *State) StateOf(tp TP) StateNode { return s.partition(tp).state }

// ISRFull says whether a partition's ISR is all its replicas.
func (s *State) ISRFull(tp TP) bool {
	p := s.partition(tp)
	return p.stateSeen && len(p.state.ISR) == len(p.state.Replicas)
}
