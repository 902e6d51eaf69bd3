package broker

import (
	"sync"
	"sync/atomic"
)

// countdown calls then once, after n events and one more: the last is for whoever
// starts them, so that it does not end while they are being started.
type countdown struct {
	left atomic.Int64
	then func()
}

func newCountdown(n int, then func()) *countdown {
	c := &countdown{then: then}
	c.left.Store(int64(n) + 1)
	return c
}

func (c *countdown) done() {
	if c.left.Add(-1) == 0 {
		c.then()
	}
}

// firstError keeps the first of the errors of events that run side by side.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
