package zkserver

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

func TestTimeoutsAreNegotiatedToBetweenTwoAndTwentyTicks(t *testing.T) {
	s := listen(t, Config{})
	for asked, want := range map[int32]int32{1: 4000, 4000: 4000, 6500: 6500, 1 << 30: 40000, -5: 4000} {
		if got := dial(t, s.Addr()).open(asked, 0, nil).timeout; got != want {
			t.Errorf("asked for %d ms: got %d, want %d", asked, got, want)
		}
	}
}

// Held against ZooKeeper itself: what counts is what the connection asked for that comes back, more or less than before.
func TestAConnectionThatComesBackNegotiatesItsTimeoutAnew(t *testing.T) {
	for name, addr := range map[string]func(*testing.T) string{
		"ours":      func(t *testing.T) string { return listen(t, Config{}).Addr() },
		"zookeeper": func(t *testing.T) string { return zookeepertest.Start(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			addr := addr(t)
			library(t, addr) // tries until the server serves
			a := dial(t, addr).open(6500, 0, nil)
			for _, c := range []struct{ asked, want int32 }{{30000, 30000}, {5000, 5000}, {1, 4000}, {1 << 30, 40000}, {-5, 4000}} {
				a.nc.Close()
				again := dial(t, addr).open(c.asked, a.session, a.password)
				if again.session != a.session || again.timeout != c.want {
					t.Errorf("asked for %d ms: session %x with %d, want %x with %d", c.asked, again.session, again.timeout, a.session, c.want)
				}
				a = again
			}
		})
	}
}

func TestASessionExpiresByTheTimeoutOfItsLastConnection(t *testing.T) {
	s := listen(t, Config{})
	for _, c := range []struct {
		first, then int32
		ticks       int // after which it is over
	}{{4000, 4000, 3}, {4000, 12000, 7}, {12000, 4000, 3}} {
		a := dial(t, s.Addr()).open(c.first, 0, nil)
		back := dial(t, s.Addr()).open(c.then, a.session, a.password)
		if code, _ := back.do(opPing, nil); code != 0 {
			t.Fatal(code)
		}
		back.nc.Close()
		for tick := range c.ticks + 1 {
			var open bool
			s.call(func() { open = s.core.tree.HasSession(a.session) })
			if want := tick < c.ticks; open != want {
				t.Errorf("%d ms, then %d: after %d ticks open: %t", c.first, c.then, tick, open)
			}
			s.ticks(1)
		}
	}
}

func TestASilentSessionExpiresOnATickAndTakesItsEphemeralsAlong(t *testing.T) {
	s := listen(t, Config{})
	quiet := dial(t, s.Addr()).open(4000, 0, nil)
	lively := dial(t, s.Addr()).open(4000, 0, nil)
	if code, _ := quiet.do(opCreate, createBody("/e", "x", 1)); code != 0 {
		t.Fatal(code)
	}
	if code, _ := lively.do(opExists, pathWatch("/e", true)); code != 0 {
		t.Fatal(code)
	}
	s.ticks(2) // 4000 ms is not over before the next boundary
	if code, _ := lively.do(opPing, nil); code != 0 {
		t.Fatal(code)
	}
	s.ticks(1)
	lively.wantEvent(coord.NodeDeleted, "/e")
	quiet.wantClosed()
	if code, _ := lively.do(opExists, pathWatch("/e", false)); code != coord.ErrNoNode.Code {
		t.Fatalf("code %d", code)
	}
	if back := dial(t, s.Addr()).open(4000, quiet.session, quiet.password); back.session != 0 || back.timeout != 0 {
		t.Fatalf("an expired session came back: %+v", back)
	}
}

// Reattached, a session has its ephemerals; its watches must be set again, and what was missed fires before the reply.
func TestASessionComesBackWithItsPasswordAndFiresWhatItMissed(t *testing.T) {
	s := listen(t, Config{})
	a, b := dial(t, s.Addr()).open(4000, 0, nil), dial(t, s.Addr()).open(4000, 0, nil)
	for _, path := range []string{"/gone", "/set", "/same", "/parent"} {
		a.do(opCreate, createBody(path, "", 0))
	}
	a.do(opCreate, createBody("/mine", "", 1))
	a.send(opSync, appendString(nil, "/"))
	_, seen, _, _ := a.receive()
	a.nc.Close()
	b.do(opDelete, pathVersion("/gone", -1))
	b.do(opSetData, appendInt32(appendString(appendString(nil, "/set"), "new"), -1))
	b.do(opCreate, createBody("/parent/child", "", 0))
	b.do(opCreate, createBody("/new", "", 0))

	again := dial(t, s.Addr()).open(4000, a.session, a.password)
	if again.session != a.session || again.timeout != 4000 {
		t.Fatalf("came back as %x with %d ms, want %x", again.session, again.timeout, a.session)
	}
	w := appendInt64(nil, seen)
	w = appendStrings(w, []string{"/gone", "/set", "/same"})
	w = appendStrings(w, []string{"/new", "/never"})
	w = appendStrings(w, []string{"/parent", "/same"})
	again.send(opSetWatches, w)
	again.wantEvent(coord.NodeDeleted, "/gone")
	again.wantEvent(coord.NodeDataChanged, "/set")
	again.wantEvent(coord.NodeCreated, "/new")
	again.wantEvent(coord.NodeChildrenChanged, "/parent")
	if _, _, code, _ := again.receive(); code != 0 {
		t.Fatal(code)
	}
	b.do(opCreate, createBody("/same/child", "", 0))
	again.wantEvent(coord.NodeChildrenChanged, "/same")
	b.do(opSetData, appendInt32(appendString(appendString(nil, "/same"), "new"), -1))
	again.wantEvent(coord.NodeDataChanged, "/same")
	if code, _ := b.do(opExists, pathWatch("/mine", false)); code != 0 {
		t.Fatalf("the session's ephemeral is gone: %d", code)
	}
}

// A connection that was lost does not keep its watches: only setWatches brings them back.
func TestWatchesBelongToTheConnection(t *testing.T) {
	s := listen(t, Config{})
	a, b := dial(t, s.Addr()).open(4000, 0, nil), dial(t, s.Addr()).open(4000, 0, nil)
	a.do(opExists, pathWatch("/x", true))
	again := dial(t, s.Addr()).open(4000, a.session, a.password) // the old connection is still open
	a.wantClosed()
	b.do(opCreate, createBody("/x", "", 0))
	if code, _ := again.do(opExists, pathWatch("/x", false)); code != 0 { // the next frame is the reply, no event
		t.Fatal(code)
	}
}

func TestAWrongPasswordGetsNoSession(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	for _, password := range [][]byte{nil, make([]byte, 16), append(a.password[:15:15], a.password[15]^1), append(a.password[:16:16], 0)} {
		thief := dial(t, s.Addr()).open(4000, a.session, password)
		if thief.session != 0 {
			t.Fatalf("password %x opened the session", password)
		}
		thief.wantClosed()
	}
	if code, _ := a.do(opPing, nil); code != 0 {
		t.Fatal("the session suffered")
	}
}

func TestAPeerThatHasSeenALaterStateIsSentAway(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	late := dial(t, s.Addr())
	late.write(connectFrame(1<<40, 4000, a.session, a.password))
	late.wantClosed()
	if again := dial(t, s.Addr()).open(4000, a.session, a.password); again.session != a.session {
		t.Fatal("the session suffered")
	}
}

func TestAMultiIsAtomicAndEachOperationHasItsError(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	a.do(opCreate, createBody("/v", "", 0))
	multi := func(ops ...[]byte) []byte {
		return appendMultiHeader([]byte(strings.Join(toStrings(ops), "")), -1, true, -1)
	}
	op := func(kind int32, body []byte) []byte { return append(appendMultiHeader(nil, kind, false, -1), body...) }
	code, b := a.do(opMulti, multi(op(opCreate, createBody("/a", "", 0)), op(opCheck, pathVersion("/v", 7)), op(opDelete, pathVersion("/v", -1))))
	var got []int32
	for range 3 {
		kind, done := readMultiHeader(b)
		if kind != -1 || done {
			t.Fatalf("result of kind %d, done %v", kind, done)
		}
		got = append(got, b.int32())
	}
	if kind, done := readMultiHeader(b); kind != -1 || !done || b.err != nil || len(b.b) > 0 {
		t.Fatalf("bad end: %d %v %v, %d bytes left", kind, done, b.err, len(b.b))
	}
	if want := fmt.Sprint([]int32{0, -103, -2}); code != 0 || fmt.Sprint(got) != want {
		t.Fatalf("code %d results %v, want 0 and %s", code, got, want)
	}
	if code, _ := a.do(opExists, pathWatch("/a", false)); code != coord.ErrNoNode.Code {
		t.Fatal("the failed multi has left a node")
	}
	code, b = a.do(opMulti, multi(
		op(opCreate, createBody("/s-", "", 2)), op(opCreate2, createBody("/e", "data", 1)), op(opCheck, pathVersion("/v", 0)),
		op(opSetData, appendInt32(appendString(appendString(nil, "/v"), "new"), 0)), op(opDelete, pathVersion("/v", 1))))
	if code != 0 {
		t.Fatal(code)
	}
	kinds := []int32{opCreate, opCreate2, opCheck, opSetData, opDelete}
	for _, want := range kinds {
		if kind, done := readMultiHeader(b); kind != want || done {
			t.Fatalf("result of kind %d, want %d", kind, want)
		}
		switch want {
		case opCreate:
			if path := b.string(); path != "/s-0000000001" {
				t.Fatalf("created %q", path)
			}
		case opCreate2:
			if path := b.string(); path != "/e" {
				t.Fatalf("created %q", path)
			}
			b.take(68)
		case opSetData:
			b.take(68)
		}
	}
	if _, done := readMultiHeader(b); !done || b.err != nil || len(b.b) > 0 {
		t.Fatalf("bad end: %v, %d bytes left", b.err, len(b.b))
	}
}

func toStrings(bs [][]byte) (out []string) {
	for _, b := range bs {
		out = append(out, string(b))
	}
	return out
}

func TestAMultiReadGivesEachItsAnswer(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	a.do(opCreate, createBody("/v", "value", 0))
	var body []byte
	for _, q := range []struct {
		op   int32
		path string
	}{{opGetData, "/v"}, {opGetData, "/none"}, {opGetChildren, "/"}} {
		body = append(appendMultiHeader(body, q.op, false, -1), pathWatch(q.path, false)...)
	}
	code, b := a.do(opMultiRead, appendMultiHeader(body, -1, true, -1))
	k1, _ := readMultiHeader(b)
	data := b.string()
	b.take(68)
	k2, _ := readMultiHeader(b)
	missing := b.int32()
	k3, _ := readMultiHeader(b)
	names := b.strings()
	_, done := readMultiHeader(b)
	if code != 0 || k1 != opGetData || data != "value" || k2 != opError || missing != -101 || k3 != opGetChildren || fmt.Sprint(names) != "[v]" || !done || b.err != nil {
		t.Fatal(code, k1, data, k2, missing, k3, names, done, b.err)
	}
}

func TestAccessListsAreAlwaysTheWholeWorlds(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	if code, _ := a.do(opAuth, appendString(appendString(appendInt32(nil, 0), "digest"), "user:pass")); code != 0 {
		t.Fatal(code)
	}
	a.do(opCreate, createBody("/v", "", 0))
	set := appendInt32(appendString(nil, "/v"), 1)
	set = appendInt32(appendString(appendString(appendInt32(set, 1), "digest"), "user:pass"), -1)
	if code, _ := a.do(opSetACL, set); code != 0 {
		t.Fatal(code)
	}
	code, b := a.do(opGetACL, appendString(nil, "/v"))
	if n, perms, scheme, id := b.int32(), b.int32(), b.string(), b.string(); code != 0 || n != 1 || perms != 31 || scheme != "world" || id != "anyone" {
		t.Fatal(code, n, perms, scheme, id)
	}
	noACL := appendInt32(appendInt32(appendString(appendString(nil, "/w"), ""), 0), 0)
	if code, _ := a.do(opCreate, noACL); code != codeInvalidACL {
		t.Fatal(code)
	}
}

func TestUnknownAndDamagedRequestsAreAnsweredAndTheSessionGoesOn(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	for _, c := range []struct {
		op   int32
		body []byte
		want int32
	}{
		{77, nil, codeUnimplemented}, {-1, nil, codeUnimplemented}, {0, nil, codeUnimplemented}, {106, pathWatch("/", true), codeUnimplemented},
		{opGetData, nil, codeMarshalling},
		{opGetData, appendInt32(nil, -2), codeMarshalling},
		{opCreate, appendString(appendString(nil, "/x"), ""), codeMarshalling},
		{opCreate, createBody("/x", "", 4), codeUnimplemented},
		{opMulti, appendMultiHeader(nil, opGetData, false, -1), codeUnimplemented},
		{opMulti, []byte{1}, codeMarshalling},
		{opSetWatches, appendInt32(appendInt64(nil, 0), 1<<30), codeMarshalling},
		{opGetData, pathWatch("no/slash", false), codeBadArguments},
		{opDelete, pathVersion("/", -1), codeBadArguments},
	} {
		if code, _ := a.do(c.op, c.body); code != c.want {
			t.Errorf("operation %d with %q: code %d, want %d", c.op, c.body, code, c.want)
		}
	}
	if code, _ := a.do(opPing, nil); code != 0 {
		t.Fatal(code)
	}
}

func TestAFrameOverTheLimitEndsTheConnectionAndTheLimitItselfDoesNot(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	room := frameBytesMax - 8 - len(createBody("/big", "", 0))
	if code, _ := a.do(opCreate, createBody("/big", strings.Repeat("x", min(room, coord.DataBytesMax)), 0)); code != 0 {
		t.Fatal(code)
	}
	a.sendTooMuch(opCreate, createBody("/bigger", strings.Repeat("x", room+1), 0))
	a.wantClosed()
	again := dial(t, s.Addr()).open(4000, a.session, a.password)
	if code, _ := again.do(opExists, pathWatch("/bigger", false)); code != coord.ErrNoNode.Code {
		t.Fatal(code)
	}
	again.send(77, make([]byte, frameBytesMax-8))
	if _, _, code, _ := again.receive(); code != codeUnimplemented { // so the limit itself is let through
		t.Fatal(code)
	}
	again.sendTooMuch(77, make([]byte, frameBytesMax-7))
	again.wantClosed()
	for _, head := range []int32{-1, frameBytesMax + 1, 1 << 30} {
		b := dial(t, s.Addr())
		_, _ = b.nc.Write(appendInt32(nil, head))
		b.wantClosed()
	}
}

func TestClosingASessionAnswersAndTakesItsEphemeralsAlong(t *testing.T) {
	s := listen(t, Config{})
	a, b := dial(t, s.Addr()).open(4000, 0, nil), dial(t, s.Addr()).open(4000, 0, nil)
	a.do(opCreate, createBody("/e", "", 1))
	if code, _ := a.do(opCloseSession, nil); code != 0 {
		t.Fatal(code)
	}
	a.wantClosed()
	if code, _ := b.do(opExists, pathWatch("/e", false)); code != coord.ErrNoNode.Code {
		t.Fatal(code)
	}
	if back := dial(t, s.Addr()).open(4000, a.session, a.password); back.session != 0 {
		t.Fatal("a closed session came back")
	}
}

// Far more requests than may be in flight, none of their answers read before the last was sent.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	const n = 20 * requestsInFlightMax
	for range n {
		a.send(opCreate, createBody("/n-", "", 2))
	}
	for i := range n {
		xid, _, code, b := a.receive()
		if path := b.string(); xid != int32(i+1) || code != 0 || path != fmt.Sprintf("/n-%010d", i) {
			t.Fatalf("reply %d: xid %d code %d path %q", i, xid, code, path)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := listen(t, Config{ConnectionsMax: 2})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	dial(t, s.Addr()).open(4000, 0, nil)
	dial(t, s.Addr()).wantClosed()
	if code, _ := a.do(opPing, nil); code != 0 {
		t.Fatal(code)
	}
}

func TestFourLetterWords(t *testing.T) {
	s := listen(t, Config{})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	a.do(opCreate, createBody("/e", "", 1))
	for word, want := range map[string]string{
		"ruok": "imok", "isro": "rw", "srvr": "Mode: standalone\nNode count: 2\n", "stat": "Clients:\n /127.0.0.1:",
		"mntr": "zk_ephemerals_count\t1\n", "conf": "tickTime=2000\n", "kill": "kill is not executed because it is not in the whitelist.\n",
	} {
		c := dial(t, s.Addr())
		_, _ = c.nc.Write([]byte(word))
		b, err := io.ReadAll(c.nc)
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v %q", word, err, b)
		}
	}
}
