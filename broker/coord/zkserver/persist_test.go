package zkserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

func simDisk() *vfs.Sim { return vfs.NewSim(func() time.Time { return time.Unix(0, 0) }) }

func TestTreeAndSessionsOutliveTheServer(t *testing.T) {
	cfg := Config{Disk: vfs.NewReal(t.TempDir(), nil), Dir: "zk", noTick: true, now: func() time.Duration { return 0 }}
	first, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("127.0.0.1:0", cfg); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("a second server on the same directory: %v", err)
	}
	a := dial(t, first.Addr()).open(4000, 0, nil)
	a.do(opCreate, createBody("/e", "mine", 1))
	a.do(opCreate, createBody("/s-", "", 2))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s := listen(t, cfg)
	again := dial(t, s.Addr()).open(4000, a.session, a.password)
	if again.session != a.session {
		t.Fatal("the session is gone")
	}
	if code, b := again.do(opGetData, pathWatch("/e", false)); code != 0 || b.string() != "mine" {
		t.Fatal(code)
	}
	if code, b := again.do(opCreate, createBody("/s-", "", 2)); code != 0 || b.string() != "/s-0000000002" {
		t.Fatal(code)
	}
	s.ticks(4) // nobody is heard for longer than the timeout
	b := dial(t, s.Addr()).open(4000, 0, nil)
	if code, _ := b.do(opExists, pathWatch("/e", false)); code != coord.ErrNoNode.Code {
		t.Fatalf("the session did not expire after the restart: %d", code)
	}
}

// A power cut at any moment keeps all that was answered.
func TestWhatWasAnsweredSurvivesAPowerCut(t *testing.T) {
	for seed := range uint64(20) {
		disk := simDisk()
		cfg := Config{Disk: disk, Dir: "zk", noTick: true, now: func() time.Duration { return 0 }}
		s, err := Listen("127.0.0.1:0", cfg)
		if err != nil {
			t.Fatal(err)
		}
		a := dial(t, s.Addr()).open(4000, 0, nil)
		answered := int(seed) % 7
		for i := range answered {
			if code, _ := a.do(opCreate, createBody(fmt.Sprintf("/n%d", i), "data", 0)); code != 0 {
				t.Fatal(code)
			}
		}
		crashed := disk.Clone()
		crashed.Crash(rand.New(rand.NewPCG(seed, 1)))
		_ = s.Close()
		cfg.Disk = crashed
		after, err := Listen("127.0.0.1:0", cfg)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b := dial(t, after.Addr()).open(4000, a.session, a.password)
		for i := range answered {
			if code, _ := b.do(opExists, pathWatch(fmt.Sprintf("/n%d", i), false)); code != 0 || b.session != a.session {
				t.Fatalf("seed %d: node %d of %d: code %d", seed, i, answered, code)
			}
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFailedSyncEndsTheServerAndAnswersNobody(t *testing.T) {
	disk := &failingDisk{FS: simDisk()}
	s, err := Listen("127.0.0.1:0", Config{Disk: disk, Dir: "zk", noTick: true, now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	a := dial(t, s.Addr()).open(4000, 0, nil)
	s.call(func() { disk.fail = true })
	a.send(opCreate, createBody("/x", "", 0))
	a.wantClosed()
	if err := s.Wait(); !errors.Is(err, vfs.ErrInjected) {
		t.Fatalf("the server ended with %v", err)
	}
	if err := s.Close(); !errors.Is(err, vfs.ErrInjected) {
		t.Fatal(err)
	}
}

// While a change is being synced it has not been answered.
func TestNothingIsAnsweredBeforeItIsSynced(t *testing.T) {
	disk := &failingDisk{FS: simDisk()}
	s := listen(t, Config{Disk: disk, Dir: "zk"})
	a := dial(t, s.Addr()).open(4000, 0, nil)
	syncs := 0
	s.call(func() {
		disk.onSync = func() { // runs in the core, as all that touches held output
			syncs++
			peer := s.core.sessions[a.session]
			peer.mu.Lock()
			defer peer.mu.Unlock()
			if peer.inFlight == 0 || len(peer.held) == 0 {
				t.Errorf("%d requests wait for the sync, with %d bytes of answers", peer.inFlight, len(peer.held))
			}
		}
	})
	for range 3 {
		if code, _ := a.do(opCreate, createBody("/x-", "", 2)); code != 0 {
			t.Fatal(code)
		}
	}
	s.call(func() { disk.onSync = nil })
	if syncs != 3 {
		t.Errorf("%d syncs for 3 changes, one after the other", syncs)
	}
}

// failingDisk refuses to sync the journal once fail is set, and tells of syncs.
type failingDisk struct {
	vfs.FS
	fail   bool
	onSync func()
}

type failingFile struct {
	vfs.File
	disk *failingDisk
}

func (d *failingDisk) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := d.FS.Open(name, mode)
	return failingFile{f, d}, err
}

func (f failingFile) Sync() error {
	if f.disk.fail {
		return vfs.ErrInjected
	}
	if f.disk.onSync != nil {
		f.disk.onSync()
	}
	return f.File.Sync()
}

func TestADamagedDirectoryIsRefused(t *testing.T) {
	disk := simDisk()
	cfg := Config{Disk: disk, Dir: "zk", noTick: true}
	s, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Open("zk/coord.journal", vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteAt([]byte("damage"), 40)
	var damaged *coord.CorruptionError
	if _, err := Listen("127.0.0.1:0", cfg); !errors.As(err, &damaged) {
		t.Fatalf("damage was not seen: %v", err)
	}
	f, _ = disk.Open("zk/session.secret", vfs.ReadWrite)
	_ = f.Truncate(3)
	if _, err := Listen("127.0.0.1:0", cfg); err == nil || !strings.Contains(err.Error(), "session.secret is damaged") {
		t.Fatalf("damage was not seen: %v", err)
	}
}

// The journal is compacted while the server runs, and holds everything afterwards.
func TestTheStoreIsCompacted(t *testing.T) {
	disk := simDisk()
	cfg := Config{Disk: disk, Dir: "zk", noTick: true, now: func() time.Duration { return 0 }}
	s, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := dial(t, s.Addr()).open(4000, 0, nil)
	a.do(opCreate, createBody("/x", "", 0))
	big := strings.Repeat("x", 1<<19)
	for i := range 40 { // 20 MiB of history, half a MiB of state
		if code, _ := a.do(opSetData, appendInt32(appendString(appendString(nil, "/x"), fmt.Sprint(i, big)), -1)); code != 0 {
			t.Fatal(code)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := disk.Stat("zk/coord.journal"); err != nil || info.Size > 8<<20 {
		t.Fatalf("%v, %d bytes", err, info.Size)
	}
	after := listen(t, cfg)
	b := dial(t, after.Addr()).open(4000, 0, nil)
	if code, r := b.do(opGetData, pathWatch("/x", false)); code != 0 || !strings.HasPrefix(r.string(), "39x") {
		t.Fatal(code)
	}
}
