package broker

import "sync/atomic"

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
