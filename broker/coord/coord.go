// Package coord is the coordination service a cluster keeps its metadata in: a
// tree of small nodes with versions, ephemerals and watches, with the
// semantics of ZooKeeper 3.8.
//
// It decides only. Tree is a plain data structure that changes by transactions.
// Client is what the broker sees: asynchronous, because behind it may stand
// an ensemble that takes time and loses connections. Local is the Client of a cluster of one: the
// same tree kept in a journal over storage/vfs, durable before it answers.
//
// A test holds the tree against a real ZooKeeper. What that has and this does
// not: ACLs, quotas, container and TTL nodes, persistent watches. A refused write takes
// no zxid here; there it does.
package coord

// SessionID names a session; 0 is none.
type SessionID int64

// Stat is a node's metadata.
type Stat struct {
	Czxid          int64     // transaction that created the node
	Mzxid          int64     // transaction that last set its data
	Ctime          int64     // ms
	Mtime          int64     // ms
	Version        int32     // times the data was set
	Cversion       int32     // children created and deleted
	EphemeralOwner SessionID // 0: not ephemeral
	DataLength     int32     // bytes
	NumChildren    int32
	Pzxid          int64 // transaction that last created or deleted a child
}

// CreateMode says what kind of node Create makes.
type CreateMode uint8

const (
	Persistent CreateMode = 0
	Ephemeral  CreateMode = 1 << 0 // goes when its session goes; has no children
	Sequential CreateMode = 1 << 1 // a number of ten digits is added to its name
)

// OpKind is what one operation of a transaction does.
type OpKind uint8

const (
	OpCreate OpKind = iota + 1
	OpSet
	OpDelete
	OpCheck // compares the version, changes nothing
)

// AnyVersion, as the version of Set, Delete or Check, matches all.
const AnyVersion int32 = -1

// Op is one operation. Use the constructors.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte
	Version int32
	Mode    CreateMode
}

// CreateOp makes a node.
func CreateOp(path string, data []byte, mode CreateMode) Op {
	return Op{Kind: OpCreate, Path: path, Data: data, Mode: mode}
}

// SetOp replaces a node's data if it has that version.
func SetOp(path string, data []byte, version int32) Op {
	return Op{Kind: OpSet, Path: path, Data: data, Version: version}
}

// DeleteOp removes a node without children if it has that version.
func DeleteOp(path string, version int32) Op {
	return Op{Kind: OpDelete, Path: path, Version: version}
}

// CheckOp demands that a node exists with that version.
func CheckOp(path string, version int32) Op {
	return Op{Kind: OpCheck, Path: path, Version: version}
}

// Result is what became of one operation.
type Result struct {
	Path string // with its number, for a sequential create
	Stat Stat   // after a create or set
	Err  error
}

// EventType is what a watch saw.
type EventType int32

// ZooKeeper's numbers.
const (
	NodeCreated         EventType = 1
	NodeDeleted         EventType = 2
	NodeDataChanged     EventType = 3
	NodeChildrenChanged EventType = 4
)

func (t EventType) String() string {
	switch t {
	case NodeCreated:
		return "created"
	case NodeDeleted:
		return "deleted"
	case NodeDataChanged:
		return "data-changed"
	case NodeChildrenChanged:
		return "children-changed"
	}
	return "unknown"
}

// Event is what a watch receives, once. It says that something changed, not to
// what: read again, and watch again with that read.
type Event struct {
	Type EventType
	Path string
}

// Limits of one node and one transaction: ZooKeeper's jute.maxbuffer, under
// which a request must stay as a whole.
const (
	DataBytesMax  = 1<<20 - 1024
	MultiBytesMax = 1<<20 - 1024 // of paths and data together, see Bulk
)

// Client is one session with the coordination service (its life: SessionState).
//
// Calls. Every call is asynchronous: done, and watch, run later, never inside the
// call, with no lock held. Every done runs exactly once and within a bounded time. What done
// reports without an error is durable and visible to every later read of this client. Bytes
// that are handed out are shared: do not change them.
//
// Callbacks of one client, state's included, come one at a time.
//
// Order. Calls take effect, and complete, in any order unless chained: a call that is made
// from another's done, or after it, takes effect after it. What a client has seen never goes back,
// but another client's change may be unseen for a while, also by a read that begins
// after that change was acknowledged; a conditional write always meets the newest state.
//
// Errors. One of this package's ErrX, or another when the service itself failed; the latter,
// ErrConnectionLoss, and ErrSessionExpired of a call that was made before the session's end
// leave the outcome unknown: applied or not. The rest change nothing. While disconnected every call ends
// with ErrConnectionLoss, never queued for the reconnection; a call in flight does so when the loss is
// noticed. What was in flight then is applied before any later write of this client, or never; a
// later read may miss it all the same: repair with a conditional write, not with a read alone.
// After the session's end, and after Close, every call ends with ErrSessionExpired.
// ErrThrottled: too many calls are in flight, nothing was done.
//
// Watches. A nil watch sets none. A watch is set if its call succeeded (Exists: also with
// ErrNoNode). It fires once at most, for the first change after that read, and never before that
// call's done. It may fire before or after the done of any other call, the one that made the change
// included. While disconnected it stays, and is set again on reconnection: a change that was missed fires it then,
// one event for many changes, which may name the last of them (a node deleted and made again: data-changed). After the session's
// end or Close no watch fires, not even to say so.
//
// Local is stricter (everything in order); do not rely on it.
type Client interface {
	Create(path string, data []byte, mode CreateMode, done func(path string, s Stat, err error))
	// Set: version AnyVersion, or ErrBadVersion unless it is the node's.
	Set(path string, data []byte, version int32, done func(Stat, error))
	Delete(path string, version int32, done func(error))
	// Get sets the watch only if the node exists.
	Get(path string, watch func(Event), done func(data []byte, s Stat, err error))
	// Exists sets the watch in any case: it also sees the node come into being. A missing node is ErrNoNode.
	Exists(path string, watch func(Event), done func(Stat, error))
	// Children gives names, ascending, without the path.
	Children(path string, watch func(Event), done func(names []string, s Stat, err error))
	// Multi applies all operations or none, as one transaction. On failure err is that of the
	// operation that failed; in results operations before it have a nil Err though
	// they were not applied, and those after it ErrRuntimeInconsistency, as in ZooKeeper.
	// ErrTooLarge when the operations together exceed MultiBytesMax.
	Multi(ops []Op, done func(results []Result, err error))
	// Session is this client's session, for comparing with Stat.EphemeralOwner; 0 before the first Connected.
	Session() SessionID
	// Close ends the session, so its ephemerals go. done runs when that is durable, or with an error when it
	// cannot be known (then the timeout ends it). Calls in flight end with their answer or ErrSessionExpired.
	Close(done func(error))
}

// Bulk runs many operations as transactions below MultiBytesMax, one after the
// other: each is atomic, the whole is not. It stops at the first that fails.
func Bulk(c Client, ops []Op, done func(error)) {
	n, size := 0, 0
	for n < len(ops) && (n == 0 || size+ops[n].size() <= MultiBytesMax) {
		size += ops[n].size()
		n++
	}
	if n == len(ops) {
		c.Multi(ops, func(_ []Result, err error) { done(err) })
		return
	}
	c.Multi(ops[:n], func(_ []Result, err error) {
		if err != nil {
			done(err)
			return
		}
		Bulk(c, ops[n:], done)
	})
}

// opOverhead is more than ZooKeeper's encoding of an operation adds to path and data, ACL included.
const opOverhead = 64

func (o Op) size() int { return len(o.Path) + len(o.Data) + opOverhead }
