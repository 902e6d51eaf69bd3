package coordtest

import (
	"errors"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var sessionTests = []test{
	{"a closed session's ephemerals go at once and its calls end", []Feature{Sessions}, closeSession},
	{"a session that is cut off expires, and others see its ephemerals go", []Feature{Sessions, Connections}, expiry},
	{"an expired client is told last of all, once, and everything of it ends", []Feature{Sessions, Connections}, expiredClient},
	{"what an expired session leaves can be taken by the next", []Feature{Sessions, Connections}, takeOver},
	{"an idle session lives on", []Feature{Sessions, Connections}, idle},
	{"timeouts are negotiated and end on tick boundaries", []Feature{Sessions, Connections, Ticks}, tickBoundaries},
}

func closeSession(s *suite) {
	c, other := s.open(), s.open()
	c.create("/e", "", coord.Ephemeral).ok()
	c.create("/stays", "", coord.Persistent).ok()
	c.create("/n-", "", coord.Ephemeral|coord.Sequential).ok()
	other.catchUp()
	gone, never := s.watch(), s.watch()
	other.exists("/e", gone).ok()
	c.exists("/stays", never).ok()
	c.close().ok()
	gone.fires(coord.NodeDeleted, "/e")
	other.catchUp()
	if k := other.children("", nil).ok(); slices.ContainsFunc(k.names, func(n string) bool { return n == "e" || n[0] == 'n' }) {
		s.Errorf("left: %v", k.names)
	}
	other.set("/stays", "", 0).ok()
	c.create("/e", "", coord.Persistent).fails(coord.ErrSessionExpired)
	c.get("/stays").fails(coord.ErrSessionExpired)
	c.multi(coord.CheckOp(s.at("/stays"), coord.AnyVersion)).fails(coord.ErrSessionExpired)
	s.silent(never)
	if told := c.told(); !slices.Equal(told, []coord.SessionState{coord.Connected}) {
		s.Errorf("told %v", told)
	}
}

func expiry(s *suite) {
	c, other := s.openFor(2*s.Tick()), s.open()
	c.create("/e", "", coord.Ephemeral).ok()
	c.create("/stays", "", coord.Persistent).ok()
	other.catchUp()
	gone, child := s.watch(), s.watch()
	other.exists("/e", gone).ok()
	other.children("", child).ok()
	s.Cut(c.Client)
	gone.fires(coord.NodeDeleted, "/e")
	if !s.Wait(child.fired) {
		s.Error("the parent's children did not change")
	}
	other.catchUp()
	other.exists("/e", nil).fails(coord.ErrNoNode)
	other.exists("/stays", nil).ok()
	s.Settle()
	if told := c.told(); slices.Contains(told, coord.Expired) {
		s.Errorf("told %v while it could not hear", told)
	}
}

// expire cuts a client off until the service has ended its session: other sees the ephemeral go.
func expire(c, other *client, ephemeral string) {
	s := c.s
	s.Helper()
	c.create(ephemeral, "", coord.Ephemeral).ok()
	other.catchUp()
	gone := s.watch()
	other.exists(ephemeral, gone).ok()
	s.Cut(c.Client)
	gone.fires(coord.NodeDeleted, ephemeral)
}

func expiredClient(s *suite) {
	c, other := s.openFor(2*s.Tick()), s.open()
	c.create("/a", "", coord.Persistent).ok()
	never, child := s.watch(), s.watch()
	c.getWatched("/a", never).ok()
	c.children("/a", child).ok()
	expire(c, other, "/e")
	inFlight := c.set("/a", "zombie", coord.AnyVersion) // connection lost or session expired, but an end it must have
	s.Heal(c.Client)
	c.hears(coord.Expired)
	if inFlight.wait(); !errors.Is(inFlight.err, coord.ErrConnectionLoss) && !errors.Is(inFlight.err, coord.ErrSessionExpired) {
		s.Errorf("a call after the session's end: %v", inFlight.err)
	}
	c.set("/a", "zombie", coord.AnyVersion).fails(coord.ErrSessionExpired)
	c.exists("/a", nil).fails(coord.ErrSessionExpired)
	c.children("/a", nil).fails(coord.ErrSessionExpired)
	c.multi(coord.SetOp(s.at("/a"), nil, coord.AnyVersion)).fails(coord.ErrSessionExpired)
	other.catchUp()
	if k := other.get("/a").ok(); k.stat.Version != 0 {
		s.Error("a session that had ended has written")
	}
	other.set("/a", "", 0).ok()
	other.create("/a/b", "", coord.Persistent).ok()
	s.silent(never, child)
	if told := c.told(); !slices.Equal(told, []coord.SessionState{coord.Connected, coord.Disconnected, coord.Expired}) {
		s.Errorf("told %v", told)
	}
}

func takeOver(s *suite) {
	c, other := s.openFor(2*s.Tick()), s.open()
	expire(c, other, "/controller")
	next := s.open()
	if next.Session() == c.Session() {
		s.Error("a session's number was given twice")
	}
	if k := next.create("/controller", "", coord.Ephemeral).ok(); k.stat.EphemeralOwner != next.Session() {
		s.Errorf("%+v", k.stat)
	}
	s.Heal(c.Client)
	c.hears(coord.Expired)
	s.Settle()
	next.exists("/controller", nil).ok()
}

// idle: a session of the least timeout stays while another of it comes and goes three times.
func idle(s *suite) {
	c, other := s.openFor(2*s.Tick()), s.open()
	c.create("/idle", "", coord.Ephemeral).ok()
	for _, name := range []string{"/e1", "/e2", "/e3"} {
		expire(s.openFor(2*s.Tick()), other, name)
	}
	other.catchUp()
	other.exists("/idle", nil).ok()
	if told := c.told(); !slices.Equal(told, []coord.SessionState{coord.Connected}) {
		s.Errorf("told %v", told)
	}
}

func tickBoundaries(s *suite) {
	clock := s.Service.(TickClock)
	tick := s.Tick()
	for i, c := range []struct{ asked, granted time.Duration }{
		{time.Millisecond, 2 * tick}, {2 * tick, 2 * tick}, {5*tick + tick/2, 5*tick + tick/2}, {20 * tick, 20 * tick}, {time.Hour, 20 * tick},
	} {
		cl, other := s.openFor(c.asked), s.open()
		name := "/e" + string(rune('0'+i))
		cl.create(name, "", coord.Ephemeral).ok()
		other.catchUp()
		gone := s.watch()
		other.exists(name, gone).ok()
		cut := clock.Now()
		s.Cut(cl.Client)
		gone.fires(coord.NodeDeleted, name)
		at, ok := clock.ExpiredAt(cl.Session())
		if !ok {
			s.Fatalf("timeout %v: not expired", c.asked)
		}
		if at%tick != 0 {
			s.Errorf("timeout %v: expired at %v, off the ticks of %v", c.asked, at, tick)
		}
		// It was heard from last at most a third of the timeout, and a half for safety, before the cut.
		if after := at - cut; after < c.granted/2-tick/10 || after > c.granted+tick+tick/10 {
			s.Errorf("timeout %v: expired %v after the cut, granted %v", c.asked, after, c.granted)
		}
		other.close().ok()
	}
}
