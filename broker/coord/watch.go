package coord

import "slices"

// Fired is an event for one session.
type Fired struct {
	Session SessionID
	Event   Event
}

// WatchKind is what a watch waits for: a read sets the kind that belongs to it.
type WatchKind uint8

const (
	WatchData     WatchKind = iota // set by Get and Exists: created, deleted, data changed
	WatchChildren                  // set by Children: children changed, node deleted
)

// watches holds who waits for what, in the order of asking. A session has at
// most one watch of a kind on a path; several callbacks behind it are its client's affair.
//
// Invariant: a session is in byPath[kind][path] if and only if path is in of[session].paths[kind]. So what a
// session has is counted and forgotten without a look at what all the others have.
type watches struct {
	byPath [2]map[string][]SessionID
	of     map[SessionID]*watched
}

// watched is what one session watches.
type watched struct {
	paths [2]map[string]struct{}
	bytes int // of the paths
}

func (w *watched) len() int { return len(w.paths[WatchData]) + len(w.paths[WatchChildren]) }

func newWatches() watches {
	return watches{[2]map[string][]SessionID{{}, {}}, map[SessionID]*watched{}}
}

// Watch sets a one-shot watch of a session. It does not matter whether the node
// exists: who may watch a missing node is decided by the call that reads (Exists may).
func (t *Tree) Watch(kind WatchKind, path string, s SessionID) {
	w := t.watches.of[s]
	if w == nil {
		w = &watched{paths: [2]map[string]struct{}{{}, {}}}
		t.watches.of[s] = w
	}
	if _, ok := w.paths[kind][path]; ok {
		return
	}
	w.paths[kind][path] = struct{}{}
	w.bytes += len(path)
	m := t.watches.byPath[kind]
	m[path] = append(m[path], s)
}

// take removes and returns the sessions that watch path.
func (w *watches) take(kind WatchKind, path string) []SessionID {
	sessions := w.byPath[kind][path]
	delete(w.byPath[kind], path)
	for _, s := range sessions {
		had := w.of[s]
		delete(had.paths[kind], path)
		if had.bytes -= len(path); had.len() == 0 {
			delete(w.of, s)
		}
	}
	return sessions
}

// forget removes a session's watches.
func (w *watches) forget(s SessionID) {
	had := w.of[s]
	if had == nil {
		return
	}
	for kind, m := range w.byPath {
		for _, path := range sortedKeys(had.paths[kind]) {
			left := slices.DeleteFunc(m[path], func(have SessionID) bool { return have == s })
			if len(left) == 0 {
				delete(m, path)
			} else {
				m[path] = left
			}
		}
	}
	delete(w.of, s)
}

// appendEvents says what an operation tells to watchers.
func appendEvents(events []Event, kind OpKind, path string) []Event {
	parent, _ := Split(path)
	switch kind {
	case OpCreate:
		return append(events, Event{NodeCreated, path}, Event{NodeChildrenChanged, parent})
	case OpSet:
		return append(events, Event{NodeDataChanged, path})
	case OpDelete:
		return append(events, Event{NodeDeleted, path}, Event{NodeChildrenChanged, parent})
	}
	return events
}

// fire uses up the watches that the events meet. A session that watches a
// deleted node's data and children hears of it once.
func (w *watches) fire(events []Event) []Fired {
	var fired []Fired
	for _, e := range events {
		var hit []SessionID
		switch e.Type {
		case NodeChildrenChanged:
			hit = w.take(WatchChildren, e.Path)
		case NodeDeleted:
			hit = w.take(WatchData, e.Path)
			for _, s := range w.take(WatchChildren, e.Path) {
				if !slices.Contains(hit, s) {
					hit = append(hit, s)
				}
			}
		default:
			hit = w.take(WatchData, e.Path)
		}
		for _, s := range hit {
			fired = append(fired, Fired{s, e})
		}
	}
	return fired
}
