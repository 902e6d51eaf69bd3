package ghost

// What a story may ask, to know when its next step has come.

// EndOf is where broker id's log of tp ends; 0 if there is none.
func (s *State) EndOf(tp TP, id int32) int64 { return s.partition(tp).replica(id).end }

// HighWatermarkOf is what broker id takes for it.
func (s *State) HighWatermarkOf(tp TP, id int32) int64 { return s.partition(tp).replica(id).hw }

// Told says that broker id has heard of the present leader epoch of tp.
func (s *State) Told(tp TP, id int32) bool {
	p := s.partition(tp)
	r := p.replica(id)
	return p.stateSeen && r.b.running && r.epoch == p.state.LeaderEpoch
}

// IsRegistered says that the coordination service knows this incarnation of the broker.
func (s *State) IsRegistered(id int32) bool { return s.broker(id).registered }
