// Package workers runs short functions on goroutines that are kept for the next.
//
// A new goroutine begins with a small stack, and one that goes deep (a request to
// another broker, whose answer is decoded and written to a log) grows it step by
// step, each time anew: some 5 % of a replicating broker's time. A kept one has
// grown already.
package workers

import "sync/atomic"

// idleMax bounds the goroutines that are kept without work, and with them their stacks.
const idleMax = 64

var (
	work = make(chan func())
	idle atomic.Int32 // kept, or about to be
)

// Go runs f on a goroutine, as the go statement does: at once, whatever else runs.
func Go(f func()) {
	select {
	case work <- f: // to one that waits
	default:
		go run(f)
	}
}

func run(f func()) {
	for {
		f()
		if idle.Add(1) > idleMax {
			idle.Add(-1)
			return
		}
		f = <-work
		idle.Add(-1)
	}
}
