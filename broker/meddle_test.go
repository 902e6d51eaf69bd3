package broker_test

import (
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// meddled is a node's session. It shows the node's meddle what is answered to a call, and whoever takes an answer gives
// it later, or has it lost: calls end in any order, and a lost connection leaves the outcome open.
type meddled struct {
	*coord.ModelClient
	n *clusterNode
}

// answered is the answer to a call: "get", "exists", "set" or "multi". path is that of the last operation.
type answered struct {
	call, path string
	give, lose func()
}

func (m meddled) show(call, path string, give func(), lose func(error)) {
	if m.n.meddle == nil || !m.n.meddle(answered{call, path, give, func() { lose(coord.ErrConnectionLoss) }}) {
		give()
	}
}

func (m meddled) Get(path string, watch func(coord.Event), done func([]byte, coord.Stat, error)) {
	m.ModelClient.Get(path, watch, func(data []byte, st coord.Stat, err error) {
		m.show("get", path, func() { done(data, st, err) }, func(err error) { done(nil, coord.Stat{}, err) })
	})
}

func (m meddled) Exists(path string, watch func(coord.Event), done func(coord.Stat, error)) {
	m.ModelClient.Exists(path, watch, func(st coord.Stat, err error) {
		m.show("exists", path, func() { done(st, err) }, func(err error) { done(coord.Stat{}, err) })
	})
}

func (m meddled) Set(path string, data []byte, version int32, done func(coord.Stat, error)) {
	m.ModelClient.Set(path, data, version, func(st coord.Stat, err error) {
		m.show("set", path, func() { done(st, err) }, func(err error) { done(coord.Stat{}, err) })
	})
}

func (m meddled) Multi(ops []coord.Op, done func([]coord.Result, error)) {
	if m.n.swallow == ops[len(ops)-1].Path { // it never arrives
		m.n.swallow = ""
		m.n.env.After(time.Second, func() { done(nil, coord.ErrConnectionLoss) })
		return
	}
	m.ModelClient.Multi(ops, func(results []coord.Result, err error) {
		m.show("multi", ops[len(ops)-1].Path, func() { done(results, err) }, func(err error) { done(nil, err) })
	})
}

// takeNext takes the answer to the next such call of a node.
func (c *cluster) takeNext(id int32, call, path string) *answered {
	var taken answered
	c.nodes[id].meddle = func(a answered) bool {
		if a.call != call || a.path != path || taken.give != nil {
			return false
		}
		taken = a
		return true
	}
	return &taken
}

// awaitTaken goes on until an answer is taken.
func (c *cluster) awaitTaken(a *answered) {
	c.t.Helper()
	for i := 0; a.give == nil; i++ {
		c.advance(time.Millisecond)
		if i == 20_000 {
			c.t.Fatalf("no such call\n%s", c.reports())
		}
	}
}
