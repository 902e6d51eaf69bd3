package coord

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// world is an Env of one queue: nothing happens until run, and syncs are counted.
type world struct {
	disk    vfs.FS
	events  []func()
	syncs   int
	syncErr error // what every Sync from now on reports
	reports []string
}

func (w *world) Wall() time.Time { return time.UnixMilli(1_700_000_000_000) }
func (w *world) After(d time.Duration, f func()) func() bool {
	w.events = append(w.events, f)
	return func() bool { panic("not used") }
}
func (w *world) Disk() vfs.FS { return w.disk }
func (w *world) Sync(s []vfs.Syncer, done func(error)) {
	w.syncs++
	finish := make([]func() error, len(s))
	for i := range s {
		finish[i] = s[i].Sync
		if b, ok := s[i].(vfs.BeginSyncer); ok {
			finish[i] = b.BeginSync()
		}
	}
	w.events = append(w.events, func() {
		if w.syncErr != nil {
			done(w.syncErr)
			return
		}
		for _, f := range finish {
			if err := f(); err != nil {
				done(err)
				return
			}
		}
		done(nil)
	})
}
func (w *world) Warn(text string)  { w.reports = append(w.reports, text) }
func (w *world) Error(text string) { w.reports = append(w.reports, text) }

// run lets n events happen, or all when n is negative, and says how many did.
func (w *world) run(n int) int {
	did := 0
	for ; n != 0 && len(w.events) > 0; n-- {
		f := w.events[0]
		w.events = w.events[1:]
		f()
		did++
	}
	return did
}

func realWorld(t *testing.T) *world { return &world{disk: vfs.NewReal(t.TempDir(), nil)} }

func open(t *testing.T, w *world) *Local {
	t.Helper()
	l, err := OpenLocal(w, "data")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// must are calls that are waited for.
func create(t *testing.T, w *world, c Client, path, data string, mode CreateMode) string {
	t.Helper()
	var got string
	err := errors.New("no answer")
	c.Create(path, []byte(data), mode, func(p string, _ Stat, e error) { got, err = p, e })
	w.run(-1)
	if err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
	return got
}

func get(w *world, c Client, path string) (string, error) {
	var got string
	err := errors.New("no answer")
	c.Get(path, nil, func(b []byte, _ Stat, e error) { got, err = string(b), e })
	w.run(-1)
	return got, err
}

func closeIt(t *testing.T, w *world, c Client) {
	t.Helper()
	err := errors.New("no answer")
	c.Close(func(e error) { err = e })
	w.run(-1)
	if err != nil {
		t.Fatalf("close: %v", err)
	}
}

func TestMetadataIsThereAfterReopening(t *testing.T) {
	w := realWorld(t)
	l := open(t, w)
	create(t, w, l, "/a", "one", Persistent)
	create(t, w, l, "/a/n-", "", Sequential)
	create(t, w, l, "/e", "", Ephemeral)
	l.Set("/a", []byte("two"), 0, func(Stat, error) {})
	w.run(-1)
	for _, clean := range []bool{false, true, false} {
		if clean {
			closeIt(t, w, l)
		}
		l = open(t, w)
		if got, err := get(w, l, "/a"); got != "two" || err != nil {
			t.Errorf("clean=%v: %q, %v", clean, got, err)
		}
		if _, err := get(w, l, "/e"); err != ErrNoNode {
			t.Errorf("clean=%v: the ephemeral outlived its session: %v", clean, err)
		}
	}
	if got := create(t, w, l, "/a/n-", "", Sequential); got != "/a/n-0000000001" {
		t.Errorf("sequence began again: %s", got)
	}
	if len(w.reports) > 0 {
		t.Errorf("reports: %q", w.reports)
	}
}

func TestNothingIsAnsweredInsideTheCallNorBeforeTheSync(t *testing.T) {
	w := realWorld(t)
	l := open(t, w)
	w.run(-1)
	var log []string
	note := func(s string) { log = append(log, s) }
	l.Exists("/a", func(e Event) { note("watch " + e.Type.String()) }, func(_ Stat, err error) { note(fmt.Sprint("exists ", err)) })
	if len(log) > 0 {
		t.Error("answered inside the call")
	}
	w.run(-1)
	l.Create("/a", nil, Persistent, func(string, Stat, error) { note("created") })
	// A read must not show what a power cut can still take back.
	l.Get("/a", nil, func([]byte, Stat, error) { note("read") })
	l.Create("/a", nil, Persistent, func(_ string, _ Stat, err error) { note(fmt.Sprint("again ", err)) })
	if want := []string{"exists coord: node does not exist"}; !slices.Equal(log, want) {
		t.Errorf("before the sync: %q", log)
	}
	w.run(-1)
	want := []string{"exists coord: node does not exist", "watch created", "created", "read", "again coord: node exists"}
	if !slices.Equal(log, want) {
		t.Errorf("in the end\n got %q\nwant %q", log, want)
	}
}

func TestWaitingChangesShareASync(t *testing.T) {
	w := realWorld(t)
	l := open(t, w)
	w.run(-1)
	before := w.syncs
	done := 0
	for i := range 100 {
		l.Create(fmt.Sprintf("/n%d", i), nil, Persistent, func(string, Stat, error) { done++ })
	}
	w.run(-1)
	if done != 100 || w.syncs-before > 2 {
		t.Errorf("%d done with %d syncs", done, w.syncs-before)
	}
}

func TestAfterAFailedSyncNothingIsAcknowledged(t *testing.T) {
	w := realWorld(t)
	l := open(t, w)
	create(t, w, l, "/a", "", Persistent)
	w.syncErr = vfs.ErrInjected
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	l.Create("/b", nil, Persistent, func(_ string, _ Stat, err error) { note(err) })
	l.Get("/b", nil, func(_ []byte, _ Stat, err error) { note(err) })
	w.run(-1)
	w.syncErr = nil
	l.Delete("/a", AnyVersion, note)
	l.Children("/", nil, func(_ []string, _ Stat, err error) { note(err) })
	l.Close(note)
	w.run(-1)
	if len(errs) != 5 {
		t.Fatalf("%d answers: %v", len(errs), errs)
	}
	for _, err := range errs {
		if !errors.Is(err, vfs.ErrInjected) {
			t.Errorf("%v", err)
		}
	}
	if len(w.reports) != 1 || !strings.Contains(w.reports[0], "sync") {
		t.Errorf("reports: %q", w.reports)
	}
}

func TestTenThousandPartitionsInBulk(t *testing.T) {
	w := realWorld(t)
	l := open(t, w)
	create(t, w, l, "/brokers", "", Persistent)
	create(t, w, l, TopicsPath, "", Persistent)
	a := TopicAssignment{Replicas: make([][]int32, 10_000)}
	ops := []Op{CreateOp(TopicPath("t"), a.Encode(), Persistent), CreateOp(PartitionsPath("t"), nil, Persistent)}
	for p := range int32(10_000) {
		ops = append(ops, CreateOp(PartitionPath("t", p), nil, Persistent),
			CreateOp(PartitionStatePath("t", p), PartitionState{Leader: 1, ISR: []int32{1}}.Encode(), Persistent))
	}
	var tooLarge error
	l.Multi(ops, func(_ []Result, err error) { tooLarge = err })
	err := errors.New("no answer")
	Bulk(l, ops, func(e error) { err = e })
	w.run(-1)
	if err != nil || tooLarge != ErrTooLarge {
		t.Fatalf("bulk: %v; in one transaction: %v", err, tooLarge)
	}
	l = open(t, w)
	if _, err := get(w, l, PartitionStatePath("t", 9999)); err != nil {
		t.Error(err)
	}
	if l.tree.Len() != len(ops)+3 {
		t.Errorf("%d nodes", l.tree.Len())
	}
}
