package coord

import "testing"

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
