package coord

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever is set, fired and forgotten, what is counted of a session is what would fire for it.
func TestWatchesAreCountedAsTheyAreSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	tree := NewTree()
	paths := []string{"/", "/a", "/a/bb", "/ccc", "/dddd"}
	for range 5000 {
		path, id := paths[rng.IntN(len(paths))], SessionID(1+rng.IntN(4))
		switch rng.IntN(8) {
		case 0:
			tree.ForgetWatches(id)
		case 1:
			for _, f := range tree.watches.fire(appendEvents(nil, OpDelete, path)) {
				if tree.watches.byPath[WatchData][path] != nil {
					t.Fatalf("%v has fired and is still set", f)
				}
			}
		default:
			tree.Watch(WatchKind(rng.IntN(2)), path, id)
		}
		total := 0
		for id := SessionID(1); id <= 4; id++ {
			n, bytes := 0, 0
			for _, m := range tree.watches.byPath {
				for path, sessions := range m {
					if slices.Contains(sessions, id) {
						n, bytes = n+1, bytes+len(path)
					}
				}
			}
			if gotN, gotBytes := tree.WatchesOf(id); gotN != n || gotBytes != bytes {
				t.Fatalf("session %d: %d watches of %d bytes counted, %d of %d are set", id, gotN, gotBytes, n, bytes)
			}
			total += n
		}
		if got := tree.Watches(); got != total {
			t.Fatalf("%d watches counted, %d are set", got, total)
		}
	}
}

// A connection that comes and goes costs nothing for what others watch.
func TestForgettingASessionLooksAtNoOthers(t *testing.T) {
	tree := NewTree()
	for i := range 10_000 {
		tree.Watch(WatchData, fmt.Sprintf("/%d", i), 1)
	}
	if n := testing.AllocsPerRun(10, func() { tree.ForgetWatches(2) }); n != 0 {
		t.Errorf("%v allocations to forget nothing", n)
	}
	if tree.Watches() != 10_000 {
		t.Error("the other's watches are gone")
	}
}
