package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

// garbler is a proxy before one broker: it is where clients and other brokers are told to
// connect. Clients get every answer as it is; other brokers get garbage while it is switched on.
type garbler struct {
	t  *testing.T
	l  net.Listener
	to string

	mu    sync.Mutex
	on    bool
	rng   *rand.Rand
	given map[string]int // garbage of each kind
}

// The kinds of garbage.
const (
	flippedRecords = "flipped records" // of a fetch
	noise          = "noise"
	otherRequest   = "another request's"
	endlessLength  = "endless"
	cutOff         = "cut off"
)

func newGarbler(t *testing.T, to string) *garbler {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	g := &garbler{t: t, l: l, to: to, rng: rand.New(rand.NewPCG(5, 6)), given: map[string]int{}}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(in)
		}
	}()
	return g
}

func (g *garbler) addr() string { return g.l.Addr().String() }

func (g *garbler) set(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on, g.given = on, map[string]int{}
}

// counts says how often each kind was given since it was switched on.
func (g *garbler) counts() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.given)
}

// asked is what an answer depends on.
type asked struct {
	key        int16
	fromBroker bool
}

// serve passes on what one connection brings. Answers come in the order of the requests.
func (g *garbler) serve(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", g.to)
	if err != nil {
		return // as if nobody listened
	}
	defer out.Close()
	waiting := make(chan asked, 1000)
	go func() {
		defer out.Close()
		for {
			b, err := readFrame(in)
			if err != nil {
				return
			}
			n := int(binary.BigEndian.Uint16(b[12:]))
			waiting <- asked{int16(binary.BigEndian.Uint16(b[4:])), n != 1<<16-1 && string(b[14:14+n]) == "broker"}
			if _, err := out.Write(b); err != nil {
				return
			}
		}
	}()
	for {
		b, err := readFrame(out)
		if err != nil {
			return
		}
		b, open := g.spoil(<-waiting, b)
		if _, err := in.Write(b); err != nil || !open {
			return
		}
	}
}

// readFrame gives a request or an answer, with its length before it.
func readFrame(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	b := append(head[:], make([]byte, binary.BigEndian.Uint32(head[:]))...)
	_, err := io.ReadFull(c, b[4:])
	return b, err
}

// spoil makes garbage of an answer, if it is a broker's to have it, and says whether the connection stays.
func (g *garbler) spoil(to asked, b []byte) ([]byte, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.on || !to.fromBroker {
		return b, true
	}
	kinds := []string{noise, otherRequest, endlessLength, cutOff}
	if to.key == int16(kmsg.Fetch) {
		kinds = append(kinds, flippedRecords, flippedRecords)
	}
	kind := kinds[g.rng.IntN(len(kinds))]
	open := true
	switch kind {
	case noise:
		copy(b[8:], bytes.Repeat([]byte{0xff}, len(b)))
	case otherRequest:
		b[4+g.rng.IntN(4)] ^= 1 << g.rng.IntN(8)
	case endlessLength:
		binary.BigEndian.PutUint32(b, 1<<31-1)
	case cutOff:
		b, open = b[:len(b)/2], false
	case flippedRecords:
		var found bool
		if b, found = g.flip(b); !found {
			return b, true // there are none
		}
	}
	g.given[kind]++
	return b, open
}

// flip changes one bit of a batch in the answer to a fetch. Any but those of its leader epoch,
// which its CRC does not cover, and which may be right by chance.
func (g *garbler) flip(b []byte) ([]byte, bool) {
	r := kmsg.NewPtrFetchResponse()
	r.Version = 16 // brokers'
	if err := r.ReadFrom(b[9:]); err != nil {
		g.t.Errorf("a fetch's answer: %v", err)
		return b, false
	}
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			batches := r.Topics[i].Partitions[j].RecordBatches
			if len(batches) == 0 {
				continue
			}
			at := g.rng.IntN(min(len(batches), 12+int(binary.BigEndian.Uint32(batches[8:]))))
			if at >= 12 && at < 16 {
				at = 20
			}
			batches = bytes.Clone(batches)
			batches[at] ^= 1 << g.rng.IntN(8)
			r.Topics[i].Partitions[j].RecordBatches = batches
			again := r.AppendTo(bytes.Clone(b[:9]))
			binary.BigEndian.PutUint32(again, uint32(len(again)-4))
			return again, true
		}
	}
	return b, false
}

// TestBrokersThatAnswerGarbage lets one broker after the other answer the others with garbage:
// their fetches, the controller's commands. Each is told of in one line, dropped, and asked again;
// none of it comes into a log, and once the broker is honest all goes on.
func TestBrokersThatAnswerGarbage(t *testing.T) {
	const each = 3 // of every kind
	var proxies []*garbler
	ports := zookeepertest.FreePorts(t, 3)
	for _, port := range ports {
		proxies = append(proxies, newGarbler(t, fmt.Sprintf("127.0.0.1:%d", port)))
	}
	c := startClusterOf(t, sut.ClusterSpec{Brokers: 3, Per: func(id int) map[string]string {
		return map[string]string{"listeners": "PLAINTEXT://" + proxies[id-1].to, "advertised.listeners": "PLAINTEXT://" + proxies[id-1].addr()}
	}})
	l := startLoad(t, c)
	for id, g := range proxies {
		l.everyPartition()
		g.set(true)
		l.until(fmt.Sprintf("broker %d has answered enough garbage", id+1), func() bool {
			n := g.counts()
			return n[flippedRecords] >= each && n[noise] >= each && n[otherRequest] >= each && n[endlessLength] >= each && n[cutOff] >= each
		})
		t.Logf("broker %d: %v", id+1, g.counts())
		g.set(false)
		c.awaitISR("kills", 3)
	}
	l.everyPartition()
	l.stop()
	for _, what := range []string{"with garbage", "refuses the batches of its leader"} {
		said := 0 // by whoever happened to get it
		for id := range proxies {
			n := strings.Count(c.log(id+1), what)
			// Once a minute for each peer, or partition: three minutes would be a very slow machine.
			if n > 3*loadPartitions {
				t.Errorf("broker %d says %d times %q", id+1, n, what)
			}
			said += n
		}
		if said == 0 {
			t.Errorf("nobody says %q", what)
		}
	}
}
