package storage

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// conversation is a log that a file of testdata/log talks to, one command a line:
//
//	new [segment-bytes= index-interval= offsets= …]   an empty disk and a log on it
//	append ts= [records= value= producer= sequence= producer-epoch= epoch= now= codec=]
//	read offset= [limit= max=]          the batches of the region
//	pin offset= [max=] · unpin          a region held; its bytes must not change
//	time ts= · epoch-end epoch=
//	flush · begin · end · checkpoint
//	retain now= [limit= ms= bytes=] · remove now= · advance offset= · truncate offset=
//	close · kill · open [now=] · mark   a clean shutdown mark that lies
//	rot file= at=                       flips a bit
//	files · cat file= · trace           file operations since the last trace, reads left out
type conversation struct {
	t      *testing.T
	disk   *vfs.Sim
	fs     vfs.FS
	cfg    LogConfig
	d      *Dir
	l      *segmentLog
	flush  *Flush
	pinned []pinnedRegion
	trace  []string
}

func TestLogConversations(t *testing.T) {
	datadriven.Walk(t, "testdata/log", func(t *testing.T, path string) {
		c := &conversation{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c.t = t
			var out strings.Builder
			lines := append([]string{d.Cmd}, strings.Split(strings.TrimSpace(d.Input), "\n")...)
			args := make([]string, len(d.CmdArgs))
			for i, a := range d.CmdArgs {
				args[i] = a.String()
			}
			lines[0] = strings.TrimSpace(d.Cmd + " " + strings.Join(args, " "))
			for _, line := range lines {
				if line != "" {
					out.WriteString(c.line(line))
				}
			}
			return out.String()
		})
	})
}

// line carries out one command and says what came of it.
func (c *conversation) line(line string) string {
	name, rest, _ := strings.Cut(line, " ")
	args := lineArgs{line: line, t: c.t, of: map[string]string{}}
	for _, f := range strings.Fields(rest) {
		k, v, _ := strings.Cut(f, "=")
		args.of[k] = v
	}
	out, err := c.command(name, args)
	if err != nil {
		var protocol *ProtocolError
		if errors.As(err, &protocol) {
			out += protocol.Name + "\n"
		} else {
			out += err.Error() + "\n"
		}
	}
	return out
}

type lineArgs struct {
	line string
	t    *testing.T
	of   map[string]string
}

func (a lineArgs) int(key string, otherwise int64) int64 {
	v, ok := a.of[key]
	if !ok {
		return otherwise
	}
	var n int64
	if _, err := fmt.Sscan(v, &n); err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return n
}

func (c *conversation) command(name string, a lineArgs) (string, error) {
	switch name {
	case "new":
		return c.begin(a)
	case "open":
		return c.open(a.int("now", 1000))
	case "append":
		return c.append(a)
	case "read", "pin":
		return c.read(name, a)
	case "unpin":
		return c.unpin(), nil
	case "time":
		offset, ts, epoch, ok, err := c.l.OffsetForTimestamp(a.int("ts", 0))
		if err != nil || !ok {
			return "none\n", err
		}
		return fmt.Sprintf("offset %d, timestamp %d, epoch %d\n", offset, ts, epoch), nil
	case "epoch-end":
		epoch, end := c.l.EndOffsetForEpoch(int32(a.int("epoch", 0)))
		return fmt.Sprintf("epoch %d ends at %d\n", epoch, end), nil
	case "flush", "begin", "end":
		return c.flushing(name)
	case "checkpoint":
		return "", c.d.Checkpoint(func() []PartitionOffset { return []PartitionOffset{{"orders", 0, c.l.LogEndOffset()}} })
	case "retain", "remove", "advance", "truncate":
		return c.remove(name, a)
	}
	return c.files(name, a)
}

func (c *conversation) begin(a lineArgs) (string, error) {
	c.disk = vfs.NewSim(nil)
	c.fs = vfs.WithHook(c.disk, func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpRead, vfs.OpSize, vfs.OpStat, vfs.OpList, vfs.OpClose, vfs.OpLock:
			return nil
		}
		_, what, _ := strings.Cut(strings.ReplaceAll(op.String(), "data/", ""), " ")
		if op.Kind == vfs.OpOpen && op.Mode&vfs.Create == 0 {
			return nil
		}
		c.trace = append(c.trace, strings.Replace(what, "open ", "create ", 1))
		return nil
	})
	c.cfg = testConfig()
	c.cfg.SegmentBytes = a.int("segment-bytes", 1000)
	c.cfg.IndexIntervalBytes = a.int("index-interval", 300)
	c.cfg.SegmentMs = a.int("segment-ms", c.cfg.SegmentMs)
	c.cfg.SegmentIndexBytes = a.int("segment-index-bytes", c.cfg.SegmentIndexBytes)
	c.cfg.ProducerIDExpirationMs = a.int("producer-expiration", c.cfg.ProducerIDExpirationMs)
	c.cfg.ProducerIDsMax = int(a.int("producers-max", int64(c.cfg.ProducerIDsMax)))
	c.cfg.FileDeleteDelayMs = a.int("delete-delay", 0)
	c.cfg.Preallocate = a.int("preallocate", 0) == 1
	c.cfg.LogAppendTime = a.int("log-append-time", 0) == 1
	if a.of["offsets"] == "byte" {
		c.cfg.Offsets = OffsetsByte
	}
	_, err := c.open(1000)
	return "", err
}

func (c *conversation) open(now int64) (string, error) {
	d, err := OpenDir(c.fs, "data", Identity{ClusterID: "cluster", BrokerID: 1})
	if err != nil {
		return "", err
	}
	l, rep, err := d.Open("orders", [16]byte{0: 1, 15: 2}, 0, c.cfg, now)
	c.d = d
	var out strings.Builder
	for _, w := range d.Warnings() {
		fmt.Fprintln(&out, w)
	}
	if err != nil {
		return out.String(), err
	}
	c.l = l.(*segmentLog)
	fmt.Fprintf(&out, "clean=%v scanned=%d truncated=%d: %s\n", rep.Clean, rep.BytesScanned, rep.TruncatedBytes, c.state())
	for _, e := range rep.Damage {
		fmt.Fprintln(&out, &e)
	}
	return out.String(), nil
}

func (c *conversation) state() string {
	return fmt.Sprintf("start=%d end=%d flushed=%d segments=%d", c.l.LogStartOffset(), c.l.LogEndOffset(), c.l.FlushedOffset(), len(c.l.segments))
}

func (c *conversation) append(a lineArgs) (string, error) {
	s := batchSpec{
		records: int(a.int("records", 1)), valueSize: int(a.int("value", 100)), timestamp: a.int("ts", 1000),
		producer: a.int("producer", 0), epoch: int16(a.int("producer-epoch", 0)), sequence: int32(a.int("sequence", 0)), codec: record.Codec(a.int("codec", 0)),
	}
	got, err := c.l.Append(s.build(), AppendArgs{LeaderEpoch: int32(a.int("epoch", 0)), Now: a.int("now", 1000)})
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("offsets %d-%d", got.BaseOffset, got.LastOffset)
	if got.Rolled {
		out += " rolled"
	}
	if got.Duplicate {
		out += " duplicate"
	}
	if got.AppendTime >= 0 {
		out += fmt.Sprintf(" at %d", got.AppendTime)
	}
	return out + "\n", nil
}

func (c *conversation) read(name string, a lineArgs) (string, error) {
	r, err := c.l.Read(a.int("offset", 0), a.int("limit", c.l.LogEndOffset()), int(a.int("max", 1)))
	if err != nil {
		return "", err
	}
	if r.Len == 0 {
		return "nothing\n", nil
	}
	b := make([]byte, r.Len)
	if err := readFull(r.File, b, r.Pos); err != nil {
		return "", err
	}
	if name == "pin" {
		c.pinned = append(c.pinned, pinnedRegion{r, b})
	} else {
		r.Release()
	}
	out := fmt.Sprintf("%s at byte %d:", strings.TrimPrefix(r.File.Name(), "data/orders-0/"), r.Pos)
	for h := range record.Batches(b) {
		out += fmt.Sprintf(" %d-%d", h.BaseOffset, h.LastOffset())
	}
	return out + "\n", nil
}

func (c *conversation) unpin() string {
	out := ""
	for _, p := range c.pinned {
		b := make([]byte, p.region.Len)
		if err := readFull(p.region.File, b, p.region.Pos); err != nil || string(b) != string(p.want) {
			out += fmt.Sprintf("bytes of a live region changed: %v\n", err)
		}
		p.region.Release()
	}
	c.pinned = nil
	return out
}

func (c *conversation) flushing(name string) (string, error) {
	if name != "end" {
		c.flush = c.l.BeginFlush()
	}
	if c.flush == nil {
		return "nothing to flush\n", nil
	}
	if name == "begin" {
		return "", nil
	}
	err := c.flush.Sync()
	c.l.EndFlush(c.flush, err)
	return fmt.Sprintf("flushed=%d\n", c.l.FlushedOffset()), err
}

func (c *conversation) remove(name string, a lineArgs) (out string, err error) {
	switch name {
	case "retain":
		cfg := c.cfg
		cfg.RetentionMs, cfg.RetentionBytes = a.int("ms", -1), a.int("bytes", -1)
		c.l.SetConfig(cfg)
		var gone []DeletedSegment
		gone, err = c.l.Retain(a.int("now", 1000), a.int("limit", c.l.LogEndOffset()))
		c.l.SetConfig(c.cfg)
		for _, g := range gone {
			out += fmt.Sprintf("deleted %d, %d bytes: %s\n", g.BaseOffset, g.Bytes, g.Why)
		}
	case "remove":
		err = c.l.RemoveExpired(a.int("now", 1000))
	case "advance":
		err = c.l.AdvanceLogStart(a.int("offset", 0), a.int("limit", c.l.LogEndOffset()))
	case "truncate":
		err = c.l.Truncate(a.int("offset", 0))
	}
	return out + c.state() + "\n", err
}

func (c *conversation) files(name string, a lineArgs) (string, error) {
	var out strings.Builder
	switch name {
	case "close":
		return "", c.d.Close(true, -1)
	case "kill":
		c.disk.Kill()
		c.pinned = nil
	case "mark":
		return "", writeFile(c.disk, "data/"+cleanFile, nil)
	case "rot":
		if !c.disk.Rot("data/orders-0/"+a.of["file"], a.int("at", 0), 1) {
			return "", errors.New("no such byte")
		}
	case "cut":
		f, err := c.disk.Open("data/orders-0/"+a.of["file"], vfs.ReadWrite)
		if err != nil {
			return "", err
		}
		return "", errors.Join(f.Truncate(a.int("size", 0)), f.Close())
	case "files":
		for _, dir := range []string{"data", "data/orders-0"} {
			names, err := c.disk.List(dir)
			if err != nil {
				return "", err
			}
			for _, n := range names {
				if info, err := c.disk.Stat(dir + "/" + n); err == nil && !info.Dir {
					fmt.Fprintf(&out, "%6d %s\n", info.Size, strings.TrimPrefix(strings.TrimPrefix(dir+"/"+n, "data/"), "/"))
				}
			}
		}
	case "cat":
		b, err := readFile(c.disk, "data/"+a.of["file"], 1<<20)
		return string(b) + "\n", err
	case "trace":
		for _, line := range c.trace {
			fmt.Fprintln(&out, line)
		}
		c.trace = nil
	default:
		c.t.Fatalf("no such command: %s", a.line)
	}
	return out.String(), nil
}
