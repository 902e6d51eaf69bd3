package coordtest

import (
	"slices"
	"strconv"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var orderTests = []test{
	{"chained calls take effect in order", nil, chained},
	{"a client reads what it wrote", nil, readsOwn},
	{"calls that meet get different numbers", nil, concurrentSequences},
	{"what a client has seen does not go back", []Feature{Sessions}, neverBack},
}

func chained(s *suite) {
	c := s.open()
	c.create("/a", "", coord.Persistent).ok()
	const sets = 60
	done := 0
	var last *call
	var next func()
	next = func() {
		k := &call{s: s, what: "set " + strconv.Itoa(done)}
		s.mu.Lock()
		s.calls = append(s.calls, k)
		last = k
		version := int32(done)
		if done++; done < sets {
			k.then = next
		}
		s.mu.Unlock()
		c.Set(s.at("/a"), nil, version, func(st coord.Stat, err error) { k.end(err, func() { k.stat = st }) })
	}
	next()
	if !s.Wait(func() bool { return s.locked(func() bool { return done == sets && last.ended > 0 }) }) {
		s.Fatalf("%d of %d sets", done, sets)
	}
	for _, k := range s.calls {
		if k.err != nil {
			s.Fatalf("%s: %v", k.what, k.err)
		}
	}
}

func readsOwn(s *suite) {
	c := s.open()
	c.create("/a", "", coord.Persistent).ok()
	for i := range 40 {
		want := strconv.Itoa(i)
		c.set("/a", want, coord.AnyVersion).ok()
		if k := c.get("/a").ok(); k.data != want {
			s.Fatalf("read %q after %q was written", k.data, want)
		}
	}
}

func concurrentSequences(s *suite) {
	c := s.open()
	c.create("/q", "", coord.Persistent).ok()
	const n = 50
	var calls []*call
	for range n {
		calls = append(calls, c.create("/q/n-", "", coord.Sequential))
	}
	var paths []string
	for _, k := range calls {
		paths = append(paths, k.ok().path)
	}
	slices.Sort(paths)
	if paths = slices.Compact(paths); len(paths) != n {
		s.Errorf("%d numbers for %d nodes", len(paths), n)
	}
	if k := c.children("/q", nil).ok(); len(k.names) != n || k.stat.Cversion != n {
		s.Errorf("%d children, %+v", len(k.names), k.stat)
	}
}

func neverBack(s *suite) {
	writer, reader := s.open(), s.open()
	writer.create("/a", "", coord.Persistent).ok()
	reader.catchUp()
	seen := int32(0)
	for i := range int32(40) {
		w := writer.set("/a", "", i)
		for range 3 {
			k := reader.get("/a").ok()
			if k.stat.Version < seen {
				s.Fatalf("version %d after %d", k.stat.Version, seen)
			}
			seen = k.stat.Version
		}
		w.ok()
	}
	reader.catchUp()
	if k := reader.get("/a").ok(); k.stat.Version != 40 {
		s.Errorf("version %d in the end", k.stat.Version)
	}
}
