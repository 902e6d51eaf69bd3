package coord

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

// pair holds one session on the original and one on our tree, and the events of its watches.
type pair struct {
	conn    *zk.Conn
	session SessionID
	watches []<-chan zk.Event
	ours    []string
}

// comparison sends everything to both.
type comparison struct {
	t     *testing.T
	addr  string
	tree  *Tree
	pairs []*pair
	next  SessionID
	log   []string
}

// chroot keeps ZooKeeper's own /zookeeper out of sight.
const chroot = "/c"

func (c *comparison) connect() *pair {
	c.t.Helper()
	conn, events, err := zk.Connect([]string{c.addr}, 20*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		c.t.Fatal(err)
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	c.next++
	c.tree.mustApply(Txn{Kind: TxnOpenSession, Session: c.next})
	return &pair{conn: conn, session: c.next}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// names of errors: the two libraries' values differ, ZooKeeper's codes do not.
func errName(err error) string {
	for _, e := range []struct {
		theirs error
		ours   *Error
	}{
		{zk.ErrNoNode, ErrNoNode}, {zk.ErrNodeExists, ErrNodeExists}, {zk.ErrBadVersion, ErrBadVersion},
		{zk.ErrNotEmpty, ErrNotEmpty}, {zk.ErrNoChildrenForEphemerals, ErrNoChildrenForEphemerals},
		{zk.ErrBadArguments, ErrBadArguments}, {zk.ErrInvalidPath, ErrBadArguments}, {zk.ErrSessionExpired, ErrSessionExpired},
	} {
		if errors.Is(err, e.theirs) || errors.Is(err, e.ours) {
			return e.ours.Text
		}
	}
	if err == nil {
		return "ok"
	}
	// The library has no name for it.
	if err == ErrRuntimeInconsistency || strings.Contains(err.Error(), "-2") {
		return ErrRuntimeInconsistency.Text
	}
	return err.Error()
}

func ourStat(s Stat) string {
	return fmt.Sprintf("v%d c%d a0 bytes=%d children=%d ephemeral=%v new=%v set=%v", s.Version, s.Cversion, s.DataLength, s.NumChildren, s.EphemeralOwner != 0, s.Pzxid == s.Czxid, s.Mzxid != s.Czxid)
}

func theirStat(s *zk.Stat) string {
	return fmt.Sprintf("v%d c%d a%d bytes=%d children=%d ephemeral=%v new=%v set=%v", s.Version, s.Cversion, s.Aversion, s.DataLength, s.NumChildren, s.EphemeralOwner != 0, s.Pzxid == s.Czxid, s.Mzxid != s.Czxid)
}

// same compares what both answered.
func (c *comparison) same(what, theirs, ours string) {
	c.t.Helper()
	c.log = append(c.log, what+" -> "+ours)
	if theirs != ours {
		c.t.Fatalf("%s\nZooKeeper: %s\n     ours: %s\nafter\n%s", what, theirs, ours, strings.Join(c.log[max(0, len(c.log)-30):], "\n"))
	}
}

// multi runs operations as one transaction of p.
func (c *comparison) multi(p *pair, ops []Op) {
	c.t.Helper()
	var reqs []any
	for _, op := range ops {
		switch op.Kind {
		case OpCreate:
			var flags int32
			if op.Mode&Ephemeral != 0 {
				flags |= zk.FlagEphemeral
			}
			if op.Mode&Sequential != 0 {
				flags |= zk.FlagSequence
			}
			reqs = append(reqs, &zk.CreateRequest{Path: op.Path, Data: op.Data, Acl: zk.WorldACL(zk.PermAll), Flags: flags})
		case OpSet:
			reqs = append(reqs, &zk.SetDataRequest{Path: op.Path, Data: op.Data, Version: op.Version})
		case OpDelete:
			reqs = append(reqs, &zk.DeleteRequest{Path: op.Path, Version: op.Version})
		case OpCheck:
			reqs = append(reqs, &zk.CheckVersionRequest{Path: op.Path, Version: op.Version})
		}
	}
	answers, err := p.conn.Multi(reqs...)
	results, fired, ourErr := c.tree.Apply(Txn{Kind: TxnOps, Session: p.session, Ops: ops})
	c.deliver(fired)
	var theirs, ours []string
	for i, op := range ops {
		if err == nil && op.Kind == OpCreate {
			theirs, ours = append(theirs, answers[i].String), append(ours, results[i].Path)
		}
		if i < len(answers) {
			theirs, ours = append(theirs, errName(answers[i].Error)), append(ours, errName(results[i].Err))
		}
	}
	theirs, ours = append(theirs, errName(err)), append(ours, errName(ourErr))
	c.same(fmt.Sprintf("session %d: %+v", p.session, ops), strings.Join(theirs, "; "), strings.Join(ours, "; "))
}

func (c *comparison) deliver(fired []Fired) {
	for _, f := range fired {
		for _, p := range c.pairs {
			if p.session == f.Session {
				p.ours = append(p.ours, f.Event.Type.String()+" "+f.Event.Path)
			}
		}
	}
}

// read compares one node and perhaps sets watches.
func (c *comparison) read(p *pair, path string, watch int) {
	c.t.Helper()
	_, s, err := p.conn.Get(path)
	data, ourS, ourErr := c.tree.Get(path)
	theirs, ours := errName(err), errName(ourErr)
	if err == nil && ourErr == nil {
		their, _, _ := p.conn.Get(path)
		names, _, err := p.conn.Children(path)
		ourNames, _, _ := c.tree.Children(path)
		slices.Sort(names)
		theirs = fmt.Sprintf("%q %s %v %v", their, theirStat(s), names, err)
		ours = fmt.Sprintf("%q %s %v %v", data, ourStat(ourS), ourNames, nil)
	}
	c.same(fmt.Sprintf("session %d: read %s", p.session, path), theirs, ours)
	var ch <-chan zk.Event
	switch watch {
	case 1:
		if _, _, ch, err = p.conn.ExistsW(path); err == nil {
			c.tree.Watch(WatchData, path, p.session)
		}
	case 2:
		if _, _, ch, err = p.conn.ChildrenW(path); err == nil {
			c.tree.Watch(WatchChildren, path, p.session)
		}
	case 3:
		if _, _, ch, err = p.conn.GetW(path); err == nil {
			c.tree.Watch(WatchData, path, p.session)
		}
	}
	if ch != nil {
		p.watches = append(p.watches, ch)
		c.log = append(c.log, fmt.Sprintf("session %d: watch %d of %s", p.session, watch, path))
	}
}

// events compares what the watches of all sessions saw. A reply comes after the events before it, so one read settles them.
func (c *comparison) events() {
	c.t.Helper()
	for _, p := range c.pairs {
		if _, _, err := p.conn.Exists(chroot); err != nil {
			c.t.Fatal(err)
		}
		seen := map[string]bool{}
		p.watches = slices.DeleteFunc(p.watches, func(ch <-chan zk.Event) bool {
			select {
			case e := <-ch:
				seen[EventType(e.Type).String()+" "+e.Path] = true // several watches of the library share one event
				return true
			default:
				return false
			}
		})
		slices.Sort(p.ours)
		theirs := sortedKeys(seen)
		c.same(fmt.Sprintf("session %d: events", p.session), fmt.Sprint(theirs), fmt.Sprint(append([]string{}, p.ours...)))
		p.ours = nil
	}
}

func randomOp(rng *rand.Rand) Op {
	paths := []string{"", "/a", "/a/b", "/a/b/c", "/x", "/x/y", "/x/y/z"}
	path := chroot + paths[rng.IntN(len(paths))]
	version := int32(rng.IntN(4)) - 1
	data := []byte(strings.Repeat("d", rng.IntN(5)))
	switch k := rng.IntN(10); {
	case k < 4 && path != chroot:
		return CreateOp(path, data, CreateMode(rng.IntN(2)*rng.IntN(2)))
	case k < 5:
		return CreateOp(path+"/n-", data, Sequential|CreateMode(rng.IntN(2)))
	case k < 7:
		return SetOp(path, data, version)
	case k < 9 && path != chroot:
		return DeleteOp(path, version)
	}
	return CheckOp(path, version)
}

// The tree answers as ZooKeeper 3.8 does: random transactions of several
// sessions, single and multi, reads, watches, sessions that end. Timestamps and the absolute
// numbers of transactions aside, everything is equal.
func TestTheTreeAnswersAsZooKeeperDoes(t *testing.T) {
	addr := zookeepertest.Start(t).Addr
	c := &comparison{t: t, addr: addr, tree: NewTree()}
	c.pairs = []*pair{c.connect(), c.connect(), c.connect()}
	c.multi(c.pairs[0], []Op{CreateOp(chroot, nil, Persistent)})
	rng := rand.New(rand.NewPCG(2, 3))
	for range 1500 {
		p := c.pairs[rng.IntN(len(c.pairs))]
		switch rng.IntN(20) {
		case 0:
			i := slices.Index(c.pairs, p)
			c.pairs = slices.Delete(c.pairs, i, i+1)
			p.conn.Close()
			_, fired, err := c.tree.Apply(Txn{Kind: TxnCloseSession, Session: p.session})
			if err != nil {
				t.Fatal(err)
			}
			c.log = append(c.log, fmt.Sprintf("session %d: close", p.session))
			c.deliver(fired)
			c.pairs = append(c.pairs, c.connect())
		case 1, 2, 3, 4, 5, 6:
			c.read(p, randomOp(rng).Path, rng.IntN(4))
		default:
			ops := []Op{randomOp(rng)}
			for rng.IntN(3) == 0 {
				ops = append(ops, randomOp(rng))
			}
			c.multi(p, ops)
		}
		c.events()
	}
	for _, p := range c.pairs {
		p.conn.Close()
	}
}
