package real

import (
	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// Multi is Client's. The metadata of a created node lacks times and transaction numbers: the library does not hand them out.
func (c *coordClient) Multi(ops []coord.Op, done func([]coord.Result, error)) {
	lost := func(err error) { done(nil, err) }
	requests, results, bad := c.opRequests(ops)
	if bad != nil {
		c.do(&coordCall{lost: lost, run: func() func() { return func() { done(results, bad) } }})
		return
	}
	c.do(&coordCall{lost: lost, run: func() func() {
		answers, err := c.conn.Multi(requests...)
		results := c.results(ops, answers, err != nil)
		return func() { done(results, coordError(err)) }
	}})
}

// opRequests are the library's form of operations, or the reason why they cannot be.
func (c *coordClient) opRequests(ops []coord.Op) (requests []any, results []coord.Result, bad error) {
	size := 0
	for i, op := range ops {
		bad := validPath(op.Path, op.Kind == coord.OpCreate && op.Mode&coord.Sequential != 0)
		var request any
		if bad == nil {
			request, bad = c.opRequest(op)
		}
		if bad != nil {
			return nil, failedAt(len(ops), i, bad), bad
		}
		requests = append(requests, request)
		size += len(c.chroot) + len(op.Path) + len(op.Data) + opOverhead
	}
	if size > coord.MultiBytesMax && len(ops) > 1 || size > requestBytesMax {
		return nil, nil, coord.ErrTooLarge
	}
	return requests, nil, nil
}

// failedAt are the results of a transaction whose operation i cannot be.
func failedAt(n, i int, err error) []coord.Result {
	results := make([]coord.Result, n)
	results[i].Err = err
	for j := i + 1; j < n; j++ {
		results[j].Err = coord.ErrRuntimeInconsistency
	}
	return results
}

func (c *coordClient) opRequest(op coord.Op) (any, error) {
	path := c.inner(op.Path)
	switch op.Kind {
	case coord.OpCreate:
		return &zk.CreateRequest{Path: c.innerNew(op.Path), Data: op.Data, Acl: world, Flags: int32(op.Mode)}, checkSize(path, op.Data)
	case coord.OpSet:
		return &zk.SetDataRequest{Path: path, Data: op.Data, Version: op.Version}, checkSize(path, op.Data)
	case coord.OpDelete:
		if op.Path == "/" {
			return nil, coord.ErrBadArguments
		}
		return &zk.DeleteRequest{Path: path, Version: op.Version}, nil
	case coord.OpCheck:
		return &zk.CheckVersionRequest{Path: path, Version: op.Version}, nil
	}
	return nil, coord.ErrBadArguments
}

// results are nil when the server did not answer.
func (c *coordClient) results(ops []coord.Op, answers []zk.MultiResponse, failed bool) []coord.Result {
	if len(answers) != len(ops) {
		return nil
	}
	results := make([]coord.Result, len(ops))
	for i, a := range answers {
		r := &results[i]
		if r.Err = coordError(a.Error); failed {
			continue
		}
		r.Path = ops[i].Path
		switch {
		case ops[i].Kind == coord.OpCreate:
			r.Path, r.Stat = c.outer(a.String), c.plainStat(ops[i].Data, ops[i].Mode)
		case a.Stat != nil:
			r.Stat = coordStat(a.Stat)
		}
	}
	return results
}
