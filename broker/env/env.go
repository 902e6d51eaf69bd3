// Package env is all that a broker may ask of the world. There are two forms:
// env/real (goroutines, files, the machine's clock) and the simulator's (one
// event queue, one seed). Code that decides sees the interface and cannot tell
// which it has.
package env

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Env is the world of one broker incarnation. Callbacks never run inside the
// call that registered them, and hold no lock of the broker when they start.
type Env interface {
	// Now is time since the broker started. It never goes back: timeouts and timers use it.
	Now() time.Duration
	// Wall is the machine's clock, which may jump: record timestamps and retention alone.
	Wall() time.Time
	// After runs f once, d from now. stop reports whether it kept f from running.
	After(d time.Duration, f func()) (stop func() bool)
	// Rand is for ids and jitter. It may be used from any goroutine.
	Rand() Rand
	// BootID names the machine's present boot: it is another one after a power cut. "": not known.
	BootID() string
	Disk() vfs.FS
	// Sync makes s durable and says how it went: an event, it takes time and may
	// fail. No lock is held while it is pending.
	Sync(s []vfs.Syncer, done func(error))
	// Send asks another broker. done runs once, later: with its response, or with
	// an error, and then it may or may not have been carried out. The response's bytes
	// (a fetch's records) are done's until it returns. Requests to one
	// peer may overtake each other; who needs an order has one in flight.
	Send(to Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error))
	// OpenCoord opens a session with the coordination service that the environment
	// was made for. state hears of it until Expired or Close; after Expired another
	// call opens another session.
	OpenCoord(timeout time.Duration, state func(coord.SessionState)) coord.Client
	// Report tells the operator something worth a line: an offline log
	// directory, a truncated tail. The simulator adds it to the trace.
	Report(level Level, text string)
}

// Peer is where another broker listens.
type Peer struct {
	ID   int32
	Host string
	Port int32
}

// Rand is the part of math/rand/v2 that a broker needs.
type Rand interface {
	Uint64() uint64
	Int64N(n int64) int64
}

var _ Rand = (*rand.Rand)(nil)

// Level is how much an operator should care.
type Level int

const (
	Info Level = iota
	Warn
	Error
)
