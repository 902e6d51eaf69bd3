package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/storage"
)

// A shuffler answers requests later, from other goroutines, in an order of its own.
type shuffler struct {
	mu   sync.Mutex
	rng  *rand.Rand
	held []func()
}

func (s *shuffler) handle(r broker.Request, reply broker.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func() { echo(r, reply) }
	switch s.rng.IntN(3) {
	case 0: // inside Handle
		answer()
	case 1: // from another goroutine, perhaps while Handle runs
		go answer()
	default: // later, in any order
		s.held = append(s.held, answer)
	}
	if len(s.held) > s.rng.IntN(10) {
		s.rng.Shuffle(len(s.held), func(i, j int) { s.held[i], s.held[j] = s.held[j], s.held[i] })
		go func(held []func()) {
			for _, f := range held {
				f()
			}
		}(s.held)
		s.held = nil
	}
}

// misordered says where responses differ from the order of the requests 0, 1, 2, …
func misordered(ids []int32) error {
	for i, id := range ids {
		if id != int32(i) {
			return fmt.Errorf("response %d has correlation id %d", i, id)
		}
	}
	return nil
}

func TestResponsesKeepTheOrderOfRequests(t *testing.T) {
	s := &shuffler{rng: rand.New(rand.NewPCG(3, 4))}
	w := start(t, Options{CrashOnPanic: true}, s.handle)
	const requests = 4000
	var clients sync.WaitGroup
	for range 4 {
		c := w.dial(t)
		clients.Go(func() {
			go func() {
				req := kmsg.NewPtrMetadataRequest()
				for i := range int32(requests) {
					if _, err := c.Write(encode(req, i)); err != nil {
						return
					}
				}
			}()
			var ids []int32
			for range requests - 10 { // the last few may be held for ever
				frame, err := c.next()
				if err != nil {
					t.Error(err)
					return
				}
				ids = append(ids, int32(binary.BigEndian.Uint32(frame)))
			}
			if err := misordered(ids); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
}

func TestMisorderIsNoticed(t *testing.T) { // the check above, against a planted fault
	if misordered([]int32{0, 1, 3, 2}) == nil || misordered([]int32{0, 1, 2, 3}) != nil {
		t.Error("the order check checks nothing")
	}
}

func TestSilentAnswersSendNothingAndCloseAnswersClose(t *testing.T) {
	w := start(t, Options{}, func(r broker.Request, reply broker.Reply) {
		switch body := r.Body.(type) {
		case *kmsg.ProduceRequest:
			reply(broker.Answer{Silent: true, Close: body.TimeoutMillis == 1})
		default:
			echo(r, reply)
		}
	})
	c := w.dial(t)
	produce := kmsg.NewPtrProduceRequest()
	produce.TimeoutMillis = 0
	c.send(produce, 1)
	c.mustServe()
	produce.TimeoutMillis = 1
	c.send(produce, 2)
	c.mustBeClosed()
}

func TestUnknownRequestsAreTreatedAsKafkaDoes(t *testing.T) {
	w := start(t, Options{}, echo)
	c := w.dial(t)
	c.Write(append([]byte{0, 0, 0, 10}, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff)) // ApiVersions v99
	id, body := c.receive()
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(body); err != nil || id != 7 || resp.ErrorCode != 35 {
		t.Fatalf("id %d, error code %d, %v", id, resp.ErrorCode, err)
	}
	if k := resp.ApiKeys; len(k) != 1 || k[0].ApiKey != 18 || k[0].MaxVersion != 3 {
		t.Errorf("offered %+v, want ApiVersions to version 3", k)
	}
	c.mustServe() // it goes on
	c.Write(append([]byte{0, 0, 0, 10}, 0x03, 0xe7, 0, 0, 0, 0, 0, 7, 0xff, 0xff))
	c.mustBeClosed()
	if got := w.logs.String(); !strings.Contains(got, "api key 999") {
		t.Errorf("log: %s", got)
	}
}

func TestApiVersionsResponseHeaderIsNeverFlexible(t *testing.T) {
	w := start(t, Options{}, echo)
	c := w.dial(t)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 3
	c.send(req, 1)
	_, body := c.receive()
	if want := req.ResponseKind().AppendTo(nil); !bytes.Equal(body, want) {
		t.Errorf("body %x, want %x and no tags before it", body, want)
	}
}

func TestHostileConnectionsHarmNobodyElse(t *testing.T) {
	w := start(t, Options{RequestBytesMax: 1 << 20, CrashOnPanic: true}, echo)
	healthy := w.dial(t)
	produce := kmsg.NewPtrProduceRequest()
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 5000)}}}}
	good := encode(produce, 9)
	for name, attack := range map[string]struct {
		bytes  []byte
		closes bool // the server closes; otherwise it waits for more
	}{
		"oversized":         {[]byte{0, 16, 0, 1, 0, 0}, true},
		"two gigabytes":     {[]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1}, true},
		"negative length":   {[]byte{0xff, 0xff, 0xff, 0xff, 0, 0}, true},
		"tiny length":       {[]byte{0, 0, 0, 1, 0}, true},
		"an HTTP request":   {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), true},
		"a TLS hello":       {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, true},
		"truncated":         {good[:len(good)/2], false},
		"a length and less": {good[:6], false},
		"garbage in a frame": {append([]byte{0, 0, 0, 40, 0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff},
			bytes.Repeat([]byte{0x11}, 30)...), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial(t)
			c.t = t
			c.Write(attack.bytes)
			if attack.closes {
				c.mustBeClosed()
			} else {
				c.Close()
			}
			healthy.mustServe()
		})
	}
	t.Run("bit flips", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			c := w.dial(t)
			b := slices.Clone(good)
			for range 1 + rng.IntN(4) {
				i := rng.IntN(min(len(b), 80)) // mostly headers and lengths
				b[i] ^= 1 << rng.IntN(8)
			}
			c.Write(b)
			c.Close()
		}
		healthy.mustServe()
	})
}

func TestConnectionStormStaysAtTheLimit(t *testing.T) {
	w := start(t, Options{ConnectionsMax: 50}, echo)
	healthy := w.dial(t)
	healthy.mustServe()
	for range 500 {
		w.dial(t)
	}
	over := w.dial(t)
	over.mustBeClosed()
	healthy.mustServe()
	if n := len(w.connections()); n > 50 {
		t.Errorf("%d connections are open", n)
	}
	if got := w.logs.String(); !strings.Contains(got, "max.connections=50") {
		t.Errorf("no line says why: %s", got)
	}
	if lines := strings.Count(w.logs.String(), "\n"); lines > 3*logLinesMax {
		t.Errorf("%d log lines for 450 refused connections", lines)
	}
}

// fetchOf answers a fetch with one region between a head and a tail.
func fetchOf(r storage.Region) func(broker.Request, broker.Reply) {
	return func(req broker.Request, reply broker.Reply) {
		if _, ok := req.Body.(*kmsg.FetchRequest); !ok {
			echo(req, reply)
			return
		}
		reply(broker.Answer{Fetch: &broker.FetchAnswer{
			Parts: []broker.FetchPart{{Head: []byte("head")}, {Head: []byte("er"), Region: r}, {Head: []byte("between"), Region: r}},
			Tail:  []byte("tail"),
		}})
	}
}

func testFile(t testing.TB, size int) (osFile, []byte) {
	t.Helper()
	data := make([]byte, size)
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	name := filepath.Join(t.TempDir(), "segment.log")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return osFile{f: f}, data
}

func TestEveryTransferDeliversTheRegion(t *testing.T) {
	file, data := testFile(t, 9<<20)
	for _, how := range []storage.Transfer{storage.TransferSendfile, storage.TransferCopy, storage.TransferMmap, "memory"} {
		for _, at := range []struct{ pos, n int }{{0, 1}, {4095, 2}, {123, 100_000}, {1 << 20, 8 << 20}} {
			t.Run(fmt.Sprint(how, at), func(t *testing.T) {
				region := storage.Region{File: file, Pos: int64(at.pos), Len: at.n}
				want := data[at.pos : at.pos+at.n]
				o := Options{Transfer: how}
				if how == "memory" {
					region, o.Transfer = storage.Region{Bytes: want, Len: at.n}, storage.TransferCopy
				}
				w := start(t, o, fetchOf(region))
				c := w.dial(t)
				c.send(kmsg.NewPtrFetchRequest(), 4)
				_, body := c.receive()
				if !bytes.Equal(body, slices.Concat([]byte("header"), want, []byte("between"), want, []byte("tail"))) {
					t.Error("the bytes differ")
				}
				if s := w.counters.Snapshot(); s.Delivered != 2*int64(at.n) {
					t.Errorf("delivered %d bytes, counted %d", 2*at.n, s.Delivered)
				}
				c.mustServe()
			})
		}
	}
}

func TestAShortFileClosesTheConnectionAlone(t *testing.T) {
	file, _ := testFile(t, 1000)
	for _, how := range []storage.Transfer{storage.TransferSendfile, storage.TransferCopy, storage.TransferMmap} {
		w := start(t, Options{Transfer: how}, fetchOf(storage.Region{File: file, Pos: 900, Len: 64 << 10}))
		healthy, c := w.dial(t), w.dial(t)
		c.send(kmsg.NewPtrFetchRequest(), 4)
		if frame, err := c.next(); err == nil {
			t.Errorf("%s: an answer of %d bytes came from a file that lacks them", how, len(frame))
		}
		healthy.mustServe()
	}
}

func TestAClientThatNeverReadsIsClosed(t *testing.T) {
	file, _ := testFile(t, 8<<20)
	for _, how := range []storage.Transfer{storage.TransferSendfile, storage.TransferCopy, storage.TransferMmap} {
		w := start(t, Options{Transfer: how, StallMax: time.Hour, IdleMax: 1e6 * time.Hour, SendBuffer: 32 << 10}, fetchOf(storage.Region{File: file, Len: 8 << 20}))
		healthy, c := w.dial(t), w.dialSilent(t)
		for i := range int32(20) {
			c.send(kmsg.NewPtrFetchRequest(), i)
		}
		waitFor(t, "an answer under way", func() bool { return w.bytesWritten() > 0 })
		w.closeAfter(t, time.Hour, 1)
		healthy.mustServe()
		if got := w.logs.String(); !strings.Contains(got, errStalled.Error()) {
			t.Errorf("log: %s", got)
		}
	}
}

// waitFor polls a condition that another goroutine brings about and nothing announces.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestHalfALargeRequestIsDroppedAndItsMemoryGoesToOthers(t *testing.T) {
	w := start(t, Options{StallMax: time.Hour, IdleMax: 1e6 * time.Hour, BufferBytesMax: 3 << 19}, echo)
	produce := kmsg.NewPtrProduceRequest()
	produce.Topics = []kmsg.ProduceRequestTopic{{Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 700<<10)}}}}
	large := encode(produce, 1)
	hog, other := w.dial(t), w.dial(t)
	hog.Write(large[:600<<10]) // holds all the memory there is
	waitFor(t, "the hog's buffer", func() bool { return w.buffers.lent.Load() == 1<<20 })
	go other.Write(large)
	waitFor(t, "the other to wait for memory", func() bool { return w.buffers.waiting.Load() == 1 })
	w.closeAfter(t, time.Hour, 1)
	hog.mustBeClosed()
	if id, _ := other.receive(); id != 1 {
		t.Errorf("correlation id %d", id)
	}
	if got := w.logs.String(); !strings.Contains(got, errPartial.Error()) {
		t.Errorf("log: %s", got)
	}
}

func TestReadingStopsAtTheBoundOfRequestsInFlight(t *testing.T) {
	var mu sync.Mutex
	var held []func()
	w := start(t, Options{}, func(r broker.Request, reply broker.Reply) {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, func() { echo(r, reply) })
	})
	c := w.dial(t)
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(held) }
	for i := range int32(3 * 64) {
		c.send(kmsg.NewPtrMetadataRequest(), i)
	}
	waitFor(t, "the bound", func() bool { return count() == 64 })
	answered := 0
	for answered < 3*64 {
		mu.Lock()
		if len(held) > 64 {
			t.Errorf("%d requests in flight", len(held))
		}
		now := held
		held = nil
		mu.Unlock()
		for _, f := range now {
			f()
			c.receive()
			answered++
		}
	}
}

func TestIdleConnectionsAreClosedAndBusyOnesAreNot(t *testing.T) {
	release := make(chan func(), 1)
	w := start(t, Options{IdleMax: time.Hour}, func(r broker.Request, reply broker.Reply) {
		release <- func() { echo(r, reply) }
	})
	idle, polling := w.dial(t), w.dial(t)
	polling.send(kmsg.NewPtrMetadataRequest(), 1)
	answer := <-release
	w.closeAfter(t, time.Hour, 1)
	idle.mustBeClosed()
	answer() // a long poll outlives the idle limit
	if id, _ := polling.receive(); id != 1 {
		t.Errorf("correlation id %d", id)
	}
	w.closeAfter(t, time.Hour, 0)
	polling.mustBeClosed()
}

func TestTheSweepersFirstLookClosesNobody(t *testing.T) {
	asked := make(chan struct{})
	w := start(t, Options{}, func(r broker.Request, reply broker.Reply) {
		if r.Body.(*kmsg.MetadataRequest).AllowAutoTopicCreation { // a long poll
			close(asked)
			return
		}
		echo(r, reply)
	})
	c := w.dial(t)
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 4, true
	c.send(req, 1)
	<-asked
	req.AllowAutoTopicCreation = false
	c.send(req, 2)
	waitFor(t, "an answer behind the poll", w.answerWaits)
	if err := w.connections()[0].overdue(time.Now()); err != nil {
		t.Error(err)
	}
}

func TestAnAnswerDoesNotWaitForEverBehindALongPoll(t *testing.T) {
	w := start(t, Options{IdleMax: time.Hour}, func(r broker.Request, reply broker.Reply) {
		if r.Body.(*kmsg.MetadataRequest).AllowAutoTopicCreation { // the long poll: no answer
			return
		}
		echo(r, reply)
	})
	c := w.dial(t)
	poll := kmsg.NewPtrMetadataRequest()
	poll.Version, poll.AllowAutoTopicCreation = 4, true
	c.send(poll, 1)
	poll.AllowAutoTopicCreation = false
	c.send(poll, 2)
	waitFor(t, "an answer behind the poll", w.answerWaits)
	w.closeAfter(t, time.Hour, 0)
	c.mustBeClosed()
}

func TestAPanicCostsOneConnectionAndIsCounted(t *testing.T) {
	w := start(t, Options{}, func(r broker.Request, reply broker.Reply) {
		if _, ok := r.Body.(*kmsg.ProduceRequest); ok {
			var none []int
			_ = none[len(r.ClientID)]
		}
		echo(r, reply)
	})
	healthy, c := w.dial(t), w.dial(t)
	c.send(kmsg.NewPtrProduceRequest(), 1)
	c.mustBeClosed()
	healthy.mustServe()
	if s := w.Snapshot(0, Status{}); s.Panics != 1 || !strings.Contains(w.logs.String(), "goroutine") {
		t.Errorf("%d panics counted; log: %s", s.Panics, w.logs.String())
	}
}

func TestABrokenInvariantIsNotRecovered(t *testing.T) {
	w := start(t, Options{}, echo)
	w.handler.handle = func(broker.Request, broker.Reply) { panic("BUG: planted") }
	c := &conn{server: w.Server}
	defer func() {
		if recover() == nil {
			t.Error("a BUG panic was swallowed")
		}
	}()
	c.handle(broker.Request{}, &pending{pipe: newPipeline(1, 1, nil, nil)})
}

func TestASecondReplyIsABug(t *testing.T) {
	p := newPipeline(9, 99, func([]*pending) error { return nil }, func(error) {})
	q := &pending{}
	p.admit(q)
	q.reply(broker.Answer{Silent: true})
	defer func() {
		if recover() == nil {
			t.Error("a second reply went unnoticed")
		}
	}()
	q.reply(broker.Answer{Silent: true})
}

func TestDrainAnswersWhatWasAsked(t *testing.T) {
	held := make(chan func(), 10)
	w := start(t, Options{}, func(r broker.Request, reply broker.Reply) { held <- func() { echo(r, reply) } })
	idle, asking := w.dial(t), w.dial(t)
	asking.send(kmsg.NewPtrMetadataRequest(), 1)
	asking.send(kmsg.NewPtrMetadataRequest(), 2)
	first, second := <-held, <-held
	w.Drain()
	idle.mustBeClosed()
	if nc, err := net.Dial("tcp", w.addr); err == nil {
		nc.Close()
		t.Error("a draining server accepts")
	}
	second()
	first()
	for want := range int32(2) {
		if id, _ := asking.receive(); id != want+1 {
			t.Errorf("correlation id %d, want %d", id, want+1)
		}
	}
	asking.mustBeClosed()
	if err := w.WaitDrained(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestAClientThatHasGoneBehindEndlessLongPollsIsNoticed: at the bound of requests in flight nobody reads, so the end of the stream is
// not come to. A client that is there waits as long as it likes.
func TestAClientThatHasGoneBehindEndlessLongPollsIsNoticed(t *testing.T) {
	w := start(t, Options{StallMax: time.Hour, IdleMax: 1e6 * time.Hour, InFlightMax: 4}, func(broker.Request, broker.Reply) {})
	gone, here := w.dial(t), w.dial(t)
	for i := range int32(6) {
		gone.send(kmsg.NewPtrFetchRequest(), i)
		here.send(kmsg.NewPtrFetchRequest(), i)
	}
	waitFor(t, "both to be at the bound", func() bool {
		for _, c := range w.connections() {
			if !c.pipe.state().admitting {
				return false
			}
		}
		return len(w.connections()) == 2
	})
	gone.Close()
	w.closeAfter(t, time.Hour, 1)
	for now := time.Now().Add(1e4 * time.Hour); now.Before(time.Now().Add(2e4 * time.Hour)); now = now.Add(1e3 * time.Hour) {
		w.sweep(now)
	}
	if left := w.connections(); len(left) != 1 || left[0].remote != here.LocalAddr().String() {
		t.Errorf("%d connections are left", len(left))
	}
	if got := w.logs.String(); !strings.Contains(got, errGone.Error()) {
		t.Errorf("log: %s", got)
	}
}
