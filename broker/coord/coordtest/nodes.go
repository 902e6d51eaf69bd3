package coordtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var nodeTests = []test{
	{"a node is created, read, set and deleted by version", nil, nodeLife},
	{"refused changes say why and change nothing", nil, refusals},
	{"paths that cannot be are bad arguments", nil, badPaths},
	{"children are named in order and counted", nil, childNames},
	{"sequence numbers come from the parent's creations and are never reused", nil, sequences},
	{"an ephemeral has an owner and no children", nil, ephemeralOwner},
}

func nodeLife(s *suite) {
	c := s.open()
	k := c.create("/a", "one", coord.Persistent).ok()
	if k.path != s.at("/a") || k.stat.Version != 0 || k.stat.DataLength != 3 || k.stat.EphemeralOwner != 0 || k.stat.Czxid != k.stat.Mzxid {
		s.Errorf("created %s: %+v", k.path, k.stat)
	}
	czxid := k.stat.Czxid
	if k = c.get("/a").ok(); k.data != "one" || k.stat.Czxid != czxid {
		s.Errorf("read %q, %+v", k.data, k.stat)
	}
	if k = c.set("/a", "two!", 0).ok(); k.stat.Version != 1 || k.stat.DataLength != 4 || k.stat.Czxid != czxid || k.stat.Mzxid <= czxid {
		s.Errorf("set: %+v", k.stat)
	}
	c.set("/a", "", coord.AnyVersion).ok()
	if k = c.get("/a").ok(); k.data != "" || k.stat.Version != 2 {
		s.Errorf("read %q, %+v", k.data, k.stat)
	}
	if k = c.exists("/a", nil).ok(); k.stat.Version != 2 {
		s.Errorf("exists: %+v", k.stat)
	}
	c.delete("/a", 2).ok()
	c.exists("/a", nil).fails(coord.ErrNoNode)
	if k = c.create("/a", "", coord.Persistent).ok(); k.stat.Version != 0 || k.stat.Czxid <= czxid {
		s.Errorf("created again: %+v", k.stat)
	}
}

func refusals(s *suite) {
	c := s.open()
	c.create("/a", "one", coord.Persistent).ok()
	c.create("/a/b", "", coord.Persistent).ok()
	c.create("/a", "two", coord.Persistent).fails(coord.ErrNodeExists)
	c.create("/x/y", "", coord.Persistent).fails(coord.ErrNoNode)
	c.create("/x/y-", "", coord.Sequential).fails(coord.ErrNoNode)
	c.set("/a", "two", 1).fails(coord.ErrBadVersion)
	c.set("/x", "", coord.AnyVersion).fails(coord.ErrNoNode)
	c.delete("/a/b", 1).fails(coord.ErrBadVersion)
	c.delete("/a", 0).fails(coord.ErrNotEmpty)
	c.delete("/x", coord.AnyVersion).fails(coord.ErrNoNode)
	c.get("/x").fails(coord.ErrNoNode)
	c.children("/x", nil).fails(coord.ErrNoNode)
	if k := c.get("/a").ok(); k.data != "one" || k.stat.Version != 0 || k.stat.NumChildren != 1 || k.stat.Cversion != 1 {
		s.Errorf("%q, %+v", k.data, k.stat)
	}
}

func badPaths(s *suite) {
	c := s.open()
	for _, path := range []string{"/a//b", "/a/", "/a/../b", "/./a", "/a\x00b", "/a\x1f"} {
		c.create(path, "", coord.Persistent).fails(coord.ErrBadArguments)
		c.exists(path, nil).fails(coord.ErrBadArguments)
	}
	c.multi(coord.CheckOp(s.at("//"), coord.AnyVersion)).fails(coord.ErrBadArguments)
}

func childNames(s *suite) {
	c := s.open()
	c.create("/p", "", coord.Persistent).ok()
	if k := c.children("/p", nil).ok(); len(k.names) != 0 || k.stat.NumChildren != 0 {
		s.Errorf("%v, %+v", k.names, k.stat)
	}
	for _, name := range []string{"b", "c", "a", "d"} {
		c.create("/p/"+name, "", coord.Persistent).ok()
	}
	c.delete("/p/c", 0).ok()
	k := c.children("/p", nil).ok()
	if !slices.Equal(k.names, []string{"a", "b", "d"}) || k.stat.NumChildren != 3 || k.stat.Cversion != 5 || k.stat.Version != 0 {
		s.Errorf("%v, %+v", k.names, k.stat)
	}
}

func sequences(s *suite) {
	c := s.open()
	c.create("/q", "", coord.Persistent).ok()
	next := func(number int, mode coord.CreateMode) {
		s.Helper()
		if k := c.create("/q/n-", "", coord.Sequential|mode).ok(); k.path != s.at(fmt.Sprintf("/q/n-%010d", number)) {
			s.Errorf("%s, want number %d", k.path, number)
		}
	}
	next(0, coord.Persistent)
	next(1, coord.Ephemeral)
	c.create("/q/plain", "", coord.Persistent).ok() // it counts too
	next(3, coord.Persistent)
	c.delete("/q/n-0000000003", coord.AnyVersion).ok()
	next(4, coord.Persistent)
	for _, name := range c.children("/q", nil).ok().names {
		c.delete("/q/"+name, coord.AnyVersion).ok()
	}
	next(5, coord.Persistent)
	// One that was not made takes no number.
	c.multi(coord.CreateOp(s.at("/q/n-"), nil, coord.Sequential), coord.CheckOp(s.at("/none"), 0)).fails(coord.ErrNoNode)
	next(6, coord.Persistent)
	if k := c.create("/q/", "", coord.Sequential).ok(); !strings.HasSuffix(k.path, "/q/0000000007") {
		s.Errorf("a name of the number alone: %s", k.path)
	}
}

func ephemeralOwner(s *suite) {
	c := s.open()
	if c.Session() == 0 {
		s.Error("connected without a session")
	}
	if k := c.create("/e", "", coord.Ephemeral).ok(); k.stat.EphemeralOwner != c.Session() {
		s.Errorf("owner %d, want %d", k.stat.EphemeralOwner, c.Session())
	}
	c.create("/e/child", "", coord.Persistent).fails(coord.ErrNoChildrenForEphemerals)
	c.delete("/e", 0).ok()
	c.create("/e", "", coord.Persistent).ok()
	c.create("/e/child", "", coord.Persistent).ok()
}
