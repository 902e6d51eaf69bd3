package broker_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/brokertest"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// TestConversations plays the conversations of testdata: requests as they come
// from the wire, and what the broker answers, in virtual time. A file's name says
// what it protects. The commands are the methods do… of conversation.
func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata/conversations", func(t *testing.T, path string) {
		c := newConversation()
		datadriven.RunTest(t, path, c.play)
	})
}

// TestPlantedFaultsAreSeen takes back one rule at a time. The conversation that
// protects it must go differently then, or it protects nothing.
func TestPlantedFaultsAreSeen(t *testing.T) {
	for _, f := range []struct {
		name, conversation string
		plant              broker.Faults
	}{
		{"AckBeforeSync", "acks_after_sync", broker.Faults{AckBeforeSync: true}},
		{"AckBeforeSync", "flush_interval_messages", broker.Faults{AckBeforeSync: true}},
		{"ShareEarlierSync", "acks_after_sync", broker.Faults{ShareEarlierSync: true}},
		{"ShareSyncs", "own_sync_for_each_append", broker.Faults{ShareSyncs: true}},
		{"TrustFailedSync", "failed_sync", broker.Faults{TrustFailedSync: true}},
		{"AckResendEarly", "duplicate_waits_for_sync", broker.Faults{AckResendEarly: true}},
		{"AckResendEarly", "duplicate_waits_for_recovered_tail", broker.Faults{AckResendEarly: true}},
		{"ServeUnflushed", "visibility_flushed", broker.Faults{ServeUnflushed: true}},
		{"UnpinRegions", "regions_pin_their_bytes", broker.Faults{UnpinRegions: true}},
	} {
		t.Run(f.name+"/"+f.conversation, func(t *testing.T) {
			c := newConversation()
			c.faults = f.plant
			seen := ""
			datadriven.RunTest(t, "testdata/conversations/"+f.conversation, func(t *testing.T, d *datadriven.TestData) string {
				if seen == "" {
					if got := c.play(t, d); got != d.Expected {
						seen = fmt.Sprintf("%s: %q instead of %q", d.Pos, got, d.Expected)
					}
				}
				return d.Expected // also under -rewrite: the fault is never written down
			})
			if seen == "" {
				t.Fatal("the conversation goes as if the rule held")
			}
			t.Log(seen)
		})
	}
}

// conversation is one test's world: a broker that may be started again over its disk.
type conversation struct {
	env    *brokertest.Env
	sim    *vfs.Sim
	broker *broker.Broker
	out    strings.Builder
	asked  int
	lives  uint64 // starts
	// fault, when it is set, answers each operation of the disk.
	fault  vfs.Hook
	faults broker.Faults
	// held are answers that a slow connection has not sent yet.
	held []func()
}

func (c *conversation) play(t *testing.T, d *datadriven.TestData) string {
	c.out.Reset()
	c.do(t, d)
	if c.env != nil {
		for _, r := range c.env.TakeReports() {
			fmt.Fprintf(&c.out, "report %s\n", r)
		}
	}
	if c.out.Len() == 0 {
		return "ok\n"
	}
	return c.out.String()
}

func newConversation() *conversation {
	c := &conversation{}
	c.sim = vfs.NewSim(func() time.Time {
		if c.env == nil {
			return brokertest.Start
		}
		return c.env.Wall()
	})
	return c
}

func (c *conversation) do(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "start":
		c.doStart(d)
	case "stop":
		c.broker.Shutdown(func(err error) { fmt.Fprintf(&c.out, "stopped: %v\n", err) })
		c.env.Run()
	case "kill":
		c.sim.Kill()
	case "power-cut":
		seed := 1
		d.MaybeScanArgs(t, "seed", &seed)
		c.sim.Crash(rand.New(rand.NewPCG(uint64(seed), 0)))
	case "request":
		c.doRequest(t, d)
	case "produce":
		c.doProduce(t, d)
	case "fetch":
		c.doFetch(t, d)
	case "advance":
		d2, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		c.env.Advance(d2)
	case "run":
		c.env.Run()
	case "hold-syncs":
		c.env.HoldSyncs = d.CmdArgs[0].Key == "on"
	case "finish-sync":
		var err error
		if d.HasArg("failed") {
			err = fmt.Errorf("input/output error: %w", vfs.ErrInjected)
		}
		at := 0
		d.MaybeScanArgs(t, "at", &at)
		c.env.FinishSyncAt(at, err)
		fmt.Fprintf(&c.out, "syncs pending: %d\n", c.env.SyncsPending())
	case "disconnect":
		c.broker.Disconnected(conn(t, d))
	case "send":
		for _, send := range c.held {
			send()
		}
		c.held = nil
	case "status":
		c.doStatus()
	case "fail-reads":
		c.fault = func(op vfs.Op) error {
			if op.Kind == vfs.OpRead {
				return fmt.Errorf("input/output error: %w", vfs.ErrInjected)
			}
			return nil
		}
	case "fail-writes":
		var in string
		d.ScanArgs(t, "in", &in)
		failure := fmt.Errorf("no space: %w", vfs.ErrNoSpace)
		if d.HasArg("too-many-open") {
			failure = fmt.Errorf("reopen: %w", vfs.ErrTooManyOpen)
		}
		c.fault = func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite && strings.Contains(op.Name, in) {
				return failure
			}
			return nil
		}
	case "mend":
		c.fault = nil
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

// doStart makes a broker over the disk as it is; arguments and input lines are settings.
func (c *conversation) doStart(d *datadriven.TestData) {
	settings := []string{"log.dirs=/data", "listeners=PLAINTEXT://broker:9092"}
	if d.Input != "" {
		settings = append(settings, strings.Split(d.Input, "\n")...)
	}
	cfg, err := broker.ParseConfig(nil, settings)
	if err != nil {
		fmt.Fprintln(&c.out, err)
		return
	}
	cfg.Faults = c.faults
	hook := func(op vfs.Op) error {
		if c.fault != nil {
			return c.fault(op)
		}
		return nil
	}
	c.lives++
	c.env = brokertest.New(vfs.WithHook(c.sim, hook), c.lives)
	c.env.HoldSyncs = d.HasArg("hold-syncs")
	c.broker = broker.New(c.env, cfg)
	ready := false
	c.broker.Start(func(err error) {
		if err != nil {
			fmt.Fprintf(&c.out, "start: %v\n", err)
		}
		ready = true
	})
	c.env.Run()
	// What the start itself waits for is let through; what it leaves to do is held.
	for c.env.HoldSyncs && !ready {
		c.env.FinishSync(nil)
	}
}

func conn(t *testing.T, d *datadriven.TestData) broker.ConnID {
	id := 1
	d.MaybeScanArgs(t, "conn", &id)
	return broker.ConnID(id)
}

// ask sends a request as a connection would: encoded and decoded, in a buffer that
// is overwritten as soon as Handle returns, so that nothing may alias it.
func (c *conversation) ask(t *testing.T, d *datadriven.TestData, body kmsg.Request) {
	t.Helper()
	wire := body.AppendTo(nil)
	decoded := kmsg.RequestForKey(body.Key())
	decoded.SetVersion(body.GetVersion())
	if err := decoded.(kmsg.UnsafeReadFrom).UnsafeReadFrom(wire); err != nil {
		t.Fatalf("%s v%d: %v", kmsg.NameForKey(body.Key()), body.GetVersion(), err)
	}
	c.asked++
	n, answers := c.asked, 0
	inside := true
	c.broker.Handle(broker.Request{Conn: conn(t, d), Body: decoded, Local: "127.0.0.1:9092"}, func(a broker.Answer) {
		if answers++; answers > 1 {
			t.Fatalf("request %d answered twice", n)
		}
		later := ""
		if !inside {
			later = fmt.Sprintf(" (to #%d)", n)
		}
		send := func() {
			fmt.Fprintf(&c.out, "%s%s", kmsg.NameForKey(body.Key()), later)
			c.print(t, body, a)
		}
		if d.HasArg("held") {
			c.held = append(c.held, send)
		} else {
			send()
		}
	})
	for i := range wire {
		wire[i] = 'X'
	}
	inside = false
	c.env.Run()
	if answers == 0 {
		fmt.Fprintf(&c.out, "#%d %s waits\n", n, kmsg.NameForKey(body.Key()))
	}
}

// print decodes an answer from its wire form and prints what is not empty.
func (c *conversation) print(t *testing.T, req kmsg.Request, a broker.Answer) {
	t.Helper()
	if a.Silent {
		c.out.WriteString(": no answer")
		if a.Close {
			c.out.WriteString(", the connection is closed")
		}
		c.out.WriteString("\n")
		return
	}
	var wire []byte
	resp := req.ResponseKind()
	if a.Fetch != nil {
		wire = fetchBytes(t, a.Fetch)
		a.Fetch.Release()
	} else {
		wire = a.Body.AppendTo(nil)
		resp.SetVersion(a.Body.GetVersion())
	}
	if err := resp.ReadFrom(wire); err != nil {
		t.Fatalf("answer to %s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	c.out.WriteString("\n")
	printStruct(&c.out, reflect.ValueOf(resp).Elem(), "  ")
}

// fetchBytes is what the shell would send.
func fetchBytes(t testing.TB, f *broker.FetchAnswer) []byte {
	t.Helper()
	var wire []byte
	for i := range f.Parts {
		p := &f.Parts[i]
		wire = append(wire, p.Head...)
		switch {
		case p.Region.Bytes != nil:
			wire = append(wire, p.Region.Bytes[:p.Region.Len]...)
		case p.Region.Len > 0:
			b := make([]byte, p.Region.Len)
			if _, err := p.Region.File.ReadAt(b, p.Region.Pos); err != nil {
				clear(b) // the batches will not hold what they should
			}
			wire = append(wire, b...)
		}
	}
	wire = append(wire, f.Tail...)
	if len(wire) != f.Size() {
		t.Fatalf("Size says %d bytes, the answer has %d", f.Size(), len(wire))
	}
	return wire
}

// printStruct prints the fields of an answer that are not empty: plain ones in one line, then lists.
func printStruct(out *strings.Builder, v reflect.Value, indent string) {
	var line strings.Builder
	var lists []int
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		for f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		switch {
		case name == "Version" || name == "UnknownTags" || f.IsZero() && !always[name]:
		case name == "ErrorCode":
			fmt.Fprintf(&line, "%s ", kerr.TypedErrorForCode(int16(f.Int())).Message)
		case name == "RecordBatches":
			fmt.Fprintf(&line, "Records=[%s] ", describeBatches(f.Bytes()))
		case f.Kind() == reflect.Array:
			fmt.Fprintf(&line, "%s=%x… ", name, f.Slice(0, 2).Bytes())
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			lists = append(lists, i)
		case f.Kind() == reflect.Struct: // of tags
		default:
			fmt.Fprintf(&line, "%s=%v ", name, f.Interface())
		}
	}
	if line.Len() > 0 {
		fmt.Fprintf(out, "%s%s\n", indent, strings.TrimSpace(line.String()))
		indent += "  "
	}
	for _, i := range lists {
		for j := range v.Field(i).Len() {
			printStruct(out, v.Field(i).Index(j), indent)
		}
	}
}

// always are fields whose zero means something.
var always = map[string]bool{
	"BaseOffset": true, "Offset": true, "HighWatermark": true, "Partition": true, "LowWatermark": true, "EndOffset": true, "ProducerID": true,
}

func describeBatches(b []byte) string {
	var all []string
	for h, batch := range record.Batches(b) {
		text := fmt.Sprintf("%d-%d", h.BaseOffset, h.LastOffset())
		if h.Codec() != record.None {
			text += " " + h.Codec().String()
		}
		if _, err := record.Check(batch); err != nil {
			text += " " + err.Error()
		}
		all = append(all, text)
		b = b[len(batch):]
	}
	if len(b) > 0 {
		all = append(all, fmt.Sprintf("%d bytes that are no batch", len(b)))
	}
	return strings.Join(all, ", ")
}

// doRequest sends any request: "request Metadata v=9", and its fields as JSON.
func (c *conversation) doRequest(t *testing.T, d *datadriven.TestData) {
	var body kmsg.Request
	for key := int16(0); key <= kmsg.MaxKey && body == nil; key++ {
		if kmsg.NameForKey(key) == d.CmdArgs[0].Key {
			body = kmsg.RequestForKey(key)
		}
	}
	if body == nil {
		d.Fatalf(t, "no request %s", d.CmdArgs[0].Key)
	}
	if defaults, ok := body.(interface{ Default() }); ok {
		defaults.Default()
	}
	version := int(-1)
	for _, a := range broker.APIs() {
		if a.Key == body.Key() {
			version = int(a.Max)
		}
	}
	if d.HasArg("v") {
		d.ScanArgs(t, "v", &version)
	}
	body.SetVersion(int16(version))
	if d.Input != "" {
		if err := json.Unmarshal([]byte(d.Input), body); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	c.ask(t, d, body)
}

// doProduce sends one batch: produce t/0 [acks=1] [records=1] [pid= epoch= seq=]
// [codec=gzip] [ago=1h: age of its timestamps] [at=ms: these themselves] [v=9] [bad=crc|magic|two|count|transactional|latest] [txn=id].
func (c *conversation) doProduce(t *testing.T, d *datadriven.TestData) {
	topic, partition := topicAndPartition(t, d)
	acks, records, version, codec, bad, ago := 1, 1, 9, "none", "", "0s"
	pid, epoch, seq, at := int64(-1), -1, -1, int64(math.MinInt64)
	for name, into := range map[string]any{
		"acks": &acks, "records": &records, "v": &version, "codec": &codec, "bad": &bad, "ago": &ago, "pid": &pid, "epoch": &epoch, "seq": &seq, "at": &at,
	} {
		d.MaybeScanArgs(t, name, into)
	}
	k, err := record.ParseCodec(codec)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	age, err := time.ParseDuration(ago)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	b := record.NewBuilder(k)
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = pid, int16(epoch), int32(seq)
	b.Transactional = bad == "transactional"
	if at == math.MinInt64 {
		at = c.env.Wall().Add(-age).UnixMilli()
	}
	for i := range records {
		b.Append(at, nil, []byte("value "+strconv.Itoa(i)))
	}
	batch := b.Build(nil)
	switch bad {
	case "crc":
		batch[len(batch)-1] ^= 1
	case "magic":
		batch[16] = 1
	case "two":
		batch = b.Build(batch)
	case "latest": // the header's latest timestamp is less than the record's
		binary.BigEndian.PutUint64(batch[35:], uint64(c.env.Wall().UnixMilli()))
		record.FixCRC(batch)
	case "count":
		batch[60]++
		record.FixCRC(batch)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = int16(version), int16(acks), 1000
	if d.HasArg("txn") {
		req.TransactionID = kmsg.StringPtr("txn")
	}
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Partition, rp.Records = topic, partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c.ask(t, d, req)
}

// doFetch: fetch t/0@5 u/0@0 … [min=1] [wait=0 ms] [max=] [partition-max=] [conn=] [v=11] [epoch=] [session=].
func (c *conversation) doFetch(t *testing.T, d *datadriven.TestData) {
	minBytes, wait, maxBytes, partitionMax, version, epoch, session := 1, 0, 1<<20, 1<<20, 11, -1, 0
	for name, into := range map[string]any{
		"min": &minBytes, "wait": &wait, "max": &maxBytes, "partition-max": &partitionMax, "v": &version, "epoch": &epoch, "session": &session,
	} {
		d.MaybeScanArgs(t, name, into)
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxWaitMillis, req.MaxBytes, req.SessionID = int16(version), int32(minBytes), int32(wait), int32(maxBytes), int32(session)
	for _, a := range d.CmdArgs {
		name, offset, ok := strings.Cut(a.Key, "@")
		if !ok {
			continue
		}
		topic, partition := splitPartition(t, name)
		rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		rt.Topic, rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = topic, partition, int32(partitionMax), int32(epoch)
		rt.TopicID = c.topicID(topic)
		rp.FetchOffset, _ = strconv.ParseInt(offset, 10, 64)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	c.ask(t, d, req)
}

// topicID asks the broker, as a client would.
func (c *conversation) topicID(topic string) (id [16]byte) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 12, false
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	c.broker.Handle(broker.Request{Body: req, Local: "x:1"}, func(a broker.Answer) {
		if a.Body != nil {
			id = a.Body.(*kmsg.MetadataResponse).Topics[0].TopicID
		}
	})
	return id
}

func topicAndPartition(t *testing.T, d *datadriven.TestData) (string, int32) {
	return splitPartition(t, d.CmdArgs[0].Key)
}

func splitPartition(t *testing.T, name string) (string, int32) {
	topic, number, ok := strings.Cut(name, "/")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		t.Fatalf("%q: want topic/partition", name)
	}
	return topic, int32(n)
}

func (c *conversation) doStatus() {
	s := c.broker.Status()
	for _, p := range s.Partitions {
		if p.Offline {
			fmt.Fprintf(&c.out, "%s/%d offline in %s\n", p.Topic, p.Partition, p.Dir)
			continue
		}
		fmt.Fprintf(&c.out, "%s/%d start=%d flushed=%d visible=%d end=%d in %s\n", p.Topic, p.Partition, p.LogStartOffset, p.FlushedOffset, p.HighWatermark, p.LogEndOffset, p.Dir)
	}
	fmt.Fprintf(&c.out, "fetches waiting: %d, syncs pending: %d\n", s.FetchesWaiting, c.env.SyncsPending())
}
