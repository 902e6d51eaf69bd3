package sut

import (
	"slices"
	"sync"
	"time"
)

// startWatch keeps what a start waits for, and tells it once when the start is slow.
type startWatch struct {
	mu    sync.Mutex
	waits Waits
	timer *time.Timer
}

func watchStart(s ClusterSpec) *startWatch {
	w := &startWatch{waits: Waits{ZooKeeper: s.ZooKeeper}}
	for id := range s.Brokers {
		w.waits.Brokers = append(w.waits.Brokers, id+1)
	}
	if s.Slow != nil {
		w.timer = time.AfterFunc(slowAfter, func() { s.Slow(w.now()) })
	}
	return w
}

func (w *startWatch) now() Waits {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Waits{w.waits.ZooKeeper, slices.Clone(w.waits.Brokers)}
}

func (w *startWatch) zookeeperServes(connect string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits.ZooKeeper = connect
}

func (w *startWatch) brokerServes(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits.Brokers = slices.DeleteFunc(w.waits.Brokers, func(other int) bool { return other == id })
}

// end is called when the start has ended, well or not.
func (w *startWatch) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
