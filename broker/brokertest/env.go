// Package brokertest is a deterministic world for tests of a broker: virtual
// time, one event queue, and syncs that a test may hold back, let finish or fail.
//
// It is a small cousin of the simulator (package sim): it draws nothing at
// random and breaks nothing by itself.
package brokertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Start is the wall time at which an Env begins.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Env is an env.Env for one goroutine. Callbacks run inside Run, Advance and
// FinishSync, never inside the call that registered them.
type Env struct {
	// HoldSyncs lets every Sync wait until FinishSync.
	HoldSyncs bool
	// Boot is the machine's boot id; "": it has none.
	Boot string
	// Reports are the lines reported, oldest first.
	Reports []string

	*Loop
	skew    time.Duration // of the wall clock
	disk    vfs.FS
	random  *rand.Rand
	pending []pendingSync

	// SendTo and Coord are the rest of a cluster; nil where a test has none.
	SendTo func(to env.Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error))
	Coord  func(timeout time.Duration, state func(coord.SessionState)) coord.Client
}

// Loop is virtual time and what is to happen in it. Several Envs may share one.
type Loop struct {
	now    time.Duration
	events []*event // by time, then by order of coming
}

type event struct {
	at time.Duration
	f  func()
}

type pendingSync struct {
	steps []vfs.Syncer
	done  func(error)
}

var _ env.Env = (*Env)(nil)

// New makes a world over disk; nil: a simulated disk of its own. Worlds of one
// disk want different seeds: ids are drawn by them.
func New(disk vfs.FS, seed uint64) *Env {
	return NewIn(new(Loop), disk, seed)
}

// NewIn is New in the time of other Envs.
func NewIn(l *Loop, disk vfs.FS, seed uint64) *Env {
	e := &Env{Loop: l, disk: disk, random: rand.New(rand.NewPCG(seed, 2))}
	if disk == nil {
		e.disk = vfs.NewSim(e.Wall)
	}
	return e
}

// Now is virtual time; only Advance moves it.
func (e *Loop) Now() time.Duration { return e.now }

// Wall is Start and virtual time, and what JumpWall added.
func (e *Env) Wall() time.Time { return Start.Add(e.now + e.skew) }

// JumpWall moves the wall clock alone.
func (e *Env) JumpWall(d time.Duration) { e.skew += d }

// Rand is the same sequence in every run with one seed.
func (e *Env) Rand() env.Rand { return e.random }

// BootID is Boot.
func (e *Env) BootID() string { return e.Boot }

// Disk is the file system given to New.
func (e *Env) Disk() vfs.FS { return e.disk }

// After queues f.
func (e *Loop) After(d time.Duration, f func()) (stop func() bool) {
	ev := &event{e.now + max(d, 0), f}
	i, _ := slices.BinarySearchFunc(e.events, ev.at, func(x *event, at time.Duration) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	e.events = slices.Insert(e.events, i, ev)
	return func() bool {
		i := slices.Index(e.events, ev)
		if i >= 0 {
			e.events = slices.Delete(e.events, i, i+1)
		}
		return i >= 0
	}
}

// Sync runs the steps at the next event, or when FinishSync says.
func (e *Env) Sync(steps []vfs.Syncer, done func(error)) {
	s := pendingSync{slices.Clone(steps), done}
	if e.HoldSyncs {
		e.pending = append(e.pending, s)
		return
	}
	e.After(0, s.run)
}

func (s pendingSync) run() {
	for _, step := range s.steps {
		if err := step.Sync(); err != nil {
			s.done(err)
			return
		}
	}
	s.done(nil)
}

// SyncsPending is how many held syncs wait.
func (e *Env) SyncsPending() int { return len(e.pending) }

// FinishSync ends the oldest held sync: err nil makes its files durable, another is
// its failure. It runs what follows, too.
func (e *Env) FinishSync(err error) { e.FinishSyncAt(0, err) }

// FinishSyncAt is FinishSync for the i-th oldest: syncs of different files end in any order.
func (e *Env) FinishSyncAt(i int, err error) {
	s := e.pending[i]
	e.pending = slices.Delete(e.pending, i, i+1)
	if err != nil {
		s.done(err)
	} else {
		s.run()
	}
	e.Run()
}

// Send goes to SendTo.
func (e *Env) Send(to env.Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	if e.SendTo == nil {
		panic("brokertest: Send, where there is no other broker")
	}
	e.SendTo(to, req, timeout, done)
}

// OpenCoord goes to Coord.
func (e *Env) OpenCoord(timeout time.Duration, state func(coord.SessionState)) coord.Client {
	if e.Coord == nil {
		panic("brokertest: OpenCoord, where there is no coordination service")
	}
	return e.Coord(timeout, state)
}

// Report keeps the line.
func (e *Env) Report(level env.Level, text string) {
	e.Reports = append(e.Reports, fmt.Sprintf("%s: %s", [...]string{"info", "warn", "error"}[level], text))
}

// TakeReports gives the lines since the last call.
func (e *Env) TakeReports() []string {
	r := e.Reports
	e.Reports = nil
	return r
}

// Run runs what is due now, and what that makes due.
func (e *Loop) Run() { e.Advance(0) }

// eventsMax stops a test whose events beget events for ever.
const eventsMax = 1_000_000

// Advance moves time forward by d, running each event at its time.
func (e *Loop) Advance(d time.Duration) {
	end := e.now + d
	for n := 0; len(e.events) > 0 && e.events[0].at <= end; n++ {
		if n == eventsMax {
			panic("brokertest: events without end")
		}
		ev := e.events[0]
		e.events = slices.Delete(e.events, 0, 1)
		e.now = max(e.now, ev.at)
		ev.f()
	}
	e.now = end
}
