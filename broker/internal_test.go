package broker

import (
	"strings"
	"testing"
)

// TestTopicNames: a topic's name becomes a directory's, and a metric's.
func TestTopicNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", "...", "__consumer_offsets", strings.Repeat("x", 249)} {
		if why := checkTopicName(good); why != "" {
			t.Errorf("%q is refused: %s", good, why)
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "../a", "a\x00", "a b", "ä", `a\b`, "a:b", "a\n", strings.Repeat("x", 250)} {
		if checkTopicName(bad) == "" {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestSerialRunsOneAtATime: a task begins when the one before has released, be
// that within its call or later, and tasks that end at once do not nest.
func TestSerialRunsOneAtATime(t *testing.T) {
	var s serial
	var order []string
	var release func()
	s.run(func(r func()) { order = append(order, "first"); r() })
	s.run(func(r func()) { order = append(order, "slow"); release = r })
	depth, deepest := 0, 0
	for range 10_000 {
		s.run(func(r func()) {
			depth++
			deepest = max(deepest, depth)
			r()
			depth--
		})
	}
	s.run(func(r func()) { order = append(order, "last"); r() })
	if got := strings.Join(order, " "); got != "first slow" {
		t.Fatalf("before the release: %s", got)
	}
	release()
	if got := strings.Join(order, " "); got != "first slow last" || deepest != 1 {
		t.Fatalf("after the release: %s, tasks nested %d deep", got, deepest)
	}
}

// TestMetadataSnapshotsAreIndependent: a change makes another snapshot, and the one that a handler holds stays.
func TestMetadataSnapshotsAreIndependent(t *testing.T) {
	a, b := &topic{name: "a", id: topicID{1}}, &topic{name: "b.c", id: topicID{2}}
	empty := newMetadata("c", nil)
	one := empty.with(b)
	two := one.with(a)
	again := &topic{name: "a", id: topicID{3}}
	replaced := two.with(again)
	gone := replaced.edit()
	gone.drop(again)
	gone.sort()
	names := func(m *metadata) string {
		var all []string
		for _, t := range m.sorted {
			all = append(all, t.name)
		}
		return strings.Join(all, " ")
	}
	if names(empty) != "" || names(one) != "b.c" || names(two) != "a b.c" || names(replaced) != "a b.c" || names(gone) != "b.c" {
		t.Fatalf("snapshots: %q %q %q %q %q", names(empty), names(one), names(two), names(replaced), names(gone))
	}
	if two.byID[a.id] != a || replaced.byID[a.id] != nil || replaced.byID[again.id] != again || gone.byID[again.id] != nil {
		t.Fatal("ids do not follow the topics")
	}
	if one.collision["b_c"] != "b.c" || gone.collision["a"] != "" {
		t.Fatal("collisions do not follow the topics")
	}
}
