package record

import "testing"

func TestAtTimeFindsTheFirstThatIsLateEnough(t *testing.T) {
	for _, c := range codecs {
		b := NewBuilder(c)
		for _, ts := range []int64{1000, 1020, 1010, 1030} {
			b.Append(ts, nil, []byte("value"))
		}
		batch := b.Build(nil)
		for _, f := range []struct {
			ts, start, offset, timestamp int64
			ok                           bool
		}{
			{0, 0, 0, 1000, true}, {1001, 0, 1, 1020, true}, {1020, 0, 1, 1020, true}, {1010, 2, 2, 1010, true},
			{1021, 0, 3, 1030, true}, {0, 3, 3, 1030, true}, {1031, 0, 0, 0, false}, {0, 4, 0, 0, false},
		} {
			offset, timestamp, ok, err := AtTime(batch, f.ts, f.start)
			if offset != f.offset || timestamp != f.timestamp || ok != f.ok || err != nil {
				t.Errorf("%s, %+v: offset %d, timestamp %d, %v, %v", c, f, offset, timestamp, ok, err)
			}
		}
		batch[len(batch)-1] ^= 0xff // of the last record: what is found before it is found
		if offset, _, ok, err := AtTime(batch, 1001, 0); c == None && (offset != 1 || !ok || err != nil) {
			t.Errorf("offset %d, %v, %v", offset, ok, err)
		}
		if _, _, _, err := AtTime(batch[:HeaderSize-1], 0, 0); err == nil {
			t.Error("half a header is a batch")
		}
	}
}
