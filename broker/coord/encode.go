package coord

import (
	"encoding/binary"
	"errors"
)

// The bodies of journal entries: varints, and byte strings with their length
// before them.

func appendBytes(b, field []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder reads a body; the first error stays.
type decoder struct {
	b   []byte
	err error
}

var errBody = errors.New("the entry's body is malformed")

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.err = nil, errBody
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.b, d.err = nil, errBody
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes copies: what is kept must not hold the whole journal in memory.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.b, d.err = nil, errBody
		return nil
	}
	field := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return field
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads the number of items of at least one byte that follow.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.b, d.err = nil, errBody
		return 0
	}
	return int(n)
}

func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		return errBody
	}
	return d.err
}

func appendTxn(b []byte, txn Txn) []byte {
	b = append(b, byte(txn.Kind))
	b = binary.AppendVarint(b, int64(txn.Session))
	b = binary.AppendVarint(b, txn.Time)
	b = binary.AppendVarint(b, txn.Timeout)
	b = binary.AppendUvarint(b, uint64(len(txn.Ops)))
	for _, op := range txn.Ops {
		b = append(b, byte(op.Kind), byte(op.Mode))
		b = binary.AppendVarint(b, int64(op.Version))
		b = appendString(b, op.Path)
		b = appendBytes(b, op.Data)
	}
	return b
}

func decodeTxn(b []byte) (Txn, error) {
	d := decoder{b: b}
	txn := Txn{Kind: TxnKind(d.uint()), Session: SessionID(d.int()), Time: d.int(), Timeout: d.int()}
	n := d.count()
	for i := 0; i < n && d.err == nil; i++ {
		txn.Ops = append(txn.Ops, Op{
			Kind: OpKind(d.uint()), Mode: CreateMode(d.uint()), Version: int32(d.int()),
			Path: d.string(), Data: d.bytes(),
		})
	}
	if txn.Kind < TxnOps || txn.Kind > TxnCloseSession {
		return txn, errBody
	}
	return txn, d.end()
}

// appendTree encodes nodes and sessions; watches live and die with their connection.
func appendTree(b []byte, t *Tree) []byte {
	b = binary.AppendVarint(b, t.zxid)
	b = binary.AppendUvarint(b, uint64(len(t.sessions)))
	for _, id := range t.Sessions() {
		b = binary.AppendVarint(b, int64(id))
		b = binary.AppendVarint(b, t.sessions[id].timeout)
	}
	b = binary.AppendUvarint(b, uint64(len(t.nodes)))
	for _, path := range sortedKeys(t.nodes) { // a parent is a prefix, so it comes first
		n := t.nodes[path]
		b = appendString(b, path)
		b = appendBytes(b, n.data)
		for _, v := range [...]int64{
			n.stat.Czxid, n.stat.Mzxid, n.stat.Pzxid, n.stat.Ctime, n.stat.Mtime,
			int64(n.stat.Version), int64(n.creates), int64(n.stat.EphemeralOwner),
		} {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

func decodeTree(b []byte) (*Tree, error) {
	d := decoder{b: b}
	t := NewTree()
	t.zxid = d.int()
	for n := d.count(); n > 0 && d.err == nil; n-- {
		t.sessions[SessionID(d.int())] = &session{timeout: d.int(), ephemerals: map[string]struct{}{}}
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		path := d.string()
		nd := &node{data: d.bytes()}
		nd.stat.Czxid, nd.stat.Mzxid, nd.stat.Pzxid, nd.stat.Ctime, nd.stat.Mtime = d.int(), d.int(), d.int(), d.int(), d.int()
		nd.stat.Version, nd.creates, nd.stat.EphemeralOwner = int32(d.int()), int32(d.int()), SessionID(d.int())
		if d.err != nil {
			break
		}
		if err := t.restore(path, nd); err != nil {
			return nil, err
		}
	}
	return t, d.end()
}

// restore puts a node of a snapshot into its place.
func (t *Tree) restore(path string, n *node) error {
	if path == "/" {
		if len(t.nodes) > 1 {
			return errBody
		}
		t.nodes["/"] = n
		t.bytes = int64(len(n.data)) // as set counts it
		return nil
	}
	if ValidatePath(path) != nil || t.nodes[path] != nil {
		return errBody
	}
	if parent, _ := Split(path); t.nodes[parent] == nil {
		return errBody
	}
	if owner := n.stat.EphemeralOwner; owner != 0 {
		s, ok := t.sessions[owner]
		if !ok {
			return errBody
		}
		s.ephemerals[path] = struct{}{}
	}
	t.attach(path, n)
	return nil
}
