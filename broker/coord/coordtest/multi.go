package coordtest

import (
	"errors"
	"fmt"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var multiTests = []test{
	{"a transaction is applied as a whole", nil, multiApplies},
	{"a transaction that fails changes nothing and says where", nil, multiFails},
	{"a transaction's operations see those before them", nil, multiSees},
	{"of two transactions on one version one is applied", []Feature{Sessions}, multiRace},
	{"many operations run in bulk", nil, bulk},
}

func multiApplies(s *suite) {
	c := s.open()
	c.create("/set", "", coord.Persistent).ok()
	c.create("/gone", "", coord.Persistent).ok()
	k := c.multi(
		coord.CheckOp(s.at("/set"), 0),
		coord.SetOp(s.at("/set"), []byte("x"), 0),
		coord.CreateOp(s.at("/new"), []byte("y"), coord.Persistent),
		coord.CreateOp(s.at("/new/n-"), nil, coord.Sequential|coord.Ephemeral),
		coord.DeleteOp(s.at("/gone"), 0),
	).ok()
	if len(k.results) != 5 {
		s.Fatalf("%d results: %+v", len(k.results), k.results)
	}
	for i, r := range k.results {
		if r.Err != nil {
			s.Errorf("operation %d: %v", i, r.Err)
		}
	}
	if r := k.results; r[1].Stat.Version != 1 || r[2].Path != s.at("/new") || r[3].Path != s.at("/new/n-0000000000") {
		s.Errorf("results %+v", r)
	}
	zxid := c.get("/set").ok().stat.Mzxid
	if k := c.get("/new").ok(); k.data != "y" || k.stat.Czxid != zxid {
		s.Errorf("%q, %+v, not of transaction %d", k.data, k.stat, zxid)
	}
	c.exists("/new/n-0000000000", nil).ok()
	c.exists("/gone", nil).fails(coord.ErrNoNode)
}

func multiFails(s *suite) {
	c := s.open()
	c.create("/a", "old", coord.Persistent).ok()
	c.create("/b", "", coord.Persistent).ok()
	w := s.watch()
	c.getWatched("/a", w).ok()
	k := c.multi(
		coord.SetOp(s.at("/a"), []byte("new"), 0),
		coord.CreateOp(s.at("/b/c"), nil, coord.Ephemeral),
		coord.DeleteOp(s.at("/b"), 7),
		coord.SetOp(s.at("/a"), []byte("newer"), 0),
	).fails(coord.ErrBadVersion)
	want := []error{nil, nil, coord.ErrBadVersion, coord.ErrRuntimeInconsistency}
	if len(k.results) != len(want) {
		s.Fatalf("%d results", len(k.results))
	}
	for i := range want {
		if !errors.Is(k.results[i].Err, want[i]) {
			s.Errorf("operation %d: %v, want %v", i, k.results[i].Err, want[i])
		}
	}
	if k := c.get("/a").ok(); k.data != "old" || k.stat.Version != 0 {
		s.Errorf("%q, %+v", k.data, k.stat)
	}
	if k := c.children("/b", nil).ok(); len(k.names) != 0 || k.stat.Cversion != 0 {
		s.Errorf("%v, %+v", k.names, k.stat)
	}
	s.silent(w)
}

func multiSees(s *suite) {
	c := s.open()
	k := c.multi(
		coord.CreateOp(s.at("/p"), nil, coord.Persistent),
		coord.CreateOp(s.at("/p/c"), nil, coord.Persistent),
		coord.SetOp(s.at("/p/c"), []byte("x"), 0),
		coord.CheckOp(s.at("/p/c"), 1),
		coord.DeleteOp(s.at("/p/c"), 1),
	).ok()
	if k := c.children("/p", nil).ok(); len(k.names) != 0 || k.stat.Cversion != 2 {
		s.Errorf("%v, %+v", k.names, k.stat)
	}
	_ = k
	c.multi(coord.CreateOp(s.at("/q"), nil, coord.Persistent), coord.CreateOp(s.at("/q"), nil, coord.Persistent)).fails(coord.ErrNodeExists)
	c.exists("/q", nil).fails(coord.ErrNoNode)
}

// multiRace is how everything in the cluster is decided: check a version, write.
func multiRace(s *suite) {
	a, b := s.open(), s.open()
	a.create("/epoch", "", coord.Persistent).ok()
	for version := range int32(20) {
		var calls []*call
		for i, c := range []*client{a, b, a} {
			calls = append(calls, c.multi(
				coord.SetOp(s.at("/epoch"), nil, version),
				coord.CreateOp(s.at(fmt.Sprintf("/won-%d-%d", version, i)), nil, coord.Persistent)))
		}
		won := 0
		for _, k := range calls {
			if k.wait(); k.err == nil {
				won++
			} else if !errors.Is(k.err, coord.ErrBadVersion) {
				s.Fatalf("%s: %v", k.what, k.err)
			}
		}
		if won != 1 {
			s.Fatalf("version %d was taken %d times", version, won)
		}
	}
	a.catchUp()
	wins := 0
	for version := range 20 {
		for i := range 3 {
			if k := a.exists(fmt.Sprintf("/won-%d-%d", version, i), nil).wait(); k.err == nil {
				wins++
			}
		}
	}
	if wins != 20 {
		s.Errorf("%d nodes of 20 winners", wins)
	}
}

func bulk(s *suite) {
	c := s.open()
	var ops []coord.Op
	for i := range 40 {
		ops = append(ops, coord.CreateOp(s.at(fmt.Sprintf("/n%02d", i)), make([]byte, 60_000), coord.Persistent))
	}
	s.begin("bulk", func(k *call) { coord.Bulk(c.Client, ops, func(err error) { k.end(err, nil) }) }).ok()
	c.exists("/n39", nil).ok()
	ops = []coord.Op{coord.DeleteOp(s.at("/n00"), 0), coord.DeleteOp(s.at("/n01"), 9)}
	s.begin("bulk that fails", func(k *call) { coord.Bulk(c.Client, ops, func(err error) { k.end(err, nil) }) }).fails(coord.ErrBadVersion)
	c.exists("/n00", nil).ok()
}
