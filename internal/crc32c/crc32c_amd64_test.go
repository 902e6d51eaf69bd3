//go:build !purego

package crc32c

import "testing"

// TestNarrowVectors runs the tests of the widest vectors that this processor has with those of the older ones.
func TestNarrowVectors(t *testing.T) {
	if best.vector == narrow {
		t.Skip("this processor has no others: the other tests are of them")
	}
	was := best
	best = foldingWith(narrow)
	defer func() { best = was }()
	t.Run("EveryLengthAndAlignment", TestEveryLengthAndAlignment)
	t.Run("EveryBitCounts", TestEveryBitCounts)
}
