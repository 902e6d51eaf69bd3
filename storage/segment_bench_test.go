package storage

import (
	"fmt"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// benchBatch is one batch of 100-byte records, about size bytes long.
func benchBatch(size int) []byte {
	b := record.NewBuilder(record.None)
	value := make([]byte, 100)
	for i := 0; b.Size() < size-130; i++ {
		b.Append(1000+int64(i), nil, value)
	}
	return b.Build(nil)
}

// benchFileBytes is where a benchmark begins its file anew, so that all its
// forms write pages that the page cache has already.
const benchFileBytes = 256 << 20

// BenchmarkAppend holds an append against the bare write of the same bytes to a
// file that exists. Run with -count and compare the lines of one size.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		batch := benchBatch(size)
		b.Run(fmt.Sprintf("form=pwrite/bytes=%d", size), func(b *testing.B) { benchPwrite(b, batch) })
		for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
			b.Run(fmt.Sprintf("form=%s/bytes=%d", offsets, size), func(b *testing.B) { benchAppend(b, batch, offsets) })
		}
	}
}

func benchPwrite(b *testing.B, batch []byte) {
	f, err := vfs.NewReal(b.TempDir(), nil).Open("bare", vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	pos := int64(0)
	write := func() {
		if _, err := f.WriteAt(batch, pos); err != nil {
			b.Fatal(err)
		}
		if pos += int64(len(batch)); pos > benchFileBytes {
			pos = 0
		}
	}
	for range benchFileBytes/len(batch) + 1 {
		write()
	}
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		write()
	}
}

func benchAppend(b *testing.B, batch []byte, offsets OffsetScheme) {
	cfg := DefaultLogConfig()
	cfg.Offsets, cfg.SegmentBytes, cfg.MaxMessageBytes, cfg.SegmentMs = offsets, segmentBytesMax, 2<<20, 1<<60
	l, _ := testOpen(b, testDir(b, vfs.NewReal(b.TempDir(), nil)), cfg)
	write := func() {
		if _, err := l.Append(batch, AppendArgs{LeaderEpoch: 1, Now: 1000}); err != nil {
			b.Fatal(err)
		}
		if s := l.active(); s.size > benchFileBytes { // back to pages that are there
			s.size = 0
		}
	}
	for range benchFileBytes/len(batch) + 1 {
		write()
	}
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		write()
	}
}

// BenchmarkRead finds regions in a log of many segments, hot (at the place where
// the last read ended) and cold (anywhere).
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		batch := benchBatch(size)
		for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
			cfg := DefaultLogConfig()
			cfg.Offsets, cfg.SegmentBytes = offsets, 32<<20
			l, _ := testOpen(b, testDir(b, vfs.NewReal(b.TempDir(), nil)), cfg)
			for l.Size() < 256<<20 {
				if _, err := l.Append(batch, AppendArgs{Now: 1000}); err != nil {
					b.Fatal(err)
				}
			}
			perBatch := l.LogEndOffset() / (l.Size() / int64(len(batch)))
			name := fmt.Sprintf("offsets=%s/batch=%d", offsets, size)
			b.Run("place=hot/"+name, func(b *testing.B) { benchRead(b, l, func(next int64, _ int) int64 { return next }) })
			b.Run("place=cold/"+name, func(b *testing.B) {
				batches := l.LogEndOffset() / perBatch
				benchRead(b, l, func(_ int64, i int) int64 { return int64(i) * 7919 % batches * perBatch })
			})
		}
	}
}

func benchRead(b *testing.B, l *segmentLog, place func(next int64, i int) int64) {
	b.ReportAllocs()
	next, i := int64(0), 0
	for b.Loop() {
		offset := place(next, i)
		if offset >= l.LogEndOffset() {
			offset = 0
		}
		r, err := l.Read(offset, l.LogEndOffset(), 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		next = l.found.at[(l.found.next+foundPlacesMax-1)%foundPlacesMax].offset
		r.Release()
		i++
	}
}
