// Package coordtest says in tests what coord.Client promises. Every form of the
// coordination service runs the same suite: Local, the model of the simulator, the
// embedded server and a real ZooKeeper through the live adapter.
//
// A form gives a Factory. What a form cannot do, it names with a reason, and the
// suite prints that; it never passes over a test in silence.
//
// The suite demands no more than the contract: it never expects another client's
// change to be visible at once, nor an order between calls that are not chained.
package coordtest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// Service is one running service, made for one test.
type Service interface {
	// Open opens a session that asks for this timeout; state is told as coord.SessionState says.
	// For a form whose clients have no network, Connected alone is told.
	Open(timeout time.Duration, state func(coord.SessionState)) coord.Client
	// Wait lets time pass until cond holds, and reports false if it does not for very long
	// (a virtual hour, a real minute). cond may take a lock that callbacks take.
	Wait(cond func() bool) bool
	// Settle lets pass what is already on its way. What did not happen by then counts as not
	// happening: a form may wait too short, and miss a fault, but never fail by it.
	Settle()
	// Root is the path of an existing persistent node without children, which only this test works under.
	Root() string
	// Tick is the grain of expiry: timeouts are negotiated to between 2 and 20 of it.
	Tick() time.Duration

	// Cut takes a client's connection away and lets none come about until Heal. (Connections)
	Cut(c coord.Client)
	Heal(c coord.Client)
}

// TickClock is what a Service also has whose form can show Ticks.
type TickClock interface {
	// Now is the service's clock, whose boundaries are the multiples of Tick.
	Now() time.Duration
	// ExpiredAt tells when a session was expired by the service.
	ExpiredAt(coord.SessionID) (at time.Duration, ok bool)
}

// Feature is something that not every form has.
type Feature string

const (
	Sessions    Feature = "sessions"     // several sessions on one tree
	Connections Feature = "connections"  // Cut and Heal work; sessions expire
	Ticks       Feature = "ticks"        // the Service is a TickClock
	OneThread   Feature = "one-thread"   // callbacks run inside Wait and Settle alone, so that one inside a call can be told
	LargeNodes  Feature = "large-nodes"  // nodes of up to the limit
	LateWatches Feature = "late-watches" // a change is made while the watcher is cut off
)

var features = []Feature{Sessions, Connections, Ticks, OneThread, LargeNodes, LateWatches}

// Factory makes the services of one form.
type Factory struct {
	New func(t testing.TB) Service
	// Cannot are the features that the form lacks, each with the reason.
	Cannot map[Feature]string
}

// test is one behaviour.
type test struct {
	name  string
	needs []Feature
	run   func(s *suite)
}

// Run runs every test of the suite, each on a service of its own.
func Run(t *testing.T, f Factory) {
	for _, name := range slices.Sorted(maps.Keys(f.Cannot)) {
		if !slices.Contains(features, name) || f.Cannot[name] == "" {
			t.Errorf("the form says that it cannot %q (%q): no such feature, or no reason", name, f.Cannot[name])
		}
	}
	var left []string
	for _, tt := range tests() {
		if lacks, ok := f.lacks(tt); ok {
			left = append(left, fmt.Sprintf("%s (needs %s)", tt.name, lacks))
			continue
		}
		t.Run(tt.name, func(t *testing.T) { runOne(t, f, tt) })
	}
	for _, name := range slices.Sorted(maps.Keys(f.Cannot)) {
		t.Logf("this form has no %s: %s", name, f.Cannot[name])
	}
	for _, name := range left {
		t.Logf("not run on this form: %s", name)
	}
}

func tests() []test {
	return slices.Concat(nodeTests, multiTests, orderTests, watchTests, limitTests, sessionTests, lossTests)
}

// lacks names the first feature that the test needs and the form has not.
func (f Factory) lacks(tt test) (Feature, bool) {
	i := slices.IndexFunc(tt.needs, func(n Feature) bool { return f.Cannot[n] != "" })
	if i < 0 {
		return "", false
	}
	return tt.needs[i], true
}

// Failing runs the suite and gives the tests that failed, each with what it said first: for
// planted faults, and for many seeds. The form must be one of one goroutine.
func Failing(t testing.TB, f Factory) []string {
	var failing []string
	for _, tt := range tests() {
		if _, ok := f.lacks(tt); ok {
			continue
		}
		r := &recorder{TB: t}
		r.run(func() { runOne(r, f, tt) })
		if len(r.said) > 0 {
			failing = append(failing, tt.name+": "+r.said[0])
		}
	}
	return failing
}

// recorder is a test whose failure is noted and fails nothing.
type recorder struct {
	testing.TB
	said []string
}

// fatal is what ends a test of a recorder.
type fatal struct{}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}
func (r *recorder) Error(args ...any) { r.said = append(r.said, fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) run(f func()) {
	defer func() {
		if p := recover(); p != nil && p != (fatal{}) {
			panic(p)
		}
	}()
	f()
}

func runOne(t testing.TB, f Factory, tt test) {
	s := &suite{TB: t, Service: f.New(t), oneThread: f.Cannot[OneThread] == ""}
	tt.run(s)
	s.Settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.ended != 1 {
			t.Errorf("%s ended %d times", c.what, c.ended)
		}
	}
	for _, w := range s.watches {
		if len(w.events) > 1 {
			t.Errorf("the one-shot watch of %s fired %d times: %v", w.path, len(w.events), w.events)
		}
		if w.early {
			t.Errorf("the watch of %s fired before the call that set it was done", w.path)
		}
	}
}
