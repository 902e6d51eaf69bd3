package real

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

const patience = 30 * time.Second // for what must come; no test waits for it to pass

// fakeServer grants sessions, and answers every request with what answer gives; nil is no answer.
func fakeServer(t *testing.T, answer func(frame []byte) []byte) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				serveFake(nc, answer)
			})
		}
	})
	return l.Addr().String()
}

func serveFake(nc net.Conn, answer func([]byte) []byte) {
	for first := true; ; first = false {
		var head [4]byte
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(nc, frame); err != nil {
			return
		}
		reply := answer(frame)
		if first {
			reply = make([]byte, 4+36)
			reply[3], reply[4+6], reply[4+15], reply[4+19] = 36, 0x0f, 7, 16 // 3840 ms, session 7
		}
		if _, err := nc.Write(reply); err != nil {
			return
		}
	}
}

// open opens a session and gives the states that it is told.
func open(t *testing.T, connect string) (coord.Client, <-chan coord.SessionState) {
	t.Helper()
	states := make(chan coord.SessionState, 10_000)
	c, err := OpenCoord(connect, 4*time.Second, func(s coord.SessionState) { states <- s })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done := make(chan struct{})
		c.Close(func(error) { close(done) })
		within(t, done, "the end of Close")
	})
	return c, states
}

func within[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// hears waits for a state, past others.
func hears(t *testing.T, states <-chan coord.SessionState, want coord.SessionState) {
	t.Helper()
	for within(t, states, want.String()) != want {
	}
}

// The server takes everything and answers nothing: calls are bounded, each ends once, and the loss ends them all.
func TestCallsAreBoundedAndEachEndsOnce(t *testing.T) {
	c, states := open(t, fakeServer(t, func([]byte) []byte { return nil }))
	hears(t, states, coord.Connected)
	const n = callsInFlightMax + callsWaitingMax + 100
	ends := make(chan error, 2*n)
	for range n {
		c.Set("/a", nil, 0, func(_ coord.Stat, err error) { ends <- err })
	}
	throttled := 0
	for range n { // the library gives up after two thirds of the timeout
		switch err := within(t, ends, "a call's end"); {
		case errors.Is(err, coord.ErrThrottled):
			throttled++
		case !errors.Is(err, coord.ErrConnectionLoss):
			t.Fatal(err)
		}
	}
	if throttled != 100 {
		t.Errorf("%d calls were refused, want 100", throttled)
	}
	hears(t, states, coord.Disconnected)
	if len(ends) > 0 {
		t.Errorf("%d calls ended twice", len(ends))
	}
}

// What was given up with a connection is sent after the next is there; the client is told of that only
// when it is all over, so nothing that it then does can come before it.
func TestConnectedIsToldWhenNothingOfTheLastConnectionIsLeft(t *testing.T) {
	var frames atomic.Int64
	stuck := make(chan struct{})
	addr := fakeServer(t, func(frame []byte) []byte {
		if frames.Add(1) == 2 { // the first request: from here on this connection is not read
			<-stuck
		}
		reply := append([]byte{0, 0, 0, 16}, frame[:4]...)
		return append(reply, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x9b) // NoNode
	})
	t.Cleanup(func() { close(stuck) })
	var client atomic.Pointer[coordClient]
	states, left := make(chan coord.SessionState, 100), make(chan int, 100)
	opened, err := OpenCoord(addr, 4*time.Second, func(s coord.SessionState) {
		if c := client.Load(); c != nil && s == coord.Connected {
			c.mu.Lock()
			left <- c.running
			c.mu.Unlock()
		}
		states <- s
	})
	if err != nil {
		t.Fatal(err)
	}
	hears(t, states, coord.Connected)
	client.Store(opened.(*coordClient))
	ends := make(chan error, callsInFlightMax)
	for range callsInFlightMax { // more than a socket holds
		opened.Set("/a", make([]byte, coord.DataBytesMax), 0, func(_ coord.Stat, err error) { ends <- err })
	}
	for range callsInFlightMax {
		if err := within(t, ends, "a call's end"); err != coord.ErrConnectionLoss {
			t.Fatal(err)
		}
	}
	hears(t, states, coord.Connected)
	if n := within(t, left, "the reconnection"); n != 0 {
		t.Errorf("connected with %d calls of the last connection under way", n)
	}
	if n := frames.Load(); n < 4 {
		t.Errorf("%d frames: nothing was sent after the reconnection, so this test shows nothing", n)
	}
	done := make(chan struct{})
	opened.Close(func(error) { close(done) })
	within(t, done, "the end of Close")
}

// A server that answers rubbish loses the connection, and that is all.
func TestRubbishFromTheServerIsALostConnection(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	var mu sync.Mutex
	rubbish := func(frame []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		body := make([]byte, rng.IntN(120))
		for i := range body {
			if rng.IntN(3) == 0 {
				body[i] = byte(rng.Uint32())
			}
		}
		reply := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
		switch rng.IntN(6) {
		case 0:
			reply = binary.BigEndian.AppendUint32(nil, rng.Uint32())
		case 1:
			reply = append(reply, 0xff, 0xff, 0xff, 0xff) // an event
		default:
			reply = append(reply, frame[:4]...)
		}
		reply = append(reply, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
		return append(reply, body...)
	}
	c, states := open(t, fakeServer(t, rubbish))
	for range 60 {
		hears(t, states, coord.Connected)
		ends := make(chan error, 6)
		c.Create("/a", nil, coord.Persistent, func(_ string, _ coord.Stat, err error) { ends <- err })
		c.Get("/a", func(coord.Event) {}, func(_ []byte, _ coord.Stat, err error) { ends <- err })
		c.Children("/a", nil, func(_ []string, _ coord.Stat, err error) { ends <- err })
		c.Exists("/a", nil, func(_ coord.Stat, err error) { ends <- err })
		c.Multi([]coord.Op{coord.CheckOp("/a", 0), coord.SetOp("/a", nil, 0)}, func(_ []coord.Result, err error) { ends <- err })
		lost := false
		for range 5 {
			lost = within(t, ends, "a call's end") != nil || lost
		}
		if !lost {
			t.Fatal("rubbish was taken for answers")
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add(int32(opGetChildren2), append([]byte{0, 0, 0, 1, 0, 0, 0, 1, 'a'}, make([]byte, statBytes)...))
	f.Add(int32(opMulti), []byte{0, 0, 0, 13, 0, 0, 0, 0, 0, 255, 255, 255, 255, 1, 255, 255, 255, 255})
	f.Fuzz(func(_ *testing.T, op int32, b []byte) {
		saneReply(op, b)
		saneEvent(b)
	})
}

func TestConnectStrings(t *testing.T) {
	for _, c := range []struct {
		connect string
		servers []string
		chroot  string
	}{
		{"a:1", []string{"a:1"}, ""},
		{"a:1,b:2,[::1]:3/kafka/x", []string{"a:1", "b:2", "[::1]:3"}, "/kafka/x"},
		{"a, b:2/", []string{"a:2181", "b:2"}, ""},
	} {
		servers, chroot, err := parseConnect(c.connect)
		if err != nil || !slices.Equal(servers, c.servers) || chroot != c.chroot {
			t.Errorf("%q: %v %q %v", c.connect, servers, chroot, err)
		}
	}
	for _, bad := range []string{"", ",", "a:1,", ":1", "a:1//", "a:1/x/", "a:1/../x", "/x"} {
		if servers, chroot, err := parseConnect(bad); err == nil {
			t.Errorf("%q: %v %q, want an error", bad, servers, chroot)
		}
	}
}

// The first round goes without a wait, later ones wait longer and longer up to a bound,
// and a session resets that unless it was lost at once.
func TestReconnectionWaitsOnlyWhereTheLastRoundFailed(t *testing.T) {
	h := newHosts()
	_ = h.Init([]string{"a", "b", "c"})
	var order []string
	for i := range 60 {
		wait := h.wait()
		if first := i%3 != 0 || i == 0; first != (wait == 0) || wait > backoffMax {
			t.Errorf("attempt %d: wait %v", i, wait)
		}
		if i > 30 && i%3 == 0 && wait < backoffMax/2 {
			t.Errorf("attempt %d: wait %v only", i, wait)
		}
		if i < 3 {
			server, over := h.Next()
			if over {
				t.Fatal("over")
			}
			order = append(order, server)
		} else {
			h.failed++
		}
	}
	if !slices.Equal(order, h.servers) {
		t.Errorf("order %v", order)
	}
	h.Connected()
	if h.connected = h.connected.Add(-time.Second); h.wait() != 0 {
		t.Error("a session of a second ago did not end the waiting")
	}
	h.Connected()
	if h.wait() == 0 {
		t.Error("a session that was lost at once is tried again at once, for ever")
	}
	h.close()
	if _, over := h.Next(); !over {
		t.Error("the library is not told that all is over")
	}
}

// The library would open another session next, so all is closed when its event has been heard.
func TestAnExpiryIsTheEndBeforeTheLibraryGoesOn(t *testing.T) {
	told := make(chan coord.SessionState, 1)
	c := &coordClient{hosts: newHosts(), ready: make(chan struct{}), active: map[*coordCall]struct{}{}, state: func(s coord.SessionState) { told <- s }}
	c.eventOfLibrary(zk.Event{Type: zk.EventSession, State: zk.StateExpired})
	if !c.hosts.isClosed() {
		t.Error("the library may connect again")
	}
	if s := within(t, told, "the end"); s != coord.Expired {
		t.Error(s)
	}
	if _, err := c.dial("tcp", "127.0.0.1:1", time.Second); !errors.Is(err, zk.ErrClosing) {
		t.Errorf("it connects again: %v", err)
	}
}
