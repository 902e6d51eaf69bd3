package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
)

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 0)) }

// outcomes crashes copies of s under many seeds and collects what look sees.
func outcomes(s *Sim, look func(s *Sim) string) []string {
	var seen []string
	for n := range uint64(200) {
		c := s.Clone()
		c.Crash(seeded(n))
		if o := look(c); !slices.Contains(seen, o) {
			seen = append(seen, o)
		}
	}
	slices.Sort(seen)
	return seen
}

func contentOrError(name string) func(*Sim) string {
	return func(s *Sim) string {
		c, err := content(s, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "missing"
		case err != nil:
			return err.Error()
		}
		return c
	}
}

func wantOutcomes(t *testing.T, s *Sim, look func(*Sim) string, want ...string) {
	t.Helper()
	if got := outcomes(s, look); !slices.Equal(got, want) {
		t.Errorf("after a power cut: %q, want any of %q", got, want)
	}
}

func syncAll(t *testing.T, ss ...Syncer) {
	t.Helper()
	for _, s := range ss {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFileWithoutASyncOfItsDirectoryMayBeLost(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, "x", 0)
	syncAll(t, h)
	wantOutcomes(t, s, contentOrError("a"), "missing", "x")
	syncAll(t, DirSyncer(s, "/"))
	wantOutcomes(t, s, contentOrError("a"), "x")
}

func TestADirectoryWithoutASyncOfItsParentMayBeLostWithAllItHolds(t *testing.T) {
	s := NewSim(nil)
	mkdir(t, s, "d/e")
	h := open(t, s, "d/e/a", Create)
	put(t, h, "x", 0)
	syncAll(t, h, DirSyncer(s, "d/e"), DirSyncer(s, "d"))
	wantOutcomes(t, s, contentOrError("d/e/a"), "missing", "x")
	syncAll(t, DirSyncer(s, "."))
	wantOutcomes(t, s, contentOrError("d/e/a"), "x")
}

func TestEachUnsyncedSectorMayOrMayNotSurvive(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, string(bytes.Repeat([]byte("o"), 4*SectorBytes)), 0)
	syncAll(t, h, DirSyncer(s, "/"))
	put(t, h, string(bytes.Repeat([]byte("n"), 3*SectorBytes)), 100) // touches sectors 0 to 3
	look := func(s *Sim) string {
		c, err := content(s, "a")
		if err != nil || len(c) != 4*SectorBytes {
			t.Fatalf("%d bytes, %v", len(c), err)
		}
		return string([]byte{c[100], c[SectorBytes], c[2*SectorBytes], c[3*SectorBytes], '-', c[0], c[4*SectorBytes-1]})
	}
	got := outcomes(s, look)
	if len(got) != 16 {
		t.Errorf("%d outcomes of 16: %q", len(got), got)
	}
	for _, o := range got {
		if o[5:] != "oo" {
			t.Errorf("bytes nobody wrote changed: %q", o)
		}
	}
	syncAll(t, h)
	wantOutcomes(t, s, look, "nnnn-oo")
}

func TestAnUnsyncedSizeMayBeTheOldOneTheNewOneOrBetween(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, "abc", 0)
	syncAll(t, h, DirSyncer(s, "/"))
	put(t, h, string(make([]byte, 1<<20)), 3)
	sizes := outcomes(s, func(s *Sim) string { i, _ := s.Stat("a"); return fmt.Sprintf("%08d", i.Size) })
	if len(sizes) < 3 || sizes[0] != "00000003" || sizes[len(sizes)-1] != fmt.Sprintf("%08d", 1<<20+3) {
		t.Errorf("sizes %q", sizes)
	}
}

// The kernel may write back between two writes: what stood there then is one more thing that may be left.
func TestWhatStoodThereBetweenTwoWritesMaySurvive(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, "1", 0)
	syncAll(t, h, DirSyncer(s, "/"))
	put(t, h, "2", 0)
	put(t, h, "3", 0)
	wantOutcomes(t, s, contentOrError("a"), "1", "2", "3")
	for i := range 1000 {
		put(t, h, string(rune('4'+i%2)), 0)
	}
	if n := len(h.(*simFile).ino.layers[0].sectors[0].later); n > laterMax {
		t.Errorf("%d versions of a sector are kept", n)
	}
	wantOutcomes(t, s, contentOrError("a"), "1", "4", "5")
	finish := h.(BeginSyncer).BeginSync()
	put(t, h, "6", 0)
	put(t, h, "7", 0)
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, s, contentOrError("a"), "5", "6", "7")
}

// A log that is cut and then grows again: the cut may survive alone, and zeros where the new bytes are not yet.
func TestACutMaySurviveWithoutWhatWasAppendedBehindIt(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	old := bytes.Repeat([]byte("o"), 3*SectorBytes)
	put(t, h, string(old), 0)
	syncAll(t, h, DirSyncer(s, "/"))
	if err := h.Truncate(SectorBytes); err != nil {
		t.Fatal(err)
	}
	put(t, h, string(bytes.Repeat([]byte("n"), 3*SectorBytes)), SectorBytes)
	got := outcomes(s, func(s *Sim) string {
		c, err := content(s, "a")
		if err != nil || len(c) < SectorBytes {
			t.Fatalf("%d bytes, %v", len(c), err)
		}
		return fmt.Sprintf("%d %c", len(c)/SectorBytes, append([]byte(c), '-')[SectorBytes])
	})
	for _, want := range []string{"1 -", "3 o", "3 n", "3 \x00", "4 o", "4 n", "4 \x00"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is never left, of %q", want, got)
		}
	}
}

func TestWhatIsWrittenWhileASyncRunsStaysVolatile(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, "1", 0)
	syncAll(t, h, DirSyncer(s, "/"))
	put(t, h, "2", 0)
	finish := h.(BeginSyncer).BeginSync()
	wantOutcomes(t, s, contentOrError("a"), "1", "2")
	put(t, h, "3", 0)
	wantOutcomes(t, s, contentOrError("a"), "1", "2", "3")
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, s, contentOrError("a"), "2", "3")
}

func TestALaterSyncThatEndsFirstCoversTheEarlier(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	syncAll(t, DirSyncer(s, "/"))
	put(t, h, "1", 0)
	first := h.(BeginSyncer).BeginSync()
	put(t, h, "2", 0)
	second := h.(BeginSyncer).BeginSync()
	put(t, h, "3", 0)
	if err := second(); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, s, contentOrError("a"), "2", "3")
	if err := first(); err != nil { // must not undo or extend anything
		t.Fatal(err)
	}
	wantOutcomes(t, s, contentOrError("a"), "2", "3")
}

func TestNamesChangedWhileADirectorySyncRunsStayVolatile(t *testing.T) {
	s := NewSim(nil)
	write(t, s, "a", "")
	finish := DirSyncer(s, "/").(BeginSyncer).BeginSync()
	write(t, s, "b", "")
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, s, func(s *Sim) string { names, _ := s.List("/"); return fmt.Sprint(names) }, "[a b]", "[a]")
}

func TestARenameOverAFileLeavesTheOldOrTheNew(t *testing.T) {
	s := NewSim(nil)
	for name, c := range map[string]string{"a": "old", "a.tmp": "new"} {
		h := open(t, s, name, Create)
		put(t, h, c, 0)
		syncAll(t, h)
	}
	syncAll(t, DirSyncer(s, "/"))
	if err := s.Rename("a.tmp", "a"); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, s, contentOrError("a"), "new", "old")
	syncAll(t, DirSyncer(s, "/"))
	wantOutcomes(t, s, contentOrError("a"), "new")
	wantOutcomes(t, s, contentOrError("a.tmp"), "missing")
}

func TestARenameOfAnUnsyncedFileMayLeaveItEmpty(t *testing.T) {
	s := NewSim(nil)
	write(t, s, "a.tmp", "new")
	if err := s.Rename("a.tmp", "a"); err != nil {
		t.Fatal(err)
	}
	syncAll(t, DirSyncer(s, "/"))
	if got := outcomes(s, contentOrError("a")); !slices.Contains(got, "") || !slices.Contains(got, "new") {
		t.Errorf("%q", got)
	}
}

func TestARenameBetweenDirectoriesNeedsBothSynced(t *testing.T) {
	s := NewSim(nil)
	mkdir(t, s, "d")
	mkdir(t, s, "e")
	h := open(t, s, "d/a", Create)
	put(t, h, "x", 0)
	syncAll(t, h, DirSyncer(s, "/"), DirSyncer(s, "d"))
	if err := s.Rename("d/a", "e/a"); err != nil {
		t.Fatal(err)
	}
	both := func(s *Sim) string { return contentOrError("d/a")(s) + " " + contentOrError("e/a")(s) }
	wantOutcomes(t, s, both, "missing x", "x missing")
	syncAll(t, DirSyncer(s, "e"))
	wantOutcomes(t, s, both, "missing x", "x x")
	syncAll(t, DirSyncer(s, "d"))
	wantOutcomes(t, s, both, "missing x")
}

// A file moves and is removed where it is then. As long as its move is not durable where it was, it may come back there, and what was
// written to it is as volatile as ever.
func TestAFileThatComesBackUnderItsOldNameMayHaveLostItsBytes(t *testing.T) {
	s := NewSim(nil)
	mkdir(t, s, "d")
	mkdir(t, s, "e")
	h := open(t, s, "d/a", Create)
	put(t, h, "1", 0)
	syncAll(t, h, DirSyncer(s, "/"), DirSyncer(s, "d"))
	put(t, h, "2", 0)
	if err := errors.Join(s.Rename("d/a", "e/a"), s.Remove("e/a")); err != nil {
		t.Fatal(err)
	}
	syncAll(t, DirSyncer(s, "e"))
	wantOutcomes(t, s, contentOrError("d/a"), "1", "2", "missing")
	syncAll(t, DirSyncer(s, "d"))
	wantOutcomes(t, s, contentOrError("d/a"), "missing")
	if len(s.volatileFiles)+len(s.unlinked) > 0 {
		t.Errorf("%d files are kept that cannot come back", len(s.volatileFiles)+len(s.unlinked))
	}
}

func TestAnUnsyncedRemoveOrTruncationMayComeBack(t *testing.T) {
	s := NewSim(nil)
	a, b := open(t, s, "a", Create), open(t, s, "b", Create)
	put(t, a, "aaa", 0)
	put(t, b, "bbb", 0)
	syncAll(t, a, b, DirSyncer(s, "/"))
	if err := errors.Join(s.Remove("a"), b.Truncate(1)); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, s, contentOrError("a"), "aaa", "missing")
	// Size and bytes are separate: the size may come back without what it covered.
	wantOutcomes(t, s, contentOrError("b"), "b", "b\x00\x00", "bbb")
	syncAll(t, b, DirSyncer(s, "/"))
	wantOutcomes(t, s, contentOrError("a"), "missing")
	wantOutcomes(t, s, contentOrError("b"), "b")
}

func TestAKillSparesThePageCacheAndEndsHandlesAndLocks(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, "x", 0)
	syncAll(t, DirSyncer(s, "/"))
	finish := h.(BeginSyncer).BeginSync()
	if _, err := s.Lock("lock"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for _, err := range []error{h.Sync(), h.Close(), finish()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := s.Lock("lock"); err != nil {
		t.Error(err)
	}
	wantContent(t, s, "a", "x")
	wantOutcomes(t, s, contentOrError("a"), "", "\x00", "x") // still volatile; size and bytes apart
}

func TestTheSameSeedLeavesTheSameDisk(t *testing.T) {
	dump := func(seed uint64) string {
		s := NewSim(nil)
		scribble(t, s, seeded(1), 300, func(string, []byte) {})
		lost := s.Crash(seeded(seed))
		names, err := s.List("/")
		if err != nil {
			t.Fatal(err)
		}
		out := lost.String()
		for _, n := range names {
			out += n + contentOrError(n)(s)
		}
		return out
	}
	first, again := dump(1), dump(1)
	if first != again {
		t.Error("same seed, another disk")
	}
	if dump(1) == dump(2) {
		t.Error("another seed, same disk")
	}
}

// scribble works on a few files at random; synced hears the content of a file each time it is durable.
func scribble(t *testing.T, s *Sim, rng *rand.Rand, ops int, synced func(name string, content []byte)) {
	t.Helper()
	for range ops {
		name := string(rune('a' + rng.IntN(4)))
		h := open(t, s, name, Create)
		size, _ := h.Size()
		switch rng.IntN(8) {
		case 0:
			if err := h.Truncate(rng.Int64N(size + 1)); err != nil {
				t.Fatal(err)
			}
		case 1:
			syncAll(t, h, DirSyncer(s, "/"))
			c, err := content(s, name)
			if err != nil {
				t.Fatal(err)
			}
			synced(name, []byte(c))
		default:
			b := make([]byte, rng.IntN(3000))
			for i := range b {
				b[i] = byte(1 + rng.IntN(255))
			}
			put(t, h, string(b), rng.Int64N(size+1000))
		}
		closeAll(t, h)
	}
}

func TestWhatWasSyncedLastIsThereWhenNothingFollowed(t *testing.T) {
	for seed := range uint64(200) {
		s, rng := NewSim(nil), seeded(seed)
		durable := map[string][]byte{}
		scribble(t, s, rng, 60, func(name string, c []byte) { durable[name] = c })
		before := map[string]string{}
		for name := range durable {
			before[name] = contentOrError(name)(s)
		}
		s.Crash(rng)
		for name, c := range durable {
			after := contentOrError(name)(s)
			if before[name] == string(c) && after != before[name] {
				t.Fatalf("seed %d: %s was wholly synced and changed", seed, name)
			}
			// In every place the bytes are those of the sync, of later, or of a cut and regrown end.
			for i := range min(len(c), len(after), len(before[name])) {
				if after[i] != c[i] && after[i] != before[name][i] && after[i] != 0 && !everDiffered(c, before[name], i) {
					t.Fatalf("seed %d: %s byte %d is neither what was synced nor what came after", seed, name, i)
				}
			}
		}
		if len(s.volatileFiles) != 0 || len(s.volatileNames) != 0 {
			t.Fatalf("seed %d: something is volatile after a crash", seed)
		}
	}
}

// everDiffered is true where the sector of byte i was written after the sync: a
// version between the two may have stayed.
func everDiffered(synced []byte, now string, i int) bool {
	lo, hi := i/SectorBytes*SectorBytes, (i/SectorBytes+1)*SectorBytes
	return string(synced[lo:min(hi, len(synced))]) != now[lo:min(hi, len(now))]
}

func TestAGigabyteOfHolesCostsNothing(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	for range 1000 {
		if err := errors.Join(h.Preallocate(0, 1<<30), h.Truncate(1<<30), h.Truncate(10)); err != nil {
			t.Fatal(err)
		}
		put(t, h, "x", 1<<30-1)
	}
	if f := h.(*simFile).ino; len(f.pages) > 2 {
		t.Errorf("%d pages", len(f.pages))
	}
}

func TestACloneIsIndependent(t *testing.T) {
	s := NewSim(nil)
	write(t, s, "a", "x")
	c := s.Clone()
	write(t, s, "a", "y")
	write(t, c, "b", "z")
	wantContent(t, c, "a", "x")
	wantContent(t, s, "a", "y")
	if got := contentOrError("b")(s); got != "missing" {
		t.Error(got)
	}
}

func TestDurableChangesAreForgotten(t *testing.T) {
	s := NewSim(nil)
	for range 10 {
		mkdir(t, s, "d")
		write(t, s, "d/a", "x")
		if err := s.RemoveAll("d"); err != nil {
			t.Fatal(err)
		}
		syncAll(t, DirSyncer(s, "/"), DirSyncer(s, "/"))
	}
	if len(s.volatileNames) > 2 {
		t.Errorf("%d changes of names are kept for directories that are gone", len(s.volatileNames))
	}
}

// A file that is removed for good takes what was volatile of it along, also while it is open.
func TestAFileThatIsGoneIsForgotten(t *testing.T) {
	s := NewSim(nil)
	for i := range 10 {
		h := open(t, s, "a", Create)
		put(t, h, "x", 0)
		if err := s.Remove("a"); err != nil {
			t.Fatal(err)
		}
		syncAll(t, DirSyncer(s, "/"))
		put(t, h, "y", 1)
		if err := h.Truncate(1); err != nil {
			t.Fatal(err)
		}
		if b := make([]byte, 1); second(h.ReadAt(b, 0)) != nil || b[0] != 'x' {
			t.Errorf("an open file without a name holds %q", b)
		}
		if i%2 == 0 {
			syncAll(t, h)
		}
	}
	if n := len(s.volatileFiles) + len(s.unlinked); n > 0 {
		t.Errorf("%d files are kept that are gone", n)
	}
}

func second[T any](_ T, err error) error { return err }

func TestACloneHasAsManyBoots(t *testing.T) {
	s := NewSim(nil)
	s.Crash(seeded(1))
	if c := s.Clone(); c.Boots() != 1 {
		t.Errorf("%d boots", c.Boots())
	}
}

func TestBitRotIsSilentAndDurable(t *testing.T) {
	s := NewSim(nil)
	h := open(t, s, "a", Create)
	put(t, h, "abc", 0)
	syncAll(t, h, DirSyncer(s, "/"))
	if !s.Rot("a", 1, 1) || s.Rot("a", 3, 1) || s.Rot("b", 0, 1) {
		t.Error("wrong report")
	}
	wantOutcomes(t, s, contentOrError("a"), "acc")
}
