package real_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/coord/zkserver"
	"github.com/tidemark-log/tidemark/broker/env/real"
	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

const patience = 30 * time.Second // for what must come; no test waits for it to pass

func within[T any](t testing.TB, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

func open(t testing.TB, connect string, timeout time.Duration) (coord.Client, <-chan coord.SessionState) {
	t.Helper()
	states := make(chan coord.SessionState, 100)
	c, err := real.OpenCoord(connect, timeout, func(s coord.SessionState) { states <- s })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done := make(chan struct{})
		c.Close(func(error) { close(done) })
		within(t, done, "the end of Close")
	})
	if s := within(t, states, "a session"); s != coord.Connected {
		t.Fatal(s)
	}
	return c, states
}

func create(t testing.TB, c coord.Client, path string, mode coord.CreateMode) error {
	t.Helper()
	done := make(chan error, 1)
	c.Create(path, nil, mode, func(_ string, _ coord.Stat, err error) { done <- err })
	return within(t, done, "create "+path)
}

func embedded(t testing.TB) *zkserver.Server {
	t.Helper()
	s, err := zkserver.Listen("127.0.0.1:0", zkserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The library opens another session when one has expired; the adapter must not let it.
func TestAnExpiredClientOpensNoOtherSession(t *testing.T) {
	s := embedded(t)
	accepted := newProxy(t, s.Addr())
	c, states := open(t, accepted.addr(), 4*time.Second)
	if !s.ExpireSession(c.Session()) {
		t.Fatal("there was no session")
	}
	for _, want := range []coord.SessionState{coord.Disconnected, coord.Expired} {
		if got := within(t, states, want.String()); got != want {
			t.Fatalf("told %v, want %v", got, want)
		}
	}
	done := make(chan error, 1)
	c.Close(func(err error) { done <- err })
	if err := within(t, done, "the end of Close"); err != coord.ErrSessionExpired {
		t.Error(err)
	}
	// A session of our own comes after whatever the library did.
	open(t, s.Addr(), 4*time.Second)
	if n := monitor(t, s.Addr(), "zk_global_sessions"); n != "1" {
		t.Errorf("%s sessions, want ours alone", n)
	}
	if n := accepted.count(); n != 2 { // the first, and the one that learned of the end
		t.Errorf("%d connections, want 2", n)
	}
}

// monitor is a value of the four-letter word mntr.
func monitor(t *testing.T, addr, name string) string {
	t.Helper()
	for _, line := range strings.Split(fourLetterWord(t, addr, "mntr"), "\n") {
		if v, ok := strings.CutPrefix(line, name+"\t"); ok {
			return v
		}
	}
	t.Fatalf("no %s", name)
	return ""
}

func TestTheChrootIsMadeAndHidden(t *testing.T) {
	s := embedded(t)
	c, _ := open(t, s.Addr()+"/a/b", 10*time.Second)
	fired := make(chan coord.Event, 1)
	names := make(chan []string, 1)
	c.Children("/", func(e coord.Event) { fired <- e }, func(n []string, _ coord.Stat, err error) {
		if err != nil {
			t.Error(err)
		}
		names <- n
	})
	if n := within(t, names, "children"); len(n) != 0 {
		t.Error(n)
	}
	paths := make(chan string, 2)
	c.Create("/", nil, coord.Sequential, func(path string, _ coord.Stat, err error) {
		if err != nil {
			t.Error(err)
		}
		paths <- path
	})
	if p := within(t, paths, "create"); p != "/0000000000" {
		t.Error(p)
	}
	if e := within(t, fired, "the watch"); e != (coord.Event{Type: coord.NodeChildrenChanged, Path: "/"}) {
		t.Error(e)
	}
	c.Multi([]coord.Op{coord.CreateOp("/m", []byte("xy"), coord.Ephemeral)}, func(r []coord.Result, err error) {
		if err != nil || r[0].Stat.DataLength != 2 || r[0].Stat.EphemeralOwner != c.Session() {
			t.Error(r, err)
		}
		paths <- r[0].Path
	})
	if p := within(t, paths, "multi"); p != "/m" {
		t.Error(p)
	}
	root, _ := open(t, s.Addr(), 10*time.Second)
	got := make(chan error, 1)
	root.Exists("/a/b/m", nil, func(_ coord.Stat, err error) { got <- err })
	if err := within(t, got, "exists"); err != nil {
		t.Error(err)
	}
}

// A server of an ensemble dies, be it the leader: the session lives on with the others.
func TestTheSessionOutlivesAServerOfTheEnsemble(t *testing.T) {
	servers := zookeepertest.StartEnsemble(t)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	c, states := open(t, strings.Join(addrs, ","), 10*time.Second)
	session := c.Session()
	if err := create(t, c, "/mine", coord.Ephemeral); err != nil {
		t.Fatal(err)
	}
	for _, server := range servers {
		if strings.Contains(fourLetterWord(t, server.Addr, "srvr"), "Mode: leader") {
			server.Kill()
		}
	}
	if got := within(t, states, "the loss"); got != coord.Disconnected { // an ensemble without a leader serves nobody
		t.Fatal(got)
	}
	for {
		if s := within(t, states, "the reconnection"); s == coord.Expired {
			t.Fatal("expired")
		} else if s != coord.Connected {
			continue
		}
		if err := create(t, c, "/after", coord.Persistent); err == nil || err == coord.ErrNodeExists {
			break
		}
	}
	owner := make(chan coord.SessionID, 1)
	c.Exists("/mine", nil, func(s coord.Stat, _ error) { owner <- s.EphemeralOwner })
	if got := within(t, owner, "exists"); got != session || c.Session() != session {
		t.Errorf("owner %x, session %x, was %x", got, c.Session(), session)
	}
}
