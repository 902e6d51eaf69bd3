package coordtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// suite is one test: its service, and what was seen so far.
type suite struct {
	testing.TB
	Service
	oneThread bool

	mu      sync.Mutex // callbacks may come from any goroutine
	calls   []*call
	watches []*watch
	inside  bool // of a call, on a form of one thread
}

// call is one call of a Client that was made, and its outcome.
type call struct {
	s     *suite
	what  string
	ended int
	err   error

	path    string // create
	data    string // get
	stat    coord.Stat
	names   []string // children
	results []coord.Result
	then    func() // runs in done, for what is chained
}

// begin makes a call without waiting for it.
func (s *suite) begin(what string, do func(k *call)) *call {
	s.Helper()
	k := &call{s: s, what: what}
	s.mu.Lock()
	s.calls = append(s.calls, k)
	s.mu.Unlock()
	s.setInside(true)
	do(k)
	s.setInside(false)
	return k
}

func (s *suite) setInside(inside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside = inside && s.oneThread
}

// end is what every done comes to; set stores what the call gave.
func (k *call) end(err error, set func()) {
	k.s.mu.Lock()
	if k.s.inside {
		k.s.Errorf("%s was answered inside a call", k.what)
	}
	k.ended++
	k.err = err
	if set != nil {
		set()
	}
	then := k.then
	k.s.mu.Unlock()
	if then != nil {
		then()
	}
}

// wait waits for the call's end.
func (k *call) wait() *call {
	k.s.Helper()
	if !k.s.Wait(func() bool { return k.s.locked(func() bool { return k.ended > 0 }) }) {
		k.s.Fatalf("%s: no answer", k.what)
	}
	return k
}

// ok waits and wants success.
func (k *call) ok() *call {
	k.s.Helper()
	if k.wait(); k.err != nil {
		k.s.Fatalf("%s: %v", k.what, k.err)
	}
	return k
}

// fails waits and wants this error.
func (k *call) fails(want error) *call {
	k.s.Helper()
	if k.wait(); !errors.Is(k.err, want) {
		k.s.Errorf("%s: %v, want %v", k.what, k.err, want)
	}
	return k
}

func (s *suite) locked(f func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// client is a session that the suite opened, and what it was told.
type client struct {
	s *suite
	coord.Client
	states []coord.SessionState
}

// longTimeout is not over in a test that does not want it.
func (s *suite) longTimeout() time.Duration { return 20 * s.Tick() }

// open opens a session and waits until it is there.
func (s *suite) open() *client { return s.openFor(s.longTimeout()) }

func (s *suite) openFor(timeout time.Duration) *client {
	s.Helper()
	c := &client{s: s}
	c.Client = s.Open(timeout, func(st coord.SessionState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.states = append(c.states, st)
	})
	c.hears(coord.Connected)
	return c
}

// told is what the client was told, in order.
func (c *client) told() []coord.SessionState {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Clone(c.states)
}

// hears waits until the last that the client was told is this.
func (c *client) hears(want coord.SessionState) {
	c.s.Helper()
	if !c.s.Wait(func() bool {
		states := c.told()
		return len(states) > 0 && states[len(states)-1] == want
	}) {
		c.s.Fatalf("the client is not told %s, but %v", want, c.told())
	}
}

// at puts a path under the root of the test.
func (s *suite) at(path string) string { return s.Root() + path }

func (c *client) create(path, data string, mode coord.CreateMode) *call {
	c.s.Helper()
	return c.s.begin("create "+path, func(k *call) {
		c.Create(c.s.at(path), []byte(data), mode, func(p string, st coord.Stat, err error) {
			k.end(err, func() { k.path, k.stat = p, st })
		})
	})
}

func (c *client) set(path, data string, version int32) *call {
	c.s.Helper()
	return c.s.begin(fmt.Sprintf("set %s at %d", path, version), func(k *call) {
		c.Set(c.s.at(path), []byte(data), version, func(st coord.Stat, err error) { k.end(err, func() { k.stat = st }) })
	})
}

func (c *client) delete(path string, version int32) *call {
	c.s.Helper()
	return c.s.begin("delete "+path, func(k *call) {
		c.Delete(c.s.at(path), version, func(err error) { k.end(err, nil) })
	})
}

func (c *client) get(path string) *call { return c.getWatched(path, nil) }

func (c *client) getWatched(path string, w *watch) *call {
	c.s.Helper()
	return c.s.begin("get "+path, func(k *call) {
		c.Get(c.s.at(path), w.callback(k), func(b []byte, st coord.Stat, err error) {
			k.end(err, func() { k.data, k.stat = string(b), st })
		})
	})
}

func (c *client) exists(path string, w *watch) *call {
	c.s.Helper()
	return c.s.begin("exists "+path, func(k *call) {
		c.Exists(c.s.at(path), w.callback(k), func(st coord.Stat, err error) { k.end(err, func() { k.stat = st }) })
	})
}

func (c *client) children(path string, w *watch) *call {
	c.s.Helper()
	return c.s.begin("children of "+path, func(k *call) {
		c.Children(c.s.at(path), w.callback(k), func(names []string, st coord.Stat, err error) {
			k.end(err, func() { k.names, k.stat = names, st })
		})
	})
}

// multi's paths are under the root already: see at.
func (c *client) multi(ops ...coord.Op) *call {
	c.s.Helper()
	return c.s.begin(fmt.Sprintf("multi of %d", len(ops)), func(k *call) {
		c.Multi(ops, func(r []coord.Result, err error) { k.end(err, func() { k.results = r }) })
	})
}

func (c *client) close() *call {
	c.s.Helper()
	return c.s.begin("close", func(k *call) { c.Close(func(err error) { k.end(err, nil) }) })
}

// catchUp makes the client's later reads at least as new as what any client has had acknowledged by now.
func (c *client) catchUp() {
	c.s.Helper()
	if k := c.create("/catch-up", "", coord.Persistent).wait(); k.err != nil && !errors.Is(k.err, coord.ErrNodeExists) {
		c.s.Fatalf("%s: %v", k.what, k.err)
	}
}

// watch is one watch callback and what it saw.
type watch struct {
	s      *suite
	path   string
	events []coord.Event
	early  bool
}

func (s *suite) watch() *watch {
	w := &watch{s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, w)
	return w
}

// callback is what a call takes; nil of a nil watch.
func (w *watch) callback(k *call) func(coord.Event) {
	if w == nil {
		return nil
	}
	w.path = k.what
	return func(e coord.Event) {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		if w.s.inside {
			w.s.Errorf("the watch of %s fired inside a call", k.what)
		}
		w.early = w.early || k.ended == 0
		w.events = append(w.events, e)
	}
}

// fires waits for the event.
func (w *watch) fires(want coord.EventType, path string) {
	w.s.Helper()
	if !w.s.Wait(w.fired) {
		w.s.Fatalf("the watch of %s did not fire", w.path)
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if got := w.events[0]; got != (coord.Event{Type: want, Path: w.s.at(path)}) {
		w.s.Errorf("the watch of %s saw %s of %s, want %s of %s", w.path, got.Type, got.Path, want, w.s.at(path))
	}
}

func (w *watch) fired() bool { return w.s.locked(func() bool { return len(w.events) > 0 }) }

// silent wants that nothing was seen once all is settled.
func (s *suite) silent(watches ...*watch) {
	s.Helper()
	s.Settle()
	for _, w := range watches {
		if w.fired() {
			s.Errorf("the watch of %s fired: %v", w.path, w.events)
		}
	}
}
