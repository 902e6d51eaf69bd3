package server

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// pinnedLog is a real log of two segments; deleting the first waits for its pins.
type pinnedLog struct {
	t   *testing.T
	dir string
	mu  sync.Mutex // the partition's lock
	log storage.Log
	end int64 // of the first segment
}

func newPinnedLog(t *testing.T) *pinnedLog {
	t.Helper()
	p := &pinnedLog{t: t, dir: t.TempDir()}
	d, err := storage.OpenDir(vfs.NewReal("", nil), p.dir, storage.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := storage.DefaultLogConfig()
	cfg.SegmentBytes, cfg.FileDeleteDelayMs, cfg.MaxMessageBytes = 8<<20, 0, 8<<20
	if p.log, _, err = d.Open("t", [16]byte{1}, 0, cfg, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.log.Close()
		d.Close(false, -1)
	})
	b := record.NewBuilder(record.None)
	b.Append(0, nil, make([]byte, 4<<20))
	for {
		a, err := p.log.Append(b.Build(nil), storage.AppendArgs{})
		if err != nil {
			t.Fatal(err)
		}
		if a.Rolled {
			p.end = a.BaseOffset
			return p
		}
	}
}

// fetch answers every fetch with the first segment.
func (p *pinnedLog) fetch(req broker.Request, reply broker.Reply) {
	if _, ok := req.Body.(*kmsg.FetchRequest); !ok {
		echo(req, reply)
		return
	}
	p.mu.Lock()
	region, err := p.log.Read(0, p.end, 64<<20)
	p.mu.Unlock()
	if err != nil {
		p.t.Error(err)
	}
	reply(broker.Answer{Fetch: &broker.FetchAnswer{Parts: []broker.FetchPart{{Region: region}}}})
}

func (p *pinnedLog) deleteFirstSegment() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.log.AdvanceLogStart(p.end, p.end); err != nil {
		p.t.Fatal(err)
	}
}

// deletedFiles counts what still waits for its removal, after trying.
func (p *pinnedLog) deletedFiles() (n int) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for now := range int64(2) { // the first call notes the time of the deletion
		if err := p.log.RemoveExpired(1 + now); err != nil {
			p.t.Fatal(err)
		}
	}
	filepath.WalkDir(p.dir, func(name string, _ os.DirEntry, _ error) error {
		if strings.HasSuffix(name, ".log.deleted") {
			n++
		}
		return nil
	})
	return n
}

func TestAClientThatNeverReadsDoesNotPinSegmentsForEver(t *testing.T) {
	for _, how := range []storage.Transfer{storage.TransferSendfile, storage.TransferCopy, storage.TransferMmap} {
		t.Run(string(how), func(t *testing.T) {
			p := newPinnedLog(t)
			w := start(t, Options{Transfer: how, StallMax: time.Hour, IdleMax: 1e6 * time.Hour, SendBuffer: 32 << 10}, p.fetch)
			c := w.dialSilent(t)
			for i := range int32(30) { // one is being written, the rest wait behind it
				c.send(kmsg.NewPtrFetchRequest(), i)
			}
			waitFor(t, "an answer under way", func() bool { return w.bytesWritten() > 0 })
			p.deleteFirstSegment()
			if n := p.deletedFiles(); n != 1 {
				t.Errorf("%d files wait for their pins, want the one that is being sent", n)
			}
			w.closeAfter(t, time.Hour, 0)
			waitFor(t, "the pins' end", func() bool { return p.deletedFiles() == 0 })
		})
	}
}

func TestRegionsOfALateReplyAreReleased(t *testing.T) {
	p := newPinnedLog(t)
	late := make(chan func(), 1)
	w := start(t, Options{}, func(req broker.Request, reply broker.Reply) { late <- func() { p.fetch(req, reply) } })
	c := w.dial(t)
	c.send(kmsg.NewPtrFetchRequest(), 1)
	answer := <-late
	c.Close()
	waitFor(t, "the connection's end", func() bool { return len(w.connections()) == 0 })
	answer() // a long poll that found something too late
	p.deleteFirstSegment()
	if n := p.deletedFiles(); n != 0 {
		t.Errorf("%d files are pinned by an answer that nobody will get", n)
	}
}

func TestRegionsQueuedBehindALongPollAreReleasedAtTheEnd(t *testing.T) {
	p := newPinnedLog(t)
	first := true
	w := start(t, Options{}, func(req broker.Request, reply broker.Reply) {
		if first { // a long poll that is never answered
			first = false
			return
		}
		p.fetch(req, reply)
	})
	c := w.dial(t)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxBytes = 4, 1<<20 // small enough for two in flight
	c.send(fetch, 1)
	c.send(fetch, 2)
	waitFor(t, "an answer behind the poll", w.answerWaits)
	p.deleteFirstSegment()
	if n := p.deletedFiles(); n != 1 {
		t.Errorf("%d files wait for their pins, want the one in the queue", n)
	}
	c.Close()
	waitFor(t, "the pin's end", func() bool { return p.deletedFiles() == 0 })
}

func TestADeliveredRegionIsReleased(t *testing.T) {
	p := newPinnedLog(t)
	w := start(t, Options{}, p.fetch)
	c := w.dial(t)
	c.send(kmsg.NewPtrFetchRequest(), 1)
	c.receive()
	p.deleteFirstSegment()
	waitFor(t, "the pin's end", func() bool { return p.deletedFiles() == 0 })
}
