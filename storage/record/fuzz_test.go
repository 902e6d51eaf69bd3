package record

import "testing"

// FuzzValidate: no input makes a check or a walk panic, and what Validate
// passes at LevelRecords is read back to the last record. The bound is small, so
// an unbounded decompression would show as memory. Run it with -fuzzminimizetime=20x: pooled codecs make
// coverage vary between runs of one input, and minimizing would take all the time.
func FuzzValidate(f *testing.F) {
	for _, c := range codecs {
		f.Add(sample(c), true)
		two := append(sample(c), sample(None)...)
		f.Add(two, true)
		f.Add(two[:len(two)-9], false)
	}
	f.Add(kmsgBatch(3), true)
	f.Add([]byte{}, false)
	lim := Limits{BatchBytesMax: 1 << 20, DecompressedBytesMax: 1 << 20}
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix { // past the CRC, which no mutation gets past by chance
			if _, err := Frame(b); err == nil {
				FixCRC(b)
			}
		}
		h, err := Validate(b, LevelRecords, lim)
		walked := 0
		for range Batches(b) {
			walked++
		}
		n := int32(0)
		var readErr error
		for _, e := range Records(b, lim.DecompressedBytesMax) {
			if readErr = e; e == nil {
				n++
			}
		}
		if err != nil {
			return
		}
		if readErr != nil || n != h.RecordCount || walked == 0 {
			t.Fatalf("validated batch of %d records: read %d, %v; %d batches", h.RecordCount, n, readErr, walked)
		}
		for _, c := range codecs {
			out, err := Recompress(nil, b, c, lim.DecompressedBytesMax)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Validate(out, LevelRecords, Limits{BatchBytesMax: 4 << 20, DecompressedBytesMax: 1 << 20}); err != nil {
				t.Fatalf("recompressed to %s: %v", c, err)
			}
		}
	})
}

// FuzzQuickRecord: what the fast reader accepts, the strict one accepts with the same meaning.
func FuzzQuickRecord(f *testing.F) {
	for _, c := range []int{1, 40} {
		raw := kmsgBatch(c)
		f.Add(raw[HeaderSize:], int32(0))
	}
	f.Add(sample(None)[HeaderSize:], int32(0))
	f.Add(batchOf(None, 400)[HeaderSize:], int32(0))
	f.Fuzz(func(t *testing.T, p []byte, delta int32) {
		n, ts, ok := quickRecord(p, delta)
		if !ok {
			return
		}
		var raw rawRecord
		m, why := raw.parse(p)
		if why != "" || m != n || raw.timestampDelta != ts || raw.offsetDelta != delta {
			t.Fatalf("quick: %d bytes, timestamp delta %d; parse: %d bytes, %d, offset delta %d %s", n, ts, m, raw.timestampDelta, raw.offsetDelta, why)
		}
	})
}
