package coord

import (
	"cmp"
	"maps"
	"slices"
)

// session is a client's lease: while it lives its ephemerals stand.
type session struct {
	timeout    int64 // ms, negotiated when it was opened
	expiresAt  int64 // ms, on a tick boundary; 0 until the first Touch: such a session does not expire
	ephemerals map[string]struct{}
}

// TickMs is the grain of session expiry: ZooKeeper's tickTime. A timeout is
// negotiated to between 2 and 20 ticks, and a session expires on a tick boundary.
const TickMs = 2000

// NegotiateTimeout gives the timeout that the service grants for the asked one, in ms.
func NegotiateTimeout(asked int64) int64 { return max(2*TickMs, min(asked, 20*TickMs)) }

func (t *Tree) openSession(txn Txn) error {
	if _, ok := t.sessions[txn.Session]; ok || txn.Session == 0 {
		return ErrBadArguments
	}
	t.zxid++
	t.sessions[txn.Session] = &session{timeout: NegotiateTimeout(txn.Timeout), ephemerals: map[string]struct{}{}}
	return nil
}

// closeSession ends a session in one transaction: its ephemerals go, in the
// order of their paths, and others hear of it.
func (t *Tree) closeSession(txn Txn) ([]Result, []Fired, error) {
	s, ok := t.sessions[txn.Session]
	if !ok {
		return nil, nil, ErrSessionExpired
	}
	t.zxid++
	t.watches.forget(txn.Session)
	var events []Event
	var results []Result
	for _, path := range sortedKeys(s.ephemerals) {
		t.remove(path, t.nodes[path], t.zxid)
		events = appendEvents(events, OpDelete, path)
		results = append(results, Result{Path: path})
	}
	delete(t.sessions, txn.Session)
	return results, t.watches.fire(events), nil
}

// Touch says that a session was heard from at now (ms, of a clock that never goes back).
func (t *Tree) Touch(id SessionID, now int64) error { return t.TouchFor(id, now, t.SessionTimeout(id)) }

// TouchFor is Touch where the connection that was heard from has negotiated a timeout of
// its own, in ms. That is no part of the state: after a restart the session has its first one until a connection comes.
func (t *Tree) TouchFor(id SessionID, now, timeout int64) error {
	s, ok := t.sessions[id]
	if !ok {
		return ErrSessionExpired
	}
	s.expiresAt = ((now+timeout)/TickMs + 1) * TickMs
	return nil
}

// Expired gives the sessions whose time is over at now, ascending. The caller closes them.
func (t *Tree) Expired(now int64) []SessionID {
	var over []SessionID
	for _, id := range t.Sessions() {
		if s := t.sessions[id]; s.expiresAt != 0 && s.expiresAt <= now {
			over = append(over, id)
		}
	}
	return over
}

// Sessions gives the open sessions, ascending.
func (t *Tree) Sessions() []SessionID { return slices.Sorted(maps.Keys(t.sessions)) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
