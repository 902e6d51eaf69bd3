package real_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/coord/coordtest"
	"github.com/tidemark-log/tidemark/broker/env/real"
	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// overNetwork is a coordtest.Service behind the adapter: each client reaches the servers through proxies of its own.
type overNetwork struct {
	t       testing.TB
	servers []string
	chroot  string
	root    string
	proxies map[coord.Client][]*proxy
}

// The suite's tests wait, most of the time, for timeouts of ZooKeeper's scale: more of them
// at once than there are processors take that much less.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var roots atomic.Int64

func newOverNetwork(t testing.TB, chroot string, servers ...string) coordtest.Service {
	t.(*testing.T).Parallel() // most of the time they wait for sessions to expire
	o := &overNetwork{t: t, servers: servers, chroot: chroot, root: fmt.Sprintf("/t%d", roots.Add(1)), proxies: map[coord.Client][]*proxy{}}
	conn, events, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	path := ""
	for _, name := range strings.Split(chroot+o.root, "/")[1:] {
		path += "/" + name
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
			t.Fatal(err)
		}
	}
	return o
}

func (o *overNetwork) Open(timeout time.Duration, state func(coord.SessionState)) coord.Client {
	var proxies []*proxy
	var addrs []string
	for _, s := range o.servers {
		p := newProxy(o.t, s)
		proxies, addrs = append(proxies, p), append(addrs, p.addr())
	}
	c, err := real.OpenCoord(strings.Join(addrs, ",")+o.chroot, timeout, state)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		done := make(chan struct{})
		c.Close(func(error) { close(done) })
		<-done
	})
	o.proxies[c] = proxies
	return c
}

func (o *overNetwork) Wait(cond func() bool) bool {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	tooLong := time.After(time.Minute)
	for !cond() {
		select {
		case <-again.C:
		case <-tooLong:
			return false
		}
	}
	return true
}

func (o *overNetwork) Settle()             { <-time.After(40 * time.Millisecond) }
func (o *overNetwork) Root() string        { return o.root }
func (o *overNetwork) Tick() time.Duration { return coord.TickMs * time.Millisecond }

func (o *overNetwork) Cut(c coord.Client) {
	for _, p := range o.proxies[c] {
		p.refuse() // first of all, or the client would be back through the next of them
	}
	for _, p := range o.proxies[c] {
		p.cut()
	}
}

func (o *overNetwork) Heal(c coord.Client) {
	for _, p := range o.proxies[c] {
		p.heal()
	}
}

var cannot = map[coordtest.Feature]string{
	coordtest.OneThread: "the library has goroutines of its own",
	coordtest.Ticks:     "a server's clock is not seen from outside",
}

func TestTheAdapterKeepsTheContractOnTheEmbeddedServer(t *testing.T) {
	s := embedded(t)
	coordtest.Run(t, coordtest.Factory{Cannot: cannot, New: func(t testing.TB) coordtest.Service { return newOverNetwork(t, "/some/where", s.Addr()) }})
}

func TestTheAdapterKeepsTheContractOnZooKeeper(t *testing.T) {
	s := zookeepertest.Start(t)
	coordtest.Run(t, coordtest.Factory{Cannot: cannot, New: func(t testing.TB) coordtest.Service { return newOverNetwork(t, "", s.Addr) }})
}

func TestTheAdapterKeepsTheContractOnAnEnsemble(t *testing.T) {
	var addrs []string
	for _, s := range zookeepertest.StartEnsemble(t) {
		addrs = append(addrs, s.Addr)
	}
	coordtest.Run(t, coordtest.Factory{Cannot: cannot, New: func(t testing.TB) coordtest.Service { return newOverNetwork(t, "/chroot", addrs...) }})
}
