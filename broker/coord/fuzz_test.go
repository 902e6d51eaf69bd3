package coord

import (
	"bytes"
	"testing"
)

// FuzzLoadJournal: no bytes make loading panic, and what loads encodes and decodes to itself.
func FuzzLoadJournal(f *testing.F) {
	t := NewTree()
	t.mustApply(Txn{Kind: TxnOpenSession, Session: 1})
	t.mustApply(Txn{Kind: TxnOps, Session: 1, Ops: []Op{CreateOp("/a", []byte("x"), Persistent), CreateOp("/e", nil, Ephemeral)}})
	f.Add(appendTree(nil, t), []byte{})
	f.Add(appendTree(nil, t), appendTxn(nil, Txn{Kind: TxnOps, Session: 1, Ops: []Op{SetOp("/a", []byte("y"), 0)}}))
	f.Add(appendTree(nil, t), appendTxn(nil, Txn{Kind: TxnCloseSession, Session: 1}))
	f.Fuzz(func(t *testing.T, snapshot, txn []byte) {
		// Bodies are fuzzed, not CRCs: no mutation gets past those.
		b := append(beginEntry(nil), snapshot...)
		tree, err := decodeTree(snapshot)
		zxid := int64(0)
		if err == nil {
			zxid = tree.zxid
		}
		crc := endEntry(b, 0, entrySnapshot, 0, zxid, 0)
		if len(txn) > 0 {
			at := len(b)
			b = append(beginEntry(b), txn...)
			endEntry(b, at, entryTxn, crc, zxid+1, int64(at))
		}
		got, err := loadJournal("f", b)
		if err != nil {
			return
		}
		again, err := decodeTree(appendTree(nil, got.tree))
		if err != nil || dump(again) != dump(got.tree) {
			t.Fatalf("%v", err)
		}
	})
}

// FuzzNodes: no bytes make a decoder panic, and what one accepts encodes to what decodes to the same.
func FuzzNodes(f *testing.F) {
	for i, d := range decoders {
		for _, bad := range d.damaged {
			f.Add(uint8(i), []byte(bad))
		}
	}
	f.Add(uint8(1), BrokerRegistration{Host: "h", Port: 1}.Encode())
	f.Add(uint8(2), TopicAssignment{Replicas: [][]int32{{1, 2}}, Adding: map[int32][]int32{0: {2}}}.Encode())
	f.Add(uint8(3), PartitionState{ISR: []int32{1}, ELR: []int32{2}}.Encode())
	f.Add(uint8(8), EncodeReassignments([]Reassignment{{TopicPartition{"t", 1}, []int32{2}}}))
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		d := decoders[int(which)%len(decoders)]
		if d.decode(b) != nil {
			return
		}
		once := d.again(b)
		if err := d.decode(once); err != nil {
			t.Fatalf("%s: %q encodes to %q: %v", d.name, b, once, err)
		}
		if twice := d.again(once); !bytes.Equal(once, twice) {
			t.Fatalf("%s: %q then %q", d.name, once, twice)
		}
	})
}
