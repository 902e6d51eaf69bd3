package coord

// What a server of many sessions asks of the tree, beside transactions.

// HasSession is true while a session is open.
func (t *Tree) HasSession(id SessionID) bool {
	_, ok := t.sessions[id]
	return ok
}

// SessionTimeout is what was granted to a session, in ms; 0 if it is not open.
func (t *Tree) SessionTimeout(id SessionID) int64 {
	if s, ok := t.sessions[id]; ok {
		return s.timeout
	}
	return 0
}

// ForgetWatches drops a session's watches: they belong to its connection.
func (t *Tree) ForgetWatches(id SessionID) { t.watches.forget(id) }

// Watches counts the watches that are set, of one session or, with 0, of all.
func (t *Tree) Watches(of SessionID) int {
	n := 0
	for _, m := range t.watches.byPath {
		for _, path := range sortedKeys(m) {
			for _, id := range m[path] {
				if of == 0 || id == of {
					n++
				}
			}
		}
	}
	return n
}

// Ephemerals counts the nodes that will go with their sessions.
func (t *Tree) Ephemerals() int {
	n := 0
	for _, id := range t.Sessions() {
		n += len(t.sessions[id].ephemerals)
	}
	return n
}

// SetWatches sets again the watches of a session that was away and has seen everything up to
// zxid. What it missed is returned as events, and its watch is used up; of the others
// data are those set on a node that was there, exists those on one that was not.
func (t *Tree) SetWatches(id SessionID, zxid int64, data, exists, children []string) []Event {
	var missed []Event
	for _, path := range data {
		switch n, ok := t.nodes[path]; {
		case !ok:
			missed = append(missed, Event{NodeDeleted, path})
		case n.stat.Mzxid > zxid:
			missed = append(missed, Event{NodeDataChanged, path})
		default:
			t.Watch(WatchData, path, id)
		}
	}
	for _, path := range exists {
		if _, ok := t.nodes[path]; ok {
			missed = append(missed, Event{NodeCreated, path})
		} else {
			t.Watch(WatchData, path, id)
		}
	}
	for _, path := range children {
		switch n, ok := t.nodes[path]; {
		case !ok:
			missed = append(missed, Event{NodeDeleted, path})
		case n.stat.Pzxid > zxid:
			missed = append(missed, Event{NodeChildrenChanged, path})
		default:
			t.Watch(WatchChildren, path, id)
		}
	}
	return missed
}
