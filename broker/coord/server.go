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

// Watches counts the watches that are set.
func (t *Tree) Watches() int {
	n := 0
	for _, id := range sortedKeys(t.watches.of) {
		n += t.watches.of[id].len()
	}
	return n
}

// WatchesOf counts the watches of a session, and the bytes of their paths.
func (t *Tree) WatchesOf(id SessionID) (n, bytes int) {
	if w := t.watches.of[id]; w != nil {
		return w.len(), w.bytes
	}
	return 0, 0
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
