package real

import (
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// serialClient lets the callbacks of one session come one at a time, as the contract
// says: whoever brings one while another runs leaves it to be run after it.
type serialClient struct {
	client coord.Client

	mu    sync.Mutex
	queue []func() // bounded by the calls in flight and the watches that are set
	busy  bool
}

var _ coord.Client = (*serialClient)(nil)

// UseCoord says which service OpenCoord opens sessions with, as zookeeper.connect does
// (see CheckConnectString). It is called before the broker starts.
func (e *Env) UseCoord(connect string) { e.coord = connect }

// CheckConnectString says what is wrong with host:port,host:port/chroot.
func CheckConnectString(connect string) error {
	_, _, err := parseConnect(connect)
	return err
}

// OpenCoord opens a session with the service that UseCoord named.
func (e *Env) OpenCoord(timeout time.Duration, state func(coord.SessionState)) coord.Client {
	c := &serialClient{}
	// The library may tell of the session before OpenCoord has returned: not before c is whole.
	c.busy = true
	client, err := openCoord(e.coord, timeout, e.note, func(s coord.SessionState) { c.run(func() { state(s) }) })
	if err != nil {
		panic("BUG: real: a connect string that was not checked: " + err.Error())
	}
	c.client = client
	go c.drain()
	return c
}

// run runs f now, or has whoever runs another run it afterwards.
func (c *serialClient) run(f func()) {
	c.mu.Lock()
	c.queue = append(c.queue, f)
	if c.busy {
		c.mu.Unlock()
		return
	}
	c.busy = true
	c.mu.Unlock()
	c.drain()
}

func (c *serialClient) drain() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.busy, c.queue = false, nil
			c.mu.Unlock()
			return
		}
		f := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		c.mu.Unlock()
		f()
	}
}

func (c *serialClient) watch(watch func(coord.Event)) func(coord.Event) {
	if watch == nil {
		return nil
	}
	return func(e coord.Event) { c.run(func() { watch(e) }) }
}

func (c *serialClient) Session() coord.SessionID { return c.client.Session() }

func (c *serialClient) Create(path string, data []byte, mode coord.CreateMode, done func(string, coord.Stat, error)) {
	c.client.Create(path, data, mode, func(p string, s coord.Stat, err error) { c.run(func() { done(p, s, err) }) })
}

func (c *serialClient) Set(path string, data []byte, version int32, done func(coord.Stat, error)) {
	c.client.Set(path, data, version, func(s coord.Stat, err error) { c.run(func() { done(s, err) }) })
}

func (c *serialClient) Delete(path string, version int32, done func(error)) {
	c.client.Delete(path, version, func(err error) { c.run(func() { done(err) }) })
}

func (c *serialClient) Get(path string, watch func(coord.Event), done func([]byte, coord.Stat, error)) {
	c.client.Get(path, c.watch(watch), func(data []byte, s coord.Stat, err error) { c.run(func() { done(data, s, err) }) })
}

func (c *serialClient) Exists(path string, watch func(coord.Event), done func(coord.Stat, error)) {
	c.client.Exists(path, c.watch(watch), func(s coord.Stat, err error) { c.run(func() { done(s, err) }) })
}

func (c *serialClient) Children(path string, watch func(coord.Event), done func([]string, coord.Stat, error)) {
	c.client.Children(path, c.watch(watch), func(names []string, s coord.Stat, err error) { c.run(func() { done(names, s, err) }) })
}

func (c *serialClient) Multi(ops []coord.Op, done func([]coord.Result, error)) {
	c.client.Multi(ops, func(r []coord.Result, err error) { c.run(func() { done(r, err) }) })
}

func (c *serialClient) Close(done func(error)) {
	c.client.Close(func(err error) { c.run(func() { done(err) }) })
}
