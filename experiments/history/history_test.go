package history

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
)

// world is a partition under test and its one producer.
type world struct {
	*Partition
	n int64
}

func newWorld(p Promises) *world { return &world{Partition: New(1, p)[0]} }

// send makes the producer's next batch, of two records.
func (w *world) send(session int64, sequence int32) *Batch {
	w.n++
	build := record.NewBuilder(record.None)
	if session >= 0 {
		build.ProducerID, build.ProducerEpoch, build.BaseSequence = session, 0, sequence
	}
	for i := range 2 {
		build.Append(1000*w.n, nil, fmt.Appendf(nil, "batch %d record %d", w.n, i))
	}
	b := &Batch{Session: session, Sequence: sequence, Number: w.n, Timestamp: 1000 * w.n, Records: 2, Bytes: build.Build(nil)}
	w.Sent(b)
	return b
}

// at gives a batch as a broker stores it.
func at(b *Batch, offset int64) []byte {
	stored := append([]byte(nil), b.Bytes...)
	record.SetBaseOffset(stored, offset)
	return stored
}

var keepAll = Promises{AckIsDurable: true, RetentionBytes: -1, RetentionMs: -1}

func want(t *testing.T, v *Violation, invariant string) {
	t.Helper()
	switch {
	case v == nil && invariant != "":
		t.Errorf("no violation of %s", invariant)
	case v != nil && (invariant == "" || !strings.HasPrefix(v.Text, invariant+":")):
		t.Errorf("want %q: %v", invariant, v)
	}
}

func TestAReadIsExactlyWhatWasSent(t *testing.T) {
	w := newWorld(keepAll)
	a, b := w.send(-1, -1), w.send(-1, -1)
	data := append(at(a, 0), at(b, 2)...)
	next, v := w.Read(0, data, 4)
	want(t, v, "")
	if next != 4 || w.End() != 4 || len(w.Bases()) != 2 {
		t.Errorf("next %d, end %d, bases %v", next, w.End(), w.Bases())
	}
	_, v = w.Read(1, data[:len(data)-5], 4) // begins inside a batch, ends with one cut off
	want(t, v, "")
}

func TestEachKindOfWrongReadIsAViolation(t *testing.T) {
	for _, c := range []struct {
		name, invariant string
		read            func(w *world, a, b *Batch) *Violation
	}{
		{"a flipped bit", "S26", func(w *world, a, b *Batch) *Violation {
			data := at(a, 0)
			data[len(data)-1] ^= 1
			_, v := w.Read(0, data, 9)
			return v
		}},
		{"no batch at all", "S26", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(0, make([]byte, 100), 9)
			return v
		}},
		{"a batch nobody sent", "S11", func(w *world, a, b *Batch) *Violation {
			other := newWorld(keepAll)
			other.n = 100
			_, v := w.Read(0, at(other.send(-1, -1), 0), 9)
			return v
		}},
		{"the same records of another producer", "S11", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(0, at(newWorld(keepAll).send(7, 0), 0), 9)
			return v
		}},
		{"another batch at an offset that was read before", "S12", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(0, at(a, 0), 9)
			if v == nil {
				_, v = w.Read(0, at(b, 0), 9)
			}
			return v
		}},
		{"another batch at an offset that was acknowledged", "S12", func(w *world, a, b *Batch) *Violation {
			v := w.Acked(a, 0)
			if v == nil {
				_, v = w.Read(0, at(b, 0), 9)
			}
			return v
		}},
		{"batches that overlap", "S12", func(w *world, a, b *Batch) *Violation {
			v := w.Acked(a, 1)
			if v == nil {
				v = w.Acked(b, 0)
			}
			return v
		}},
		{"a batch of a topic that was deleted", "S11", func(w *world, a, b *Batch) *Violation {
			v := w.Acked(a, 0)
			w.Renewed()
			if v == nil {
				_, v = w.Read(0, append(at(b, 0), at(a, 2)...), 9)
			}
			return v
		}},
		{"a gap", "S22", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(0, append(at(a, 0), at(b, 3)...), 9)
			return v
		}},
		{"a fetch answered from further on", "S22", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(0, at(a, 2), 9)
			return v
		}},
		{"a fetch answered from before", "S25", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(2, at(a, 0), 9)
			return v
		}},
		{"above the high watermark", "S10", func(w *world, a, b *Batch) *Violation {
			_, v := w.Read(0, append(at(a, 0), at(b, 2)...), 3)
			return v
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(keepAll)
			a, b := w.send(-1, -1), w.send(-1, -1)
			want(t, c.read(w, a, b), c.invariant)
		})
	}
}

func TestAnIdempotentBatchLiesAtOnePlace(t *testing.T) {
	w := newWorld(keepAll)
	a := w.send(5, 0)
	want(t, w.Acked(a, 0), "")
	want(t, w.Acked(a, 0), "") // a resend, answered as the first send was
	want(t, w.Acked(a, 2), "S15")
}

func TestABatchThatMayBeSentAgainMayLieAtTwoPlaces(t *testing.T) {
	w := newWorld(keepAll)
	a := w.send(-1, -1)
	want(t, w.Acked(a, 0), "")
	want(t, w.Acked(a, 2), "")
}

func TestAfterAKillEverythingKnownIsThere(t *testing.T) {
	w := newWorld(Promises{RetentionBytes: -1, RetentionMs: -1})
	a, b := w.send(-1, -1), w.send(-1, -1)
	want(t, w.Acked(a, 0), "")
	_, v := w.Read(2, at(b, 2), 4) // read, never acknowledged
	want(t, v, "")
	_, v = w.Recovered(0, 2, at(a, 0), false, 0)
	want(t, v, "S26")
	found, v := w.Recovered(0, 2, at(a, 0), true, 0) // a power cut may take it
	want(t, v, "")
	if found.Lost != 1 || w.End() != 2 {
		t.Errorf("%+v, end %d", found, w.End())
	}
	_, v = w.Read(2, at(w.send(-1, -1), 2), 4) // the offset is free again
	want(t, v, "")
}

func TestAfterAPowerCutWhatWasPromisedDurableIsThere(t *testing.T) {
	w := newWorld(keepAll)
	a := w.send(-1, -1)
	want(t, w.Acked(a, 0), "")
	_, v := w.Recovered(0, 0, nil, true, 0)
	want(t, v, "S7")

	w = newWorld(Promises{RetentionBytes: -1, RetentionMs: -1})
	want(t, w.Acked(w.send(-1, -1), 0), "")
	w.AllDurable() // a clean shutdown promises, too
	_, v = w.Recovered(0, 0, nil, true, 0)
	want(t, v, "S7")

	w = newWorld(Promises{ReadIsDurable: true, RetentionBytes: -1, RetentionMs: -1})
	_, v = w.Read(0, at(w.send(-1, -1), 0), 2)
	want(t, v, "")
	_, v = w.Recovered(0, 0, nil, true, 0)
	want(t, v, "S10")
}

func TestARecoveredLogIsReadToItsEnd(t *testing.T) {
	w := newWorld(keepAll)
	a := w.send(-1, -1)
	_, v := w.Recovered(0, 4, at(a, 0), false, 0)
	want(t, v, "S26")
	_, v = w.Recovered(0, 4, nil, false, 0)
	want(t, v, "S26")
}

func TestOrderAndGapsWithinASession(t *testing.T) {
	for _, c := range []struct {
		name, invariant string
		order           []int // of batches with sequences 0, 2, 4
	}{{"in order", "", []int{0, 1, 2}}, {"swapped", "S14", []int{1, 0, 2}}, {"with a gap", "S16", []int{0, 2}}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(keepAll)
			batches := []*Batch{w.send(5, 0), w.send(5, 2), w.send(5, 4)}
			var data []byte
			for i, n := range c.order {
				data = append(data, at(batches[n], int64(2*i))...)
			}
			_, v := w.Recovered(0, int64(2*len(c.order)), data, false, 0)
			want(t, v, c.invariant)
		})
	}
}

func TestTheLogStartMovesOnlyWhereARuleAllowsIt(t *testing.T) {
	for _, c := range []struct {
		name, invariant string
		promises        Promises
		deletes         int64
		now             int64
	}{
		{"no rule", "S23", keepAll, 0, 1e9},
		{"DeleteRecords", "", keepAll, 2, 0},
		{"young", "S23", Promises{RetentionBytes: -1, RetentionMs: 500}, 0, 1500},
		{"old", "", Promises{RetentionBytes: -1, RetentionMs: 500}, 0, 1501},
		{"by size", "", Promises{RetentionBytes: 10, RetentionMs: -1}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(c.promises)
			want(t, w.Acked(w.send(-1, -1), 0), "")
			w.Deletes(c.deletes)
			want(t, w.StartIs(2, c.now), c.invariant)
		})
	}
}

func TestByteOffsetsStepByBytes(t *testing.T) {
	p := keepAll
	p.ByteOffsets = true
	w := newWorld(p)
	a, b := w.send(-1, -1), w.send(-1, -1)
	size := int64(len(a.Bytes))
	store := func(b *Batch, offset int64) []byte {
		stored := append([]byte(nil), b.Bytes...)
		record.SetByteOffsets(stored, offset)
		return stored
	}
	want(t, w.Acked(a, 0), "")
	next, v := w.Read(0, append(store(a, 0), store(b, size)...), 2*size)
	want(t, v, "")
	if next != 2*size {
		t.Errorf("next %d of %d", next, 2*size)
	}
	_, v = w.Read(2, store(b, size), 2*size) // sarama: base and count
	want(t, v, "")
}
