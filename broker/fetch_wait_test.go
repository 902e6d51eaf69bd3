package broker

import (
	"testing"

	"github.com/tidemark-log/tidemark/storage"
)

// fetchOf gives a fetch that names one partition n times.
func fetchOf(n int) *fetchOp {
	op := &fetchOp{topics: []fetchTopic{{parts: make([]fetchPart, n)}}}
	for i := range n {
		op.topics[0].parts[i] = fetchPart{op: op}
	}
	return op
}

func TestWaitingFetchesNameSoManyPartitionsAtMost(t *testing.T) {
	var w fetchWaits
	var waiting []*fetchOp
	for range waitingPartsMax / 100_000 {
		op := fetchOf(100_000)
		if !w.add(op, 1<<30) {
			t.Fatalf("the fetch after %d is not let wait", len(waiting))
		}
		waiting = append(waiting, op)
	}
	if w.add(fetchOf(1), 1<<30) {
		t.Error("one partition more is let wait")
	}
	w.remove(waiting[0])
	if !w.add(fetchOf(100_000), 1<<30) {
		t.Error("what a fetch gave back is not let wait again")
	}
}

// An append looks at every link of its partition: a fetch that names it a hundred
// thousand times has one.
func TestAFetchWaitsOnceAtAPartitionThatItNamesTwice(t *testing.T) {
	p := &partition{dir: &logDir{store: new(storage.Dir)}, log: struct{ storage.Log }{}}
	op := fetchOf(3)
	op.minBytes = 1
	for i := range op.topics[0].parts {
		f := &op.topics[0].parts[i]
		if f.p = p; f.join() {
			t.Fatal("has enough of nothing")
		}
	}
	links := 0
	for f := p.waiting.first; f != nil; f = f.next {
		links++
	}
	if links != 1 {
		t.Errorf("%d links", links)
	}
}
