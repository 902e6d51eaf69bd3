package zkserver

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// tellingConn says when a write of more than a few bytes begins.
type tellingConn struct {
	net.Conn
	began chan int
}

func (c tellingConn) Write(b []byte) (int, error) {
	if len(b) > 1<<10 {
		c.began <- len(b)
	}
	return c.Conn.Write(b)
}

// What has been handed to the system and is not taken by the peer is still memory of the server.
func TestOutputCountsUntilItIsWritten(t *testing.T) {
	s := listen(t, Config{})
	dial(t, s.Addr()).open(4000, 0, nil).do(opCreate, createBody("/big", strings.Repeat("x", 1<<19), 0))
	for s.stats.output.Load() != 0 { // a peer may have its answer before the writer has counted it off
		runtime.Gosched()
	}
	here, there := net.Pipe() // without a buffer of its own
	began := make(chan int, 1)
	s.start(newConn(s.Server, tellingConn{there, began}))
	deaf := (&rawConn{t: t, nc: here}).open(4000, 0, nil)
	deaf.send(opGetData, pathWatch("/big", false))
	size := <-began // and the peer does not read
	if got := s.stats.output.Load(); got != int64(size) {
		t.Errorf("%d bytes of output are counted, %d are being written", got, size)
	}
	here.Close()
}

// Many long answers at once end the batch, so that a peer which does not read is seen before they are all there.
func TestABatchHoldsNoMoreOutputThanItsBound(t *testing.T) {
	s := listen(t, Config{})
	peer := dial(t, s.Addr()).open(4000, 0, nil)
	const answer = 1 << 19
	peer.do(opCreate, createBody("/big", strings.Repeat("x", answer), 0))
	var c *conn
	s.call(func() { c = s.core.sessions[peer.session] })
	let, most := make(chan struct{}), 0
	s.submit(item{call: func() { <-let }})
	for range 3 * batchOutputMax / answer {
		s.submit(item{conn: c, req: request{op: opGetData, path: "/big"}})
		s.submit(item{call: func() { most = max(most, len(c.held)) }})
	}
	close(let)
	s.call(func() {})
	if most < answer || most > batchOutputMax+answer+1<<10 {
		t.Errorf("a batch held %d bytes, the bound is %d", most, batchOutputMax)
	}
}

// A few watches on long paths take as much memory as many on short ones.
func TestThePathsThatAConnectionWatchesAreBoundedInBytes(t *testing.T) {
	s := listen(t, Config{})
	peer := dial(t, s.Addr()).open(4000, 0, nil)
	const length = 1 << 19
	for i := range watchBytesMax / length {
		path := "/" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + strings.Repeat("x", length-3)
		if code, _ := peer.do(opExists, pathWatch(path, true)); code != coord.ErrNoNode.Code {
			t.Fatalf("watch %d: code %d", i, code)
		}
		if code, _ := peer.do(opExists, pathWatch(path, true)); code != coord.ErrNoNode.Code { // again: that is none more
			t.Fatalf("watch %d again: code %d", i, code)
		}
	}
	peer.do(opExists, pathWatch("/one-more", true))
	peer.wantClosed()
	s.call(func() {}) // its end has arrived before
	other := dial(t, s.Addr()).open(4000, 0, nil)
	if code, _ := other.do(opPing, nil); code != 0 {
		t.Fatal(code)
	}
}

// Who fills the server is refused, keeps its session, and may go on when there is room again; a restart reads it all.
func TestAFullServerRefusesWhatGrowsAndGoesOn(t *testing.T) {
	cfg := Config{Disk: simDisk(), Dir: "zk", noTick: true, now: func() time.Duration { return 0 }, treeMax: 100 << 10}
	s, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	peer := dial(t, s.Addr()).open(4000, 0, nil)
	kept, code := 0, int32(0)
	for ; kept < 1000 && code == 0; kept++ {
		code, _ = peer.do(opCreate, createBody(fmt.Sprint("/", kept), strings.Repeat("x", 1<<10), 0))
	}
	if kept--; code != coord.ErrQuotaExceeded.Code {
		t.Fatalf("after %d nodes: code %d", kept, code)
	}
	multi := appendMultiHeader(nil, opDelete, false, -1)
	multi = appendMultiHeader(append(multi, pathVersion("/0", -1)...), opCreate, false, -1)
	multi = appendMultiHeader(append(multi, createBody("/new", strings.Repeat("x", 1<<10), 0)...), opError, true, -1)
	if code, _ := peer.do(opMulti, multi); code != 0 {
		t.Fatalf("a change that makes its own room: code %d", code)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := listen(t, cfg)
	if n := again.core.tree.Len(); n != kept+1 {
		t.Errorf("%d nodes after the restart, want %d", n, kept+1)
	}
}
