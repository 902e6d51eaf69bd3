//go:build !purego

package crc32c

import (
	"testing"

	"github.com/tidemark-log/tidemark/internal/need"
)

// TestNarrowVectors runs the tests of the widest vectors that this processor has with those of the older ones.
func TestNarrowVectors(t *testing.T) {
	if best.vector == narrow {
		need.Skip(t, "vpclmulqdq", "this processor has vectors of 16 bytes alone: the other tests are of those, and none is of 32 bytes")
	}
	was := best
	best = foldingWith(narrow)
	defer func() { best = was }()
	t.Run("EveryLengthAndAlignment", TestEveryLengthAndAlignment)
	t.Run("EveryBitCounts", TestEveryBitCounts)
}
