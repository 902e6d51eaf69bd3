package coord

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// What the nodes take is counted through transactions that fail half way, the end of sessions, and a snapshot; and
// never comes to more than the limit.
func TestTheTreeKeepsNoMoreThanItsLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	tree := NewTree()
	const limit = 3000
	tree.Limit(limit)
	refused := 0
	path := func() string { return "/" + string(rune('a'+rng.IntN(12))) }
	for i := range 5000 {
		var txn Txn
		switch id := SessionID(1 + rng.IntN(3)); {
		case tree.HasSession(id) && rng.IntN(20) == 0:
			txn = Txn{Kind: TxnCloseSession, Session: id}
		case !tree.HasSession(id):
			txn = Txn{Kind: TxnOpenSession, Session: id}
		default:
			txn = Txn{Kind: TxnOps, Session: id}
			for range 1 + rng.IntN(3) {
				data := make([]byte, rng.IntN(700))
				txn.Ops = append(txn.Ops, []Op{
					CreateOp(path(), data, CreateMode(rng.IntN(4))), SetOp(path(), data, AnyVersion), SetOp("/", data, AnyVersion), DeleteOp(path(), AnyVersion),
				}[rng.IntN(4)])
			}
		}
		if _, _, err := tree.Apply(txn); err == ErrQuotaExceeded {
			refused++
		}
		if i%50 == 0 {
			again, err := decodeTree(appendTree(nil, tree))
			if err != nil {
				t.Fatal(err)
			}
			tree, again.watches = again, tree.watches
			tree.Limit(limit)
		}
		want := int64(-nodeOverhead - 1) // the root is there before anything
		for path, n := range tree.nodes {
			want += int64(n.size(path))
		}
		if tree.bytes != want || want > limit {
			t.Fatalf("after %d: %d bytes counted, %d are there", i, tree.bytes, want)
		}
	}
	if refused == 0 {
		t.Error("the limit was not reached")
	}
}

// A journal that a restart would refuse for its size is not written, so nothing in it is acknowledged.
func TestNoJournalBecomesLargerThanARestartReads(t *testing.T) {
	disk, tree := vfs.NewSim(nil), (*Tree)(nil)
	s, tree, _, err := OpenStore(disk, "data")
	if err != nil {
		t.Fatal(err)
	}
	s.bytesMax = 4000
	kept := 0
	for ; kept < 100; kept++ {
		txn := Txn{Kind: TxnOps, Ops: []Op{CreateOp(fmt.Sprintf("/%d", kept), []byte(strings.Repeat("x", 100)), Persistent)}}
		if _, _, err := tree.Apply(txn); err != nil {
			t.Fatal(err)
		}
		s.Add(txn, tree)
		if err = s.Commit(tree); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "more than a restart would read") {
		t.Fatalf("after %d nodes: %v", kept, err)
	}
	_ = s.Close(tree)
	info, err := disk.Stat("data/" + journalName)
	if err != nil || info.Size > 4000 {
		t.Fatalf("%v, %d bytes", err, info.Size)
	}
	if _, after, _, err := OpenStore(disk, "data"); err != nil || after.Len() != kept+1 {
		t.Fatalf("%v: %d nodes, want %d", err, after.Len(), kept+1)
	}
}
