package broker

import (
	"sync"
	"sync/atomic"
)

// serial runs tasks one at a time, first come first served. A task ends when it
// calls release, which may be at a later event. The queue is bounded by the
// requests in flight.
type serial struct {
	mu    sync.Mutex
	busy  bool
	queue []func(release func())
}

// run lets task take its turn, perhaps at once.
func (s *serial) run(task func(release func())) {
	s.mu.Lock()
	s.queue = append(s.queue, task)
	busy := s.busy
	s.busy = true
	s.mu.Unlock()
	if !busy {
		s.loop()
	}
}

// loop runs tasks until one ends later than its call. Of the two ends of a task,
// its call's return and its release, the second goes on with the next, so that
// tasks that end at once do not nest.
func (s *serial) loop() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.busy = false
			s.queue = nil
			s.mu.Unlock()
			return
		}
		task := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		var ends atomic.Int32
		task(func() {
			if ends.Add(1) == 2 {
				s.loop()
			}
		})
		if ends.Add(1) != 2 {
			return
		}
	}
}
