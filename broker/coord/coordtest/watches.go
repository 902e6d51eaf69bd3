package coordtest

import (
	"fmt"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var watchTests = []test{
	{"a data watch sees one set or the deletion", nil, dataWatch},
	{"an existence watch sees the node come", nil, existsWatch},
	{"a child watch sees children come and go, and nothing else", nil, childWatch},
	{"a read of a missing node sets no watch", nil, noWatchOnNothing},
	{"every watch of a node fires, each once", nil, manyWatches},
	{"a transaction fires the watches of all its changes", nil, multiWatch},
	{"a watch never comes before the call that set it", nil, watchAfterItsCall},
	{"watches see what others do", []Feature{Sessions}, foreignWatch},
	{"no change goes unseen between a read and its watch", []Feature{Sessions}, noGap},
}

func dataWatch(s *suite) {
	c := s.open()
	c.create("/a", "", coord.Persistent).ok()
	set := s.watch()
	c.getWatched("/a", set).ok()
	c.create("/a/child", "", coord.Persistent).ok() // not its affair
	s.silent(set)
	c.set("/a", "x", coord.AnyVersion).ok()
	set.fires(coord.NodeDataChanged, "/a")
	c.set("/a", "y", coord.AnyVersion).ok()
	c.delete("/a/child", 0).ok()
	deleted := s.watch()
	c.getWatched("/a", deleted).ok()
	c.delete("/a", coord.AnyVersion).ok()
	deleted.fires(coord.NodeDeleted, "/a")
}

func existsWatch(s *suite) {
	c := s.open()
	created, changed, deleted := s.watch(), s.watch(), s.watch()
	c.exists("/a", created).fails(coord.ErrNoNode)
	c.create("/a", "", coord.Ephemeral).ok()
	created.fires(coord.NodeCreated, "/a")
	c.exists("/a", changed).ok()
	c.set("/a", "", 0).ok()
	changed.fires(coord.NodeDataChanged, "/a")
	c.exists("/a", deleted).ok()
	c.delete("/a", 1).ok()
	deleted.fires(coord.NodeDeleted, "/a")
}

func childWatch(s *suite) {
	c := s.open()
	c.create("/p", "", coord.Persistent).ok()
	come, go_, gone := s.watch(), s.watch(), s.watch()
	c.children("/p", come).ok()
	c.set("/p", "x", 0).ok()
	s.silent(come)
	c.create("/p/a", "", coord.Persistent).ok()
	come.fires(coord.NodeChildrenChanged, "/p")
	c.children("/p", go_).ok()
	c.create("/p/a/b", "", coord.Persistent).ok()
	c.set("/p/a", "x", 0).ok()
	c.delete("/p/a/b", 0).ok()
	s.silent(go_)
	c.delete("/p/a", 1).ok()
	go_.fires(coord.NodeChildrenChanged, "/p")
	c.children("/p", gone).ok()
	c.delete("/p", 1).ok()
	gone.fires(coord.NodeDeleted, "/p")
}

func noWatchOnNothing(s *suite) {
	c := s.open()
	data, child := s.watch(), s.watch()
	c.getWatched("/a", data).fails(coord.ErrNoNode)
	c.children("/a", child).fails(coord.ErrNoNode)
	c.create("/a", "", coord.Persistent).ok()
	c.create("/a/b", "", coord.Persistent).ok()
	c.set("/a", "", 0).ok()
	s.silent(data, child)
}

func manyWatches(s *suite) {
	c := s.open()
	c.create("/a", "", coord.Persistent).ok()
	var all []*watch
	for range 3 {
		data, exists, child := s.watch(), s.watch(), s.watch()
		c.getWatched("/a", data).ok()
		c.exists("/a", exists).ok()
		c.children("/a", child).ok()
		all = append(all, data, exists, child)
	}
	c.delete("/a", 0).ok()
	for _, w := range all {
		w.fires(coord.NodeDeleted, "/a")
	}
	c.create("/a", "", coord.Persistent).ok()
	c.delete("/a", 0).ok()
}

func multiWatch(s *suite) {
	c := s.open()
	c.create("/set", "", coord.Persistent).ok()
	c.create("/gone", "", coord.Persistent).ok()
	c.create("/p", "", coord.Persistent).ok()
	set, gone, made, child := s.watch(), s.watch(), s.watch(), s.watch()
	c.getWatched("/set", set).ok()
	c.getWatched("/gone", gone).ok()
	c.exists("/p/new", made).fails(coord.ErrNoNode)
	c.children("/p", child).ok()
	c.multi(
		coord.SetOp(s.at("/set"), nil, 0),
		coord.DeleteOp(s.at("/gone"), 0),
		coord.CreateOp(s.at("/p/new"), nil, coord.Persistent),
	).ok()
	set.fires(coord.NodeDataChanged, "/set")
	gone.fires(coord.NodeDeleted, "/gone")
	made.fires(coord.NodeCreated, "/p/new")
	child.fires(coord.NodeChildrenChanged, "/p")
}

// watchAfterItsCall: the change is under way when the watch is set. runOne judges.
func watchAfterItsCall(s *suite) {
	c := s.open()
	for i := range 40 {
		path := fmt.Sprintf("/a%d", i)
		w := s.watch()
		k := c.exists(path, w)
		c.create(path, "", coord.Persistent).ok()
		if k.wait(); k.err == nil {
			c.delete(path, 0).ok()
			w.fires(coord.NodeDeleted, path)
			continue
		}
		w.fires(coord.NodeCreated, path)
	}
}

func foreignWatch(s *suite) {
	watcher, other := s.open(), s.open()
	other.create("/a", "", coord.Persistent).ok()
	other.create("/p", "", coord.Persistent).ok()
	watcher.catchUp()
	data, child, missing := s.watch(), s.watch(), s.watch()
	watcher.getWatched("/a", data).ok()
	watcher.children("/p", child).ok()
	watcher.exists("/p/new", missing).fails(coord.ErrNoNode)
	other.set("/a", "x", 0).ok()
	other.create("/p/new", "", coord.Ephemeral).ok()
	data.fires(coord.NodeDataChanged, "/a")
	child.fires(coord.NodeChildrenChanged, "/p")
	missing.fires(coord.NodeCreated, "/p/new")
}

// noGap: a reader that reads again whenever its watch fires ends with the last version, however
// the writes fall between its reads. This is how every follower of a node works.
func noGap(s *suite) {
	reader, writer := s.open(), s.open()
	writer.create("/a", "", coord.Persistent).ok()
	reader.catchUp()
	const writes = 30
	var reads []*call
	var watches []*watch
	again := func() *call {
		w := s.watch()
		watches = append(watches, w)
		reads = append(reads, reader.getWatched("/a", w))
		return reads[len(reads)-1]
	}
	again()
	for i := range int32(writes) {
		k := writer.set("/a", "", i)
		if last := len(reads) - 1; s.locked(func() bool { return reads[last].ended > 0 && len(watches[last].events) > 0 }) {
			again()
		}
		k.ok()
	}
	for {
		last := len(reads) - 1
		reads[last].ok()
		if reads[last].stat.Version == writes {
			break
		}
		if !s.Wait(watches[last].fired) {
			s.Fatalf("version %d was read, %d is there, and the watch does not fire", reads[last].stat.Version, writes)
		}
		again()
	}
}
