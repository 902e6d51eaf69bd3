package broker_test

import "github.com/tidemark-log/tidemark/broker/coord"

// meddled is a node's session. It shows the node's meddle what is answered, "get", "children" or "multi" (path is that of the last operation), and whoever
// takes an answer gives it later or never: calls end in any order.
type meddled struct {
	*coord.ModelClient
	n *clusterNode
}

func (m meddled) take(call, path string, answer func()) {
	if m.n.meddle == nil || !m.n.meddle(call, path, answer) {
		answer()
	}
}

func (m meddled) Get(path string, watch func(coord.Event), done func([]byte, coord.Stat, error)) {
	m.ModelClient.Get(path, watch, func(data []byte, st coord.Stat, err error) {
		m.take("get", path, func() { done(data, st, err) })
	})
}

func (m meddled) Children(path string, watch func(coord.Event), done func([]string, coord.Stat, error)) {
	m.ModelClient.Children(path, watch, func(names []string, st coord.Stat, err error) {
		m.take("children", path, func() { done(names, st, err) })
	})
}

func (m meddled) Multi(ops []coord.Op, done func([]coord.Result, error)) {
	m.ModelClient.Multi(ops, func(results []coord.Result, err error) {
		m.take("multi", ops[len(ops)-1].Path, func() { done(results, err) })
	})
}
