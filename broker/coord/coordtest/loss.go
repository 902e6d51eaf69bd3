package coordtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var lossTests = []test{
	{"a client that reconnects in time keeps its session", []Feature{Connections}, reconnects},
	{"calls while disconnected end and are never made up for", []Feature{Connections}, disconnectedCalls},
	{"a call in flight when the connection goes is applied once or never", []Feature{Sessions, Connections}, unknownOutcome},
	{"watches stand again after a reconnection", []Feature{Sessions, Connections}, rearmed},
	{"a change that was missed fires on reconnection", []Feature{Sessions, Connections, LateWatches}, missed},
	{"what did not change does not fire on reconnection", []Feature{Sessions, Connections}, notMissed},
	{"a client does not go back behind what it saw by reconnecting", []Feature{Sessions, Connections}, neverBackOnReconnect},
	{"a session can be closed while it is cut off", []Feature{Sessions, Connections}, closeWhileCut},
}

// disconnect cuts and waits until the client knows.
func (c *client) disconnect() {
	c.s.Helper()
	c.s.Cut(c.Client)
	c.hears(coord.Disconnected)
}

func (c *client) reconnect() {
	c.s.Helper()
	c.s.Heal(c.Client)
	c.hears(coord.Connected)
}

func reconnects(s *suite) {
	c := s.open()
	session := c.Session()
	c.create("/e", "", coord.Ephemeral).ok()
	for range 3 {
		c.disconnect()
		c.reconnect()
	}
	if c.Session() != session {
		s.Errorf("session %d, was %d", c.Session(), session)
	}
	if k := c.exists("/e", nil).ok(); k.stat.EphemeralOwner != session {
		s.Errorf("%+v", k.stat)
	}
	want := []coord.SessionState{coord.Connected}
	for range 3 {
		want = append(want, coord.Disconnected, coord.Connected)
	}
	if told := c.told(); !slices.Equal(told, want) {
		s.Errorf("told %v", told)
	}
}

func disconnectedCalls(s *suite) {
	c := s.open()
	c.create("/a", "", coord.Persistent).ok()
	c.disconnect()
	w := s.watch()
	c.create("/b", "", coord.Persistent).fails(coord.ErrConnectionLoss)
	c.set("/a", "x", coord.AnyVersion).fails(coord.ErrConnectionLoss)
	c.getWatched("/a", w).fails(coord.ErrConnectionLoss)
	c.children("/a", nil).fails(coord.ErrConnectionLoss)
	c.multi(coord.DeleteOp(s.at("/a"), coord.AnyVersion)).fails(coord.ErrConnectionLoss)
	c.reconnect()
	c.catchUp()
	s.Settle()
	if k := c.get("/a").ok(); k.stat.Version != 0 {
		s.Errorf("%+v", k.stat)
	}
	c.exists("/b", nil).fails(coord.ErrNoNode)
	c.set("/a", "", 0).ok()
	s.silent(w)
}

func unknownOutcome(s *suite) {
	c, other := s.open(), s.open()
	c.create("/q", "", coord.Persistent).ok()
	applied, lost := 0, 0
	for round := range 12 {
		var calls []*call
		for i := range 4 {
			calls = append(calls, c.create(fmt.Sprintf("/q/%d-%d", round, i), "", coord.Persistent))
		}
		s.Cut(c.Client)
		for _, k := range calls {
			if k.wait(); k.err != nil && !errors.Is(k.err, coord.ErrConnectionLoss) {
				s.Fatalf("%s: %v", k.what, k.err)
			}
		}
		s.Heal(c.Client)
		if !s.Wait(func() bool { states := c.told(); return states[len(states)-1] == coord.Connected }) {
			s.Fatalf("told %v", c.told())
		}
		// It may be that the client has not noticed anything yet: a write that succeeds settles it.
		for try := 0; ; try++ {
			if k := c.create(fmt.Sprintf("/settled-%d-%d", round, try), "", coord.Persistent).wait(); k.err == nil {
				break
			} else if try == 1000 {
				s.Fatalf("%s: %v", k.what, k.err)
			}
			c.hears(coord.Connected)
		}
		other.catchUp()
		for i, k := range calls {
			there := other.exists(fmt.Sprintf("/q/%d-%d", round, i), nil).wait().err == nil
			switch {
			case k.err == nil && !there:
				s.Errorf("%s was acknowledged and is not there", k.what)
			case k.err != nil && there:
				applied++
			case k.err != nil:
				lost++
			}
		}
	}
	before := other.children("/q", nil).ok().stat.Cversion
	s.Settle()
	other.catchUp()
	if after := other.children("/q", nil).ok().stat.Cversion; after != before {
		s.Errorf("%d creations came after a later write of the same client", after-before)
	}
	s.Logf("of the calls without an answer %d were applied and %d not", applied, lost)
}

// watchAll sets a watch of each kind, and one on a node that changes before it is looked at.
func (c *client) watchAll() (data, exists, missing, child, gone *watch) {
	s := c.s
	s.Helper()
	for _, path := range []string{"/data", "/exists", "/parent", "/gone"} {
		c.create(path, "", coord.Persistent).ok()
	}
	data, exists, missing, child, gone = s.watch(), s.watch(), s.watch(), s.watch(), s.watch()
	c.getWatched("/data", data).ok()
	c.exists("/exists", exists).ok()
	c.exists("/missing", missing).fails(coord.ErrNoNode)
	c.children("/parent", child).ok()
	c.getWatched("/gone", gone).ok()
	return data, exists, missing, child, gone
}

// changeAll is what the watches of watchAll wait for.
func (c *client) changeAll() {
	c.s.Helper()
	c.set("/data", "", 0).ok()
	c.set("/exists", "", 0).ok()
	c.create("/missing", "", coord.Persistent).ok()
	c.create("/parent/new", "", coord.Persistent).ok()
	c.delete("/gone", 0).ok()
}

func (s *suite) allFire(data, exists, missing, child, gone *watch) {
	s.Helper()
	data.fires(coord.NodeDataChanged, "/data")
	exists.fires(coord.NodeDataChanged, "/exists")
	missing.fires(coord.NodeCreated, "/missing")
	child.fires(coord.NodeChildrenChanged, "/parent")
	gone.fires(coord.NodeDeleted, "/gone")
}

func rearmed(s *suite) {
	c, other := s.open(), s.open()
	data, exists, missing, child, gone := c.watchAll()
	c.disconnect()
	c.reconnect()
	c.catchUp() // the watches are set again before this is done
	other.changeAll()
	s.allFire(data, exists, missing, child, gone)
}

func missed(s *suite) {
	c, other := s.open(), s.open()
	data, exists, missing, child, gone := c.watchAll()
	back := s.watch()
	c.create("/back", "", coord.Persistent).ok()
	c.getWatched("/back", back).ok()
	c.disconnect()
	other.changeAll()
	other.delete("/back", 0).ok()
	other.create("/back", "", coord.Persistent).ok()
	c.reconnect()
	s.allFire(data, exists, missing, child, gone)
	if !s.Wait(back.fired) {
		s.Error("a node that went and came back unseen did not fire")
	}
}

func notMissed(s *suite) {
	c, other := s.open(), s.open()
	data, exists, missing, child, gone := c.watchAll()
	other.create("/other", "", coord.Persistent).ok() // others' changes do not matter
	for range 2 {
		c.disconnect()
		other.set("/other", "", coord.AnyVersion).ok()
		c.reconnect()
	}
	s.silent(data, exists, missing, child, gone)
	other.changeAll()
	s.allFire(data, exists, missing, child, gone)
}

func neverBackOnReconnect(s *suite) {
	c, writer := s.open(), s.open()
	writer.create("/a", "", coord.Persistent).ok()
	c.catchUp()
	seen := int32(0)
	for i := range int32(12) {
		writer.set("/a", "", i).ok()
		if i%2 == 0 {
			c.catchUp()
		}
		seen = max(seen, c.get("/a").ok().stat.Version)
		c.disconnect()
		c.reconnect()
		if k := c.get("/a").ok(); k.stat.Version < seen {
			s.Fatalf("version %d after %d", k.stat.Version, seen)
		}
	}
}

func closeWhileCut(s *suite) {
	c, other := s.openFor(2*s.Tick()), s.open()
	c.create("/e", "", coord.Ephemeral).ok()
	other.catchUp()
	gone := s.watch()
	other.exists("/e", gone).ok()
	c.disconnect()
	told := len(c.told())
	c.close().wait() // an error, or success where the form lets the timeout do it
	gone.fires(coord.NodeDeleted, "/e")
	c.get("/e").fails(coord.ErrSessionExpired)
	s.Heal(c.Client)
	s.Settle()
	if states := c.told(); len(states) != told {
		s.Errorf("told %v after Close", states[told:])
	}
}
