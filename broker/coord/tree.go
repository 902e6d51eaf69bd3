package coord

import (
	"fmt"
	"maps"
	"slices"
)

// Tree is the node tree with its sessions and watches. It changes by Apply
// alone and depends on nothing but what it is given, so the same transactions
// make the same tree. It is not safe for concurrent use.
type Tree struct {
	nodes    map[string]*node // by path; "/" is always there
	zxid     int64            // of the last transaction
	sessions map[SessionID]*session
	watches  watches
	bytes    int64 // what the nodes take: names, data and nodeOverhead each
	bytesMax int64 // no operation makes it more; 0: as much as there is room for
}

// nodeOverhead is about what a node takes beside its path and data, in a snapshot and in memory alike.
const nodeOverhead = 64

// Limit has create and set refused with ErrQuotaExceeded where the nodes would come to more bytes. What is there stays.
func (t *Tree) Limit(bytes int64) { t.bytesMax = bytes }

// hasRoom says whether the nodes may grow by so many bytes.
func (t *Tree) hasRoom(bytes int) bool {
	return bytes <= 0 || t.bytesMax == 0 || t.bytes+int64(bytes) <= t.bytesMax
}

func (n *node) size(path string) int { return len(path) + len(n.data) + nodeOverhead }

// node is one node. Invariant: data is never changed in place, so it may be handed out.
type node struct {
	data     []byte
	stat     Stat // without Cversion, DataLength, NumChildren, which are derived
	creates  int32
	children map[string]struct{} // by name; nil until there is one
}

// NewTree is a tree of the root alone.
func NewTree() *Tree {
	return &Tree{
		nodes:    map[string]*node{"/": {}},
		sessions: map[SessionID]*session{},
		watches:  newWatches(),
	}
}

// Zxid is the number of the last transaction.
func (t *Tree) Zxid() int64 { return t.zxid }

// Len is the number of nodes, root included.
func (t *Tree) Len() int { return len(t.nodes) }

// fullStat derives what is not kept. ZooKeeper counts child creations (which
// number sequential nodes) and reports creations and deletions.
func (n *node) fullStat() Stat {
	s := n.stat
	s.NumChildren = int32(len(n.children))
	s.Cversion = n.creates*2 - s.NumChildren
	s.DataLength = int32(len(n.data))
	return s
}

// Get reads a node. The bytes are shared.
func (t *Tree) Get(path string) ([]byte, Stat, error) {
	n, err := t.find(path)
	if err != nil {
		return nil, Stat{}, err
	}
	return n.data, n.fullStat(), nil
}

// Exists reads a node's metadata.
func (t *Tree) Exists(path string) (Stat, error) {
	n, err := t.find(path)
	if err != nil {
		return Stat{}, err
	}
	return n.fullStat(), nil
}

// Children gives the names of a node's children, ascending.
func (t *Tree) Children(path string) ([]string, Stat, error) {
	n, err := t.find(path)
	if err != nil {
		return nil, Stat{}, err
	}
	return slices.Sorted(maps.Keys(n.children)), n.fullStat(), nil
}

func (t *Tree) find(path string) (*node, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	n, ok := t.nodes[path]
	if !ok {
		return nil, ErrNoNode
	}
	return n, nil
}

// TxnKind is what a transaction does.
type TxnKind uint8

const (
	TxnOps TxnKind = iota + 1
	TxnOpenSession
	TxnCloseSession
)

// Txn is one transaction: what the journal records and a replay repeats.
type Txn struct {
	Kind    TxnKind
	Session SessionID
	Time    int64 // wall time, ms: ctime and mtime
	Ops     []Op
	Timeout int64 // ms, of TxnOpenSession
}

// Apply makes all of a transaction's changes or none. err is that of the first
// operation that failed; results are as Client.Multi says. Fired watches come in the order of the changes.
func (t *Tree) Apply(txn Txn) (results []Result, fired []Fired, err error) {
	switch txn.Kind {
	case TxnOpenSession:
		return nil, nil, t.openSession(txn)
	case TxnCloseSession:
		return t.closeSession(txn)
	case TxnOps:
		return t.applyOps(txn)
	}
	panic(fmt.Sprintf("BUG: coord: unknown transaction kind %d", txn.Kind))
}

func (t *Tree) applyOps(txn Txn) ([]Result, []Fired, error) {
	results := make([]Result, len(txn.Ops))
	var events []Event
	var undo []func()
	zxid := t.zxid + 1
	for i, op := range txn.Ops {
		r, back, err := t.applyOp(op, txn, zxid)
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
			for j := range results {
				results[j] = Result{}
				if j > i {
					results[j].Err = ErrRuntimeInconsistency
				}
			}
			results[i].Err = err
			return results, nil, err
		}
		if back != nil {
			undo = append(undo, back)
		}
		results[i] = r
		events = appendEvents(events, op.Kind, r.Path)
	}
	t.zxid = zxid
	return results, t.watches.fire(events), nil
}

// applyOp makes one change and says how to take it back.
func (t *Tree) applyOp(op Op, txn Txn, zxid int64) (Result, func(), error) {
	whole := op.Path
	if op.Kind == OpCreate && op.Mode&Sequential != 0 {
		whole += "0" // "/queue/" is a good name for numbers alone
	}
	if err := ValidatePath(whole); err != nil {
		return Result{}, nil, err
	}
	if len(op.Data) > DataBytesMax {
		return Result{}, nil, ErrTooLarge
	}
	switch op.Kind {
	case OpCreate:
		return t.create(op, txn, zxid)
	case OpSet:
		return t.set(op, txn, zxid)
	case OpDelete:
		return t.delete(op, zxid)
	case OpCheck:
		if n, ok := t.nodes[op.Path]; !ok {
			return Result{}, nil, ErrNoNode
		} else if op.Version != AnyVersion && op.Version != n.stat.Version {
			return Result{}, nil, ErrBadVersion
		}
		return Result{Path: op.Path}, nil, nil
	}
	return Result{}, nil, ErrBadArguments
}

func (t *Tree) create(op Op, txn Txn, zxid int64) (Result, func(), error) {
	path := op.Path
	if path == "/" {
		return Result{}, nil, ErrNodeExists
	}
	parentPath, _ := Split(path)
	parent, ok := t.nodes[parentPath]
	if !ok {
		return Result{}, nil, ErrNoNode
	}
	if op.Mode&Sequential != 0 {
		path = fmt.Sprintf("%s%010d", path, parent.creates)
	}
	if _, ok := t.nodes[path]; ok {
		return Result{}, nil, ErrNodeExists
	}
	if parent.stat.EphemeralOwner != 0 {
		return Result{}, nil, ErrNoChildrenForEphemerals
	}
	if !t.hasRoom(len(path) + len(op.Data) + nodeOverhead) {
		return Result{}, nil, ErrQuotaExceeded
	}
	n := &node{data: slices.Clone(op.Data), stat: Stat{Czxid: zxid, Mzxid: zxid, Pzxid: zxid, Ctime: txn.Time, Mtime: txn.Time}}
	if op.Mode&Ephemeral != 0 {
		s, ok := t.sessions[txn.Session]
		if !ok {
			return Result{}, nil, ErrSessionExpired
		}
		n.stat.EphemeralOwner = txn.Session
		s.ephemerals[path] = struct{}{}
	}
	pzxid := parent.stat.Pzxid
	t.attach(path, n)
	parent.creates++
	parent.stat.Pzxid = zxid
	return Result{Path: path, Stat: n.fullStat()}, func() {
		t.detach(path, n)
		parent.creates--
		parent.stat.Pzxid = pzxid
	}, nil
}

func (t *Tree) set(op Op, txn Txn, zxid int64) (Result, func(), error) {
	n, ok := t.nodes[op.Path]
	if !ok {
		return Result{}, nil, ErrNoNode
	}
	if op.Version != AnyVersion && op.Version != n.stat.Version {
		return Result{}, nil, ErrBadVersion
	}
	grows := len(op.Data) - len(n.data)
	if !t.hasRoom(grows) {
		return Result{}, nil, ErrQuotaExceeded
	}
	data, stat := n.data, n.stat
	n.data = slices.Clone(op.Data)
	t.bytes += int64(grows)
	n.stat.Mzxid, n.stat.Mtime = zxid, txn.Time
	n.stat.Version++
	return Result{Path: op.Path, Stat: n.fullStat()}, func() {
		n.data, n.stat = data, stat
		t.bytes -= int64(grows)
	}, nil
}

func (t *Tree) delete(op Op, zxid int64) (Result, func(), error) {
	if op.Path == "/" {
		return Result{}, nil, ErrBadArguments
	}
	n, ok := t.nodes[op.Path]
	switch {
	case !ok:
		return Result{}, nil, ErrNoNode
	case op.Version != AnyVersion && op.Version != n.stat.Version:
		return Result{}, nil, ErrBadVersion
	case len(n.children) > 0:
		return Result{}, nil, ErrNotEmpty
	}
	return Result{Path: op.Path}, t.remove(op.Path, n, zxid), nil
}

// remove takes out a node without children and says how to put it back.
func (t *Tree) remove(path string, n *node, zxid int64) (undo func()) {
	parentPath, _ := Split(path)
	parent := t.nodes[parentPath]
	pzxid := parent.stat.Pzxid
	t.detach(path, n)
	parent.stat.Pzxid = zxid
	return func() {
		t.attach(path, n)
		if s, ok := t.sessions[n.stat.EphemeralOwner]; ok {
			s.ephemerals[path] = struct{}{}
		}
		parent.stat.Pzxid = pzxid
	}
}

func (t *Tree) attach(path string, n *node) {
	parentPath, name := Split(path)
	parent := t.nodes[parentPath]
	if parent.children == nil {
		parent.children = map[string]struct{}{}
	}
	parent.children[name] = struct{}{}
	t.nodes[path] = n
	t.bytes += int64(n.size(path))
}

func (t *Tree) detach(path string, n *node) {
	parentPath, name := Split(path)
	delete(t.nodes[parentPath].children, name)
	delete(t.nodes, path)
	t.bytes -= int64(n.size(path))
	if s, ok := t.sessions[n.stat.EphemeralOwner]; ok {
		delete(s.ephemerals, path)
	}
}
