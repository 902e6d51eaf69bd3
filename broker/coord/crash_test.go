package coord

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// dump is what must survive: every persistent node with its data and versions.
func dump(t *Tree) string {
	var b strings.Builder
	for _, path := range sortedKeys(t.nodes) {
		if n := t.nodes[path]; n.stat.EphemeralOwner == 0 {
			fmt.Fprintf(&b, "%s=%q v%d c%d\n", path, n.data, n.stat.Version, n.creates)
		}
	}
	return b.String()
}

// workload is one life of a client: changes of every kind, a few in flight at a
// time. states[k] is what the tree holds after k of them; acked counts those that were answered.
type workload struct {
	states []string
	acked  int
	errs   []error
	done   bool // closed cleanly
}

// steps of a life; the journal is begun anew several times on the way (see journalMin).
const (
	steps      = 40
	inFlight   = 3
	journalMin = 1500
)

func (k *workload) run(w *world, l *Local, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	note := func(err error) {
		if err != nil {
			k.errs = append(k.errs, err)
			return
		}
		k.acked++
	}
	k.states = append(k.states, dump(l.tree))
	for i := range steps {
		data := []byte(strings.Repeat(fmt.Sprint(i, " "), 1+rng.IntN(30)))
		var ops []Op
		switch _, _, err := l.tree.Get("/a"); {
		case err != nil:
			ops = []Op{CreateOp("/a", data, Persistent)}
		case i%7 == 3:
			ops = []Op{SetOp("/a", data, AnyVersion), CreateOp("/a/n-", data, Sequential), CreateOp("/e-", nil, Ephemeral|Sequential)}
		case i%7 == 5 && len(l.tree.nodes["/a"].children) > 0:
			names, _, _ := l.tree.Children("/a")
			ops = []Op{DeleteOp("/a/"+names[0], AnyVersion)}
		case i%2 == 0:
			ops = []Op{SetOp("/a", data, AnyVersion)}
		default:
			ops = []Op{CreateOp("/a/n-", data, Sequential)}
		}
		func() {
			// Also when the power goes inside the call: the change may be on disk.
			defer func() { k.states = append(k.states, dump(l.tree)) }()
			l.Multi(ops, func(_ []Result, err error) { note(err) })
		}()
		if i%inFlight == 0 {
			w.run(1 + rng.IntN(6))
		}
	}
	w.run(-1)
	l.Close(func(err error) { k.done = err == nil })
	w.run(-1)
}

// crashMark is what a hook panics with where the power goes.
type crashMark struct{}

// untilCrash runs f and says whether a crash ended it.
func untilCrash(f func()) (crashed bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crashMark); !ok {
				panic(r)
			}
			crashed = true
		}
	}()
	f()
	return false
}

// crashAt is a hook that cuts the power before the n-th operation.
func crashAt(n int64) vfs.Hook {
	return func(op vfs.Op) error {
		if op.N == n {
			panic(crashMark{})
		}
		return nil
	}
}

// life opens the journal on a hooked disk and runs a workload until it ends, crashes or fails.
func life(disk *vfs.Sim, hook vfs.Hook, seed uint64) (k workload, w *world, crashed bool, openErr error) {
	w = &world{disk: vfs.WithHook(disk, hook)}
	crashed = untilCrash(func() {
		l, err := openLocal(w, "data", journalMin)
		if err != nil {
			openErr = err
			return
		}
		k.run(w, l, seed)
	})
	return k, w, crashed, openErr
}

// survivors is what a reopened journal must show: state k for some k not below what was acknowledged.
func (k *workload) survived(disk *vfs.Sim) error {
	l, err := openLocal(&world{disk: disk}, "data", journalMin)
	if err != nil {
		return err
	}
	got := dump(l.tree)
	for i := len(k.states) - 1; i >= k.acked; i-- {
		if k.states[i] == got {
			return nil
		}
	}
	for i := range k.states[:min(k.acked, len(k.states))] {
		if k.states[i] == got {
			return fmt.Errorf("%d changes were acknowledged, only %d are there", k.acked, i)
		}
	}
	if len(k.states) == 0 && got == dump(NewTree()) {
		return nil // it did not get as far as the first
	}
	return fmt.Errorf("the tree is in a state that never was:\n%s", got)
}

// The power is cut at every file operation in turn, of a first life and of the
// recovery after it, and each time what was acknowledged must be there.
func TestWhatWasAcknowledgedSurvivesAPowerCutAtEveryOperation(t *testing.T) {
	cuts := 0
	for n := int64(1); ; n++ {
		disk := vfs.NewSim(nil)
		k, _, crashed, err := life(disk, crashAt(n), 7)
		if err != nil {
			t.Fatal(err)
		}
		if !crashed {
			if !k.done || k.acked != steps {
				t.Fatalf("without a crash: %d acknowledged, closed %v, %v", k.acked, k.done, k.errs)
			}
			break
		}
		cuts++
		for seed := range uint64(4) {
			after := disk.Clone()
			after.Crash(rand.New(rand.NewPCG(uint64(n), seed)))
			if err := k.survived(after.Clone()); err != nil {
				t.Fatalf("power cut at operation %d, seed %d: %v", n, seed, err)
			}
			crashInRecovery(t, &k, after, n, seed)
		}
		disk.Kill()
		if err := k.survived(disk); err != nil {
			t.Fatalf("killed at operation %d: %v", n, err)
		}
	}
	if cuts < 50 {
		t.Errorf("only %d places to crash", cuts)
	}
}

// crashInRecovery cuts the power again at each operation of the opening that follows a first cut.
func crashInRecovery(t *testing.T, k *workload, disk *vfs.Sim, n int64, seed uint64) {
	t.Helper()
	for m := int64(1); m < 30; m++ {
		again := disk.Clone()
		w := &world{disk: vfs.WithHook(again, crashAt(m))}
		if !untilCrash(func() {
			if _, err := openLocal(w, "data", journalMin); err == nil {
				w.run(-1)
			}
		}) {
			return
		}
		again.Crash(rand.New(rand.NewPCG(uint64(m), seed)))
		if err := k.survived(again); err != nil {
			t.Fatalf("power cut at operation %d, then at operation %d of the recovery, seed %d: %v", n, m, seed, err)
		}
	}
}

// Every file operation fails in turn, once. Each call is answered, nothing
// acknowledged is lost, and a later life works.
func TestAnyFailingOperationIsAnsweredAndLosesNothingAcknowledged(t *testing.T) {
	for n := int64(1); ; n++ {
		disk := vfs.NewSim(nil)
		nth := vfs.FailNth(n, nil)
		k, w, _, openErr := life(disk, nth.Hook, 7)
		if !nth.Met() {
			break
		}
		if openErr != nil && !errors.Is(openErr, vfs.ErrInjected) {
			t.Fatalf("%s: open says %v", nth.Op(), openErr)
		}
		if openErr == nil && k.acked+len(k.errs) != steps {
			t.Fatalf("%s: %d of %d calls answered", nth.Op(), k.acked+len(k.errs), steps)
		}
		if openErr == nil && k.acked < steps && len(w.reports) == 0 {
			t.Errorf("%s: not a word to the operator", nth.Op())
		}
		disk.Crash(rand.New(rand.NewPCG(uint64(n), 3)))
		if err := k.survived(disk); err != nil {
			t.Fatalf("%s: %v", nth.Op(), err)
		}
	}
}

func TestAFullDiskLosesNothingAcknowledged(t *testing.T) {
	for bytes := int64(100); bytes < 8000; bytes += 97 {
		disk := vfs.NewSim(nil)
		k, _, _, openErr := life(disk, vfs.DiskFull(bytes), 7)
		if openErr != nil && !errors.Is(openErr, vfs.ErrNoSpace) {
			t.Fatal(openErr)
		}
		disk.Kill()
		if err := k.survived(disk); err != nil {
			t.Fatalf("full after %d bytes: %v", bytes, err)
		}
	}
}

// Planted faults: a journal that leaves out one of its syncs must be caught by
// the power cuts above. liar says which syncs succeed and do nothing.
func TestPlantedFaultsAreCaught(t *testing.T) {
	for name, liar := range map[string]func(name string, nth int) bool{
		"answers before the file is synced":              func(name string, _ int) bool { return strings.HasPrefix(name, "data/") },
		"the new journal is renamed before it is synced": func(name string, nth int) bool { return strings.HasPrefix(name, "data/") && nth == 1 },
		"only the new journal is ever synced":            func(name string, nth int) bool { return strings.HasPrefix(name, "data/") && nth > 1 },
		"the new journal's name is not synced":           func(name string, _ int) bool { return name == "data" },
		"the directory's own name is not synced":         func(name string, _ int) bool { return name == "." },
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); n < 400; n++ {
				disk := vfs.NewSim(nil)
				var k workload
				w := &world{disk: lyingFS{vfs.WithHook(disk, crashAt(n)), liar}}
				untilCrash(func() {
					l, err := openLocal(w, "data", journalMin)
					if err != nil {
						t.Fatal(err)
					}
					k.run(w, l, 7)
				})
				for seed := range uint64(8) {
					after := disk.Clone()
					after.Crash(rand.New(rand.NewPCG(uint64(n), seed)))
					if k.survived(after) != nil {
						return
					}
				}
			}
			t.Error("not caught")
		})
	}
}

// lyingFS leaves out the syncs that lies picks, by name and by how many of the open file there were.
type lyingFS struct {
	vfs.FS
	lies func(name string, nth int) bool
}

func (l lyingFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := l.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &lyingFile{File: f, lies: l.lies}, nil
}

func (l lyingFS) SyncDir(dir string) error {
	if l.lies(dir, 0) {
		return nil
	}
	return l.FS.SyncDir(dir)
}

type lyingFile struct {
	vfs.File
	lies  func(name string, nth int) bool
	syncs int
}

func (f *lyingFile) Sync() error {
	if f.syncs++; f.lies(f.Name(), f.syncs) {
		return nil
	}
	return f.File.Sync()
}

// A bit flipped in anything that was acknowledged is reported with file and
// place; in what a clean shutdown vouches for, that is every byte.
func TestDamageIsReportedWithItsPlaceNeverSkipped(t *testing.T) {
	disk := vfs.NewSim(nil)
	if k, _, _, err := life(disk, func(vfs.Op) error { return nil }, 7); err != nil || !k.done {
		t.Fatal(err)
	}
	info, err := disk.Stat("data/" + journalName)
	if err != nil {
		t.Fatal(err)
	}
	// The last entry is the mark of the clean shutdown itself.
	vouched := info.Size - entryHeaderSize
	for pos := int64(0); pos < vouched; pos += 3 {
		rotten := disk.Clone()
		rotten.Kill()
		rotten.Rot("data/"+journalName, pos, 0x10)
		_, err := openLocal(&world{disk: rotten}, "data", journalMin)
		damage, ok := errors.AsType[*CorruptionError](err)
		if !ok || damage.File != "data/"+journalName || damage.Pos > pos {
			t.Fatalf("bit flipped at byte %d of %d: %v", pos, info.Size, err)
		}
	}
}

func TestATornTailIsCutAndTold(t *testing.T) {
	w := &world{disk: vfs.NewSim(nil)}
	l := open(t, w)
	create(t, w, l, "/a", "", Persistent)
	l.Create("/b", nil, Persistent, func(string, Stat, error) {})
	size := l.journal.size
	f, err := w.disk.Open("data/"+journalName, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size - 1); err != nil {
		t.Fatal(err)
	}
	w2 := &world{disk: w.disk}
	l = open(t, w2)
	if _, err := get(w2, l, "/a"); err != nil {
		t.Error(err)
	}
	if _, err := get(w2, l, "/b"); err != ErrNoNode {
		t.Errorf("/b: %v", err)
	}
	if len(w2.reports) != 1 || !strings.Contains(w2.reports[0], "torn tail cut at byte") {
		t.Errorf("reports: %q", w2.reports)
	}
	closeIt(t, w2, l)
	w3 := &world{disk: w.disk}
	open(t, w3)
	if len(w3.reports) > 0 {
		t.Errorf("told again: %q", w3.reports)
	}
}
