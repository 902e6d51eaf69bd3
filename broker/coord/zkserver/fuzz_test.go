package zkserver

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// FuzzRequests feeds a session's frames to the core: every frame with a header gets one reply or
// ends the connection, every reply is well formed, and the tree's journal form can be read back.
func FuzzRequests(f *testing.F) {
	seed := func(frames ...[]byte) {
		var all []byte
		for _, b := range frames {
			all = append(appendInt32(all, int32(len(b))), b...)
		}
		f.Add(all)
	}
	frame := func(op int32, body []byte) []byte { return append(appendInt32(appendInt32(nil, 1), op), body...) }
	seed(frame(opCreate, createBody("/a", "data", 3)), frame(opGetData, pathWatch("/a0000000000", true)), frame(opDelete, pathVersion("/a0000000000", -1)))
	seed(frame(opMulti, appendMultiHeader(append(appendMultiHeader(nil, opCreate2, false, -1), createBody("/b", "", 0)...), -1, true, -1)))
	seed(frame(opMultiRead, appendMultiHeader(append(appendMultiHeader(nil, opGetChildren, false, -1), pathWatch("/", false)...), -1, true, -1)))
	seed(frame(opSetWatches, appendStrings(appendStrings(appendStrings(appendInt64(nil, 0), []string{"/a"}), nil), nil)), frame(opCloseSession, nil))
	seed(frame(opSetACL, appendInt32(appendWorldACL(appendString(nil, "/")), -1)), frame(opGetACL, appendString(nil, "/")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s stats
		c := &core{
			tree: coord.NewTree(), secret: []byte("secret"), log: slog.New(slog.DiscardHandler), stats: &s,
			now: func() time.Duration { return 0 }, wall: func() time.Time { return time.Unix(1, 0) }, sessions: map[coord.SessionID]*conn{},
		}
		peer := &conn{}
		c.connect(peer, connectRequest{timeoutMs: 4000})
		peer.held = nil
		for len(b) >= 4 && !peer.finished {
			n := min(int(binary.BigEndian.Uint32(b)), len(b)-4)
			q, err := decodeRequest(b[4 : 4+n])
			b = b[4+n:]
			if err != nil {
				return
			}
			before := peer.heldN
			c.do(item{conn: peer, req: q})
			replies := countReplies(t, peer.held, q.xid)
			if peer.heldN != before+1 || replies > 1 || replies == 0 && !peer.finished {
				t.Fatalf("%d replies, connection finished: %v", replies, peer.finished)
			}
			peer.held = nil
		}
	})
}

// countReplies walks through output frames, which must be whole.
func countReplies(t *testing.T, b []byte, xid int32) (n int) {
	for len(b) > 0 {
		if len(b) < 20 || int(binary.BigEndian.Uint32(b)) > len(b)-4 {
			t.Fatalf("%d bytes are no frame", len(b))
		}
		size := 4 + int(binary.BigEndian.Uint32(b))
		r := juteReader{b: b[4:size]}
		got, zxid := r.int32(), r.int64()
		if got == xid && !(got == xidEvent && zxid == -1) {
			n++
		}
		b = b[size:]
	}
	return n
}

// FuzzConnect: whatever the first frame is, it opens at most a session of its own.
func FuzzConnect(f *testing.F) {
	f.Add(connectFrame(0, 4000, 0, make([]byte, 16)))
	f.Add(append(connectFrame(1<<50, -1, 1, nil), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeConnect(b)
		if err == nil && len(q.password) > len(b) {
			t.Fatalf("password of %d bytes in a frame of %d", len(q.password), len(b))
		}
	})
}

// Peers that write rubbish, break off, or stop reading neither stop the server nor disturb another's session.
func TestHostilePeersDisturbNobody(t *testing.T) {
	s := listen(t, Config{})
	good := dial(t, s.Addr()).open(4000, 0, nil)
	rng := rand.New(rand.NewPCG(4, 5))
	for i := range 300 {
		bad := dial(t, s.Addr())
		var b []byte
		if rng.IntN(4) > 0 {
			b = append(appendInt32(b, 44), connectFrame(0, 4000, 0, make([]byte, 16))...)
		}
		for range rng.IntN(5) {
			body := make([]byte, rng.IntN(60))
			for j := range body {
				body[j] = byte(rng.Uint32())
			}
			op := int32(rng.IntN(30)) - 12
			length := int32(8 + len(body))
			if rng.IntN(4) == 0 {
				length = int32(rng.Uint32())
			}
			b = append(appendInt32(appendInt32(appendInt32(b, length), int32(i)), op), body...)
		}
		b = b[:len(b)-rng.IntN(len(b)/8+1)]
		_, _ = bad.nc.Write(b)
		if rng.IntN(2) == 0 {
			bad.nc.Close()
		}
		if code, _ := good.do(opSetData, append(appendString(appendString(nil, "/"), bytes.Repeat([]byte{1}, i)), 255, 255, 255, 255)); code != 0 {
			t.Fatalf("code %d", code)
		}
	}
}

// A peer that asks and asks and never reads is stopped by the bounds, and the others go on.
func TestAPeerThatNeverReadsIsHeldBack(t *testing.T) {
	s := listen(t, Config{})
	good := dial(t, s.Addr()).open(4000, 0, nil)
	good.do(opCreate, createBody("/big", string(make([]byte, 1<<19)), 0))
	deaf := dial(t, s.Addr()).open(4000, 0, nil)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		ask := append(appendInt32(appendInt32(nil, 1), opGetData), pathWatch("/big", false)...)
		ask = append(appendInt32(nil, int32(len(ask))), ask...)
		for range 100_000 { // 50 GB, were it answered
			if _, err := deaf.nc.Write(ask); err != nil {
				return
			}
		}
	}()
	var output int64
	for range 300 {
		if code, _ := good.do(opGetData, pathWatch("/big", false)); code != 0 {
			t.Fatal(code)
		}
		output = max(output, s.stats.output.Load())
	}
	if limit := int64(outputBytesPause + requestsInFlightMax<<19 + 1<<20); output > limit {
		t.Errorf("%d bytes of output waited, the bound is %d", output, limit)
	}
	deaf.nc.Close()
	<-asked
}
