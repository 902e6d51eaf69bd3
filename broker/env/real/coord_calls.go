package real

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// requestBytesMax is ZooKeeper's limit of a request, jute.maxbuffer; it drops the connection of who goes beyond.
const requestBytesMax = 0xfffff

// opOverhead is more than the encoding of an operation adds to path and data, ACL included.
const opOverhead = 64

var world = zk.WorldACL(zk.PermAll)

func validPath(path string, sequential bool) error {
	if sequential {
		path += "0" // "/queue/" is a good name for numbers alone
	}
	return coord.ValidatePath(path)
}

// checkSize says ErrTooLarge of what the server would not take.
func checkSize(path string, data []byte) error {
	if len(data) > coord.DataBytesMax || len(path)+len(data)+opOverhead > requestBytesMax {
		return coord.ErrTooLarge
	}
	return nil
}

// checked makes a call, or, if bad says that it cannot be made, ends it with that.
func (c *coordClient) checked(bad error, k *coordCall) {
	if bad != nil {
		k.run = func() func() { return func() { k.lost(bad) } }
	}
	c.do(k)
}

// Create is Client's.
func (c *coordClient) Create(path string, data []byte, mode coord.CreateMode, done func(string, coord.Stat, error)) {
	bad := validPath(path, mode&coord.Sequential != 0)
	if bad == nil {
		bad = checkSize(c.inner(path), data)
	}
	lost := func(err error) { done("", coord.Stat{}, err) }
	c.checked(bad, &coordCall{lost: lost, run: func() func() {
		made, err := c.conn.Create(c.innerNew(path), data, int32(mode), world)
		if err != nil {
			return func() { lost(coordError(err)) }
		}
		stat := c.createdStat(made, data, mode)
		return func() { done(c.outer(made), stat, nil) }
	}})
}

// innerNew is inner, but of a new node: "/" stands for a number alone under the chroot.
func (c *coordClient) innerNew(path string) string { return c.chroot + path }

// createdStat is a new node's metadata: from the answer, or, if the connection went just then, what follows from the request.
func (c *coordClient) createdStat(made string, data []byte, mode coord.CreateMode) coord.Stat {
	c.mu.Lock()
	w := c.wire
	c.mu.Unlock()
	if s, ok := w.takeCreated(made); ok {
		return s
	}
	return c.plainStat(data, mode)
}

// plainStat is what is known of a new node without asking: everything but times and transactions.
func (c *coordClient) plainStat(data []byte, mode coord.CreateMode) coord.Stat {
	s := coord.Stat{DataLength: int32(len(data))}
	if mode&coord.Ephemeral != 0 {
		s.EphemeralOwner = c.Session()
	}
	return s
}

// Set is Client's.
func (c *coordClient) Set(path string, data []byte, version int32, done func(coord.Stat, error)) {
	bad := validPath(path, false)
	if bad == nil {
		bad = checkSize(c.inner(path), data)
	}
	lost := func(err error) { done(coord.Stat{}, err) }
	c.checked(bad, &coordCall{lost: lost, run: func() func() {
		stat, err := c.conn.Set(c.inner(path), data, version)
		if err != nil {
			return func() { lost(coordError(err)) }
		}
		return func() { done(coordStat(stat), nil) }
	}})
}

func coordStat(s *zk.Stat) coord.Stat {
	return coord.Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Ctime: s.Ctime, Mtime: s.Mtime, Version: s.Version, Cversion: s.Cversion,
		EphemeralOwner: coord.SessionID(s.EphemeralOwner), DataLength: s.DataLength, NumChildren: s.NumChildren, Pzxid: s.Pzxid,
	}
}

// Delete is Client's.
func (c *coordClient) Delete(path string, version int32, done func(error)) {
	bad := validPath(path, false)
	if path == "/" {
		bad = coord.ErrBadArguments // with a chroot it is a node like any other there
	}
	c.checked(bad, &coordCall{lost: done, run: func() func() {
		err := c.conn.Delete(c.inner(path), version)
		return func() { done(coordError(err)) }
	}})
}

// read makes a call that may set a watch. get asks the library, with or without one, and gives what tells
// the result; it is set if ch is not nil. The event is awaited only after the caller was told, so it cannot come first.
func (c *coordClient) read(path string, watch func(coord.Event), get func(path string) (ch <-chan zk.Event, tell func()), lost func(error)) {
	bad := validPath(path, false)
	counted := bad == nil && watch != nil
	if counted && !c.addWatch() {
		bad, counted = coord.ErrThrottled, false
	}
	k := &coordCall{
		lost: func(err error) {
			if counted {
				c.dropWatch()
			}
			lost(err)
		},
		run: func() func() {
			ch, tell := get(c.inner(path))
			return func() {
				tell()
				switch {
				case counted && ch != nil:
					go c.await(ch, watch)
				case counted:
					c.dropWatch()
				}
			}
		},
	}
	c.checked(bad, k)
}

// Get is Client's.
func (c *coordClient) Get(path string, watch func(coord.Event), done func([]byte, coord.Stat, error)) {
	lost := func(err error) { done(nil, coord.Stat{}, err) }
	c.read(path, watch, func(path string) (ch <-chan zk.Event, tell func()) {
		var data []byte
		var stat *zk.Stat
		var err error
		if watch == nil {
			data, stat, err = c.conn.Get(path)
		} else {
			data, stat, ch, err = c.conn.GetW(path)
		}
		if err != nil {
			return nil, func() { lost(coordError(err)) }
		}
		return ch, func() { done(data, coordStat(stat), nil) }
	}, lost)
}

// Exists is Client's.
func (c *coordClient) Exists(path string, watch func(coord.Event), done func(coord.Stat, error)) {
	lost := func(err error) { done(coord.Stat{}, err) }
	c.read(path, watch, func(path string) (ch <-chan zk.Event, tell func()) {
		var there bool
		var stat *zk.Stat
		var err error
		if watch == nil {
			there, stat, err = c.conn.Exists(path)
		} else {
			there, stat, ch, err = c.conn.ExistsW(path)
		}
		switch {
		case err != nil:
			return nil, func() { lost(coordError(err)) }
		case !there:
			return ch, func() { lost(coord.ErrNoNode) }
		}
		return ch, func() { done(coordStat(stat), nil) }
	}, lost)
}

// Children is Client's.
func (c *coordClient) Children(path string, watch func(coord.Event), done func([]string, coord.Stat, error)) {
	lost := func(err error) { done(nil, coord.Stat{}, err) }
	c.read(path, watch, func(path string) (ch <-chan zk.Event, tell func()) {
		var names []string
		var stat *zk.Stat
		var err error
		if watch == nil {
			names, stat, err = c.conn.Children(path)
		} else {
			names, stat, ch, err = c.conn.ChildrenW(path)
		}
		if err != nil {
			return nil, func() { lost(coordError(err)) }
		}
		slices.Sort(names) // ZooKeeper gives them as they lie in a hash table
		return ch, func() { done(names, coordStat(stat), nil) }
	}, lost)
}
