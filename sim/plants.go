package sim

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// plants are the planted faults. Each is a mistake that somebody made once, or
// could: most are made by the world around an unchanged broker.
var plants = map[string]planted{
	"ack-before-sync": {
		doc:    "the broker acknowledges at once where group commit asks for a sync first",
		change: func(c *config) { durable(c); c.broker.Faults.AckBeforeSync = true },
	},
	"earlier-sync-shared": {
		doc:    "an append is acknowledged by the sync in flight, which began before it",
		change: func(c *config) { durable(c); c.broker.Faults.ShareEarlierSync = true },
	},
	"failed-sync-trusted": {
		doc: "a failed sync counts as done, and the broker goes on",
		change: func(c *config) {
			durable(c)
			c.syncMax = 100 * time.Millisecond
			c.broker.Faults.TrustFailedSync = true
		},
		onOp: failSyncThenPower,
	},
	"page-cache-trusted": {
		doc: "after a failed sync and a restart the next sync counts for what only the page cache holds",
		change: func(c *config) {
			durable(c)
			c.kills = true
			c.broker.Log.TrustPageCache = true
		},
		onOp: failSyncThenKill,
	},
	"resend-acked-early": {
		doc: "a resend is acknowledged although the sync of its first send is under way",
		change: func(c *config) {
			durable(c)
			c.brokenConns, c.syncMax = true, time.Second
			c.broker.FlushGroup = true
			c.broker.Faults.AckResendEarly = true
			for i := range c.producers {
				c.producers[i].idempotent, c.producers[i].acks, c.producers[i].retries = true, -1, true
			}
		},
	},
	"unflushed-served": {
		doc: "lab.visibility=flushed shows consumers what is not durable",
		change: func(c *config) {
			c.powerCuts = true
			c.broker.Visibility, c.promises.ReadIsDurable = broker.VisibleFlushed, true
			c.broker.Faults.ServeUnflushed = true
		},
	},
	"region-unpinned": {
		doc: "a fetch answer's file regions are not pinned until it is sent",
		change: func(c *config) {
			c.slow = 2 * time.Second
			c.broker.Log.RetentionMs, c.promises.RetentionMs = 300, 300
			c.broker.Log.FileDeleteDelayMs, c.broker.RetentionCheck = 0, 20*time.Millisecond
			c.broker.Log.SegmentBytes, c.broker.Log.Cache = 4<<10, "page"
			c.broker.Faults.UnpinRegions = true
		},
	},
	"directory-not-synced": {
		doc:    "directory syncs do nothing: a file that is synced can lose its name",
		change: durable,
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return noDirSync{disk} },
	},
	"log-not-synced": {
		doc:    "syncs of .log files do nothing",
		change: durable,
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return noFileSync{disk, ".log"} },
	},
	"checkpoint-not-synced": {
		doc:    "checkpoints and meta.properties are renamed into place without a sync before",
		change: func(c *config) { c.powerCuts = true },
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return noFileSync{disk, ".tmp"} },
	},
	"torn-tail-trusted": {
		doc: "recovery takes the tail of a log as it stands, without its checksums",
		change: func(c *config) {
			c.powerCuts = true
			c.broker.Log.TrustTail = true
		},
	},
	"clean-mark-stays": {
		doc: "the mark of a clean shutdown is not removed at the start, so a crash is taken for a clean end",
		change: func(c *config) {
			c.powerCuts, c.shutdowns = true, true
		},
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return cleanMarkStays{disk} },
	},
	"recovery-point-early": {
		doc: "the recovery point is the log end offset and not what was flushed",
		change: func(c *config) {
			c.powerCuts = true
			c.broker.CheckpointInterval = 30 * time.Millisecond
		},
		wrapFS: func(w *World, disk vfs.FS) vfs.FS { return recoveryPointEarly{disk, w} },
	},
	"deletion-forgotten": {
		doc:    "the directory of a deleted partition keeps its name",
		change: func(c *config) { c.renews = true },
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return deletionForgotten{disk} },
	},
	"producer-state-lost": {
		doc: "snapshots of producer state are not found at a start, so producers whose batches retention took are unknown",
		change: func(c *config) {
			c.kills = true
			c.broker.Log.RetentionMs, c.promises.RetentionMs = 300, 300
			c.broker.Log.SegmentBytes, c.broker.RetentionCheck = 4<<10, 20*time.Millisecond
			for i := range c.producers {
				c.producers[i].idempotent, c.producers[i].acks, c.producers[i].retries = true, -1, true
			}
		},
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return noSnapshots{disk} },
	},
	"write-error-ignored": {
		doc:    "a failed write is taken for a success: the log goes on behind a hole",
		change: func(c *config) { c.ioErrors = true },
		wrapFS: func(_ *World, disk vfs.FS) vfs.FS { return ignoreWriteErrors{disk} },
	},
	"deduplication-off": {
		doc: "the broker does not look at sequence numbers",
		change: func(c *config) {
			c.brokenConns = true
			for i := range c.producers {
				c.producers[i].idempotent, c.producers[i].acks, c.producers[i].retries = true, -1, true
			}
		},
		ask: stripProducerID,
	},
	"answer-dropped": {
		doc:  "one produce answer in a hundred never leaves, though the connection stays",
		lose: func(w *World, r kmsg.Request) bool { return r.Key() == int16(kmsg.Produce) && w.chance(100) },
	},
	"sync-never-ends": {
		doc:    "one sync in fifty never reports back",
		change: durable,
		wrap:   func(_ *World, i *incarnation) env.Env { return syncNeverEnds{i} },
	},
}

// failSyncThenPower fails one sync of a log in twenty, and soon after the power.
func failSyncThenPower(w *World, i *incarnation, op vfs.Op) error {
	if op.Kind != vfs.OpSyncEnd || !strings.HasSuffix(op.Name, ".log") || !i.open || w.healed || !w.chance(20) {
		return nil
	}
	i.injected = true
	w.after(&i.process, 3*time.Millisecond, func() { w.crash(true) })
	return fmt.Errorf("%w: %s", vfs.ErrInjected, op)
}

// failSyncThenKill fails one sync of a log in twenty; the broker is started again on the same
// boot, and some time later the power fails.
func failSyncThenKill(w *World, i *incarnation, op vfs.Op) error {
	if op.Kind != vfs.OpSyncEnd || !strings.HasSuffix(op.Name, ".log") || !i.open || w.healed || i.injected || !w.chance(20) {
		return nil
	}
	i.injected = true
	w.after(&i.process, 3*time.Millisecond, w.kill)
	w.after(nil, w.between(500*time.Millisecond, time.Second), func() {
		if !w.healed {
			w.crash(true)
		}
	})
	return fmt.Errorf("%w: %s", vfs.ErrInjected, op)
}

// durable makes acks promise durability, and power fail.
func durable(c *config) {
	c.powerCuts = true
	if !c.promises.AckIsDurable {
		c.broker.FlushGroup, c.promises.AckIsDurable = true, true
	}
	for i := range c.producers {
		if c.producers[i].acks == 0 {
			c.producers[i].acks = 1
		}
	}
}

type deletionForgotten struct{ vfs.FS }

func (f deletionForgotten) BeginSyncDir(dir string) func() error { return beginSyncDir(f.FS, dir) }

func (f deletionForgotten) Rename(oldName, newName string) error {
	if strings.HasSuffix(newName, "-delete") {
		return nil
	}
	return f.FS.Rename(oldName, newName)
}

type noSnapshots struct{ vfs.FS }

func (f noSnapshots) BeginSyncDir(dir string) func() error { return beginSyncDir(f.FS, dir) }

func (f noSnapshots) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if strings.HasSuffix(name, ".snapshot") && mode == vfs.ReadOnly {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.FS.Open(name, mode)
}

type noDirSync struct{ vfs.FS }

func (f noDirSync) SyncDir(string) error             { return nil }
func (f noDirSync) BeginSyncDir(string) func() error { return func() error { return nil } }

// noFileSync skips syncs of files whose names end in suffix.
type noFileSync struct {
	vfs.FS
	suffix string
}

func (f noFileSync) BeginSyncDir(dir string) func() error { return beginSyncDir(f.FS, dir) }

func (f noFileSync) Open(name string, mode vfs.Mode) (vfs.File, error) {
	h, err := f.FS.Open(name, mode)
	if err == nil && strings.HasSuffix(name, f.suffix) {
		h = unsynced{h}
	}
	return h, err
}

type unsynced struct{ vfs.File }

func (unsynced) Sync() error { return nil }

func beginSyncDir(disk vfs.FS, dir string) func() error {
	return vfs.DirSyncer(disk, dir).(vfs.BeginSyncer).BeginSync()
}

type cleanMarkStays struct{ vfs.FS }

func (f cleanMarkStays) BeginSyncDir(dir string) func() error { return beginSyncDir(f.FS, dir) }

func (f cleanMarkStays) Remove(name string) error {
	if path.Base(name) == ".kafka_cleanshutdown" {
		_, err := f.FS.Stat(name)
		return err
	}
	return f.FS.Remove(name)
}

// recoveryPointEarly writes into the checkpoint where the logs end, as the
// world knows it, instead of what the broker says.
type recoveryPointEarly struct {
	vfs.FS
	w *World
}

func (f recoveryPointEarly) BeginSyncDir(dir string) func() error { return beginSyncDir(f.FS, dir) }

func (f recoveryPointEarly) Open(name string, mode vfs.Mode) (vfs.File, error) {
	h, err := f.FS.Open(name, mode)
	if err == nil && strings.HasPrefix(path.Base(name), "recovery-point-offset-checkpoint") && mode&vfs.Create != 0 {
		h = earlyFile{h, f.w}
	}
	return h, err
}

type earlyFile struct {
	vfs.File
	w *World
}

func (f earlyFile) WriteAt(b []byte, off int64) (int, error) {
	lines := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	out := append(bytes.Join(lines[:min(2, len(lines))], []byte("\n")), '\n')
	for _, line := range lines[min(2, len(lines)):] {
		out = append(out, f.w.earlyPoint(line)...)
		out = append(out, '\n')
	}
	if _, err := f.File.WriteAt(out, off); err != nil {
		return 0, err
	}
	return len(b), nil
}

// earlyPoint gives a line of the checkpoint, "topic partition offset", with the
// end of what is known of the partition.
func (w *World) earlyPoint(line []byte) string {
	var topic string
	var partition int
	var offset int64
	if _, err := fmt.Sscan(string(line), &topic, &partition, &offset); err != nil || partition >= len(w.partitions) {
		return string(line)
	}
	return fmt.Sprintf("%s %d %d", topic, partition, max(offset, w.partitions[partition].End()))
}

type ignoreWriteErrors struct{ vfs.FS }

func (f ignoreWriteErrors) BeginSyncDir(dir string) func() error { return beginSyncDir(f.FS, dir) }

func (f ignoreWriteErrors) Open(name string, mode vfs.Mode) (vfs.File, error) {
	h, err := f.FS.Open(name, mode)
	if err == nil && strings.HasSuffix(name, ".log") {
		h = ignoring{h, h.(vfs.BeginSyncer)}
	}
	return h, err
}

type ignoring struct {
	vfs.File
	sync vfs.BeginSyncer
}

func (f ignoring) BeginSync() func() error { return f.sync.BeginSync() }

func (f ignoring) WriteAt(b []byte, off int64) (int, error) {
	_, _ = f.File.WriteAt(b, off)
	return len(b), nil
}

// stripProducerID makes a batch look as if its producer were not idempotent.
func stripProducerID(r kmsg.Request) {
	req, ok := r.(*kmsg.ProduceRequest)
	if !ok {
		return
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			for i := 43; i < 57; i++ { // producer id, epoch, base sequence: all -1
				p.Records[i] = 0xff
			}
			record.FixCRC(p.Records)
		}
	}
}

type syncNeverEnds struct{ *incarnation }

func (e syncNeverEnds) Sync(s []vfs.Syncer, done func(error)) {
	if e.w.chance(50) && !e.stopping {
		return
	}
	e.incarnation.Sync(s, done)
}
