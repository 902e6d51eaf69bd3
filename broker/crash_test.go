package broker_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/brokertest"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// crashWorld runs one short life of a broker that meets a fault at some operation
// of its disk, cuts the power, and looks in a second life whether everything that
// was acknowledged in the first is there.
type crashWorld struct {
	t      *testing.T
	sim    *vfs.Sim
	env    *brokertest.Env
	broker *broker.Broker
	lives  uint64

	created []string          // topics that CreateTopics acknowledged
	stopped bool              // the life went to its end
	deleted string            // a topic whose deletion was asked for
	acked   map[string]string // "topic/offset" to its record's value
	ids     map[int64]bool    // producer ids given
}

func newCrashWorld(t *testing.T) *crashWorld {
	w := &crashWorld{t: t, acked: map[string]string{}, ids: map[int64]bool{}}
	w.sim = vfs.NewSim(func() time.Time { return w.env.Wall() })
	return w
}

// start reports whether the broker is ready.
func (w *crashWorld) start(fs vfs.FS, faults broker.Faults) bool {
	cfg, err := broker.ParseConfig(nil, []string{"log.dirs=/data/a,/data/b", "lab.flush.group=on", "log.segment.bytes=1024",
		"log.flush.offset.checkpoint.interval.ms=100", "log.retention.check.interval.ms=100", "log.segment.delete.delay.ms=0"})
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.Faults = faults
	w.lives++
	w.env = brokertest.New(fs, w.lives)
	w.broker = broker.New(w.env, cfg)
	ready := false
	w.broker.Start(func(err error) { ready = err == nil })
	w.env.Run()
	return ready
}

// ask sends a request; what it acknowledges counts from the moment of the answer.
func (w *crashWorld) ask(body kmsg.Request, answered func(kmsg.Response)) {
	w.broker.Handle(broker.Request{Body: body, Local: "x:1"}, func(a broker.Answer) {
		if a.Body != nil {
			answered(a.Body)
		}
	})
}

func (w *crashWorld) create(name string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 1, ReplicationFactor: 1}}
	w.ask(req, func(r kmsg.Response) {
		if r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode == 0 {
			w.created = append(w.created, name)
		}
	})
	w.env.Run()
}

func (w *crashWorld) delete(name string) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TopicNames = 1, []string{name}
	w.deleted = name
	w.ask(req, func(kmsg.Response) {})
	w.env.Run()
}

func (w *crashWorld) produce(topic, value string) {
	b := record.NewBuilder(record.None)
	for range 8 {
		b.Append(w.env.Wall().UnixMilli(), nil, []byte(value))
	}
	req := produceRequest(b.Build(nil))
	req.Topics[0].Topic = topic
	w.ask(req, func(r kmsg.Response) {
		p := &r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		for i := int64(0); p.ErrorCode == 0 && i < 8; i++ {
			w.acked[fmt.Sprintf("%s/%d", topic, p.BaseOffset+i)] = value
		}
	})
}

func (w *crashWorld) producerID() {
	w.ask(kmsg.NewPtrInitProducerIDRequest(), func(r kmsg.Response) {
		if id := r.(*kmsg.InitProducerIDResponse); id.ErrorCode == 0 {
			if w.ids[id.ProducerID] {
				w.t.Errorf("producer id %d is given twice", id.ProducerID)
			}
			w.ids[id.ProducerID] = true
		}
	})
	w.env.Run()
}

// life is what the broker goes through: it ends early when the disk's hook panics.
func (w *crashWorld) life(fs vfs.FS, faults broker.Faults) {
	defer func() {
		if v := recover(); v != nil && v != powerCut {
			panic(v)
		}
	}()
	if !w.start(fs, faults) {
		return
	}
	w.create("x")
	w.create("y")
	w.producerID()
	for i := range 6 {
		w.produce("x", fmt.Sprint("first ", i))
		w.produce("x", fmt.Sprint("second ", i)) // the sync of the first is under way
		w.produce("y", fmt.Sprint("other ", i))
		w.env.Advance(60 * time.Millisecond) // checkpoints and retention in between
	}
	w.create("gone")
	w.produce("gone", "value")
	w.env.Run()
	w.delete("gone")
	w.produce("x", "last")
	w.env.Run()
	w.broker.Shutdown(func(error) {})
	w.env.Run()
	w.stopped = true
}

var powerCut = new(int)

// check starts the broker anew and looks for everything.
func (w *crashWorld) check() error {
	if !w.start(w.sim, broker.Faults{}) {
		return fmt.Errorf("the broker does not start: %v", w.env.Reports)
	}
	found := map[string]string{}
	for _, name := range w.created {
		if name == w.deleted {
			continue
		}
		end, ok := w.end(name)
		if !ok {
			return fmt.Errorf("topic %s is gone; %v", name, w.env.Reports)
		}
		for offset := int64(0); offset < end; {
			batch, err := w.fetch(name, offset)
			if err != nil {
				return err
			}
			for r, err := range record.Records(batch, 0) {
				if err != nil {
					return fmt.Errorf("%s at %d: %w", name, offset, err)
				}
				found[fmt.Sprintf("%s/%d", name, r.Offset)] = string(r.Value)
			}
			offset = record.ReadHeader(batch).NextOffset()
		}
	}
	for at, value := range w.acked {
		if found[at] != value && !strings.HasPrefix(at, "gone/") {
			return fmt.Errorf("acknowledged at %s: %q, found %q", at, value, found[at])
		}
	}
	w.producerID()
	return nil
}

func (w *crashWorld) end(topic string) (int64, bool) {
	for _, p := range w.broker.Status().Partitions {
		if p.Topic == topic {
			return p.LogEndOffset, !p.Offline
		}
	}
	return 0, false
}

// fetch gives the batch at offset.
func (w *crashWorld) fetch(topic string, offset int64) (batch []byte, err error) {
	req := pollRequest(topic, 0, offset, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 1
	w.broker.Handle(broker.Request{Body: req}, func(a broker.Answer) {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = 11
		err = resp.ReadFrom(fetchBytes(w.t, a.Fetch))
		a.Fetch.Release()
		if p := &resp.Topics[0].Partitions[0]; err == nil && (p.ErrorCode != 0 || len(p.RecordBatches) < record.HeaderSize) {
			err = fmt.Errorf("fetch of %s at %d: error code %d, %d bytes", topic, offset, p.ErrorCode, len(p.RecordBatches))
		}
		batch = p0(resp)
	})
	return batch, err
}

func p0(r *kmsg.FetchResponse) []byte { return r.Topics[0].Partitions[0].RecordBatches }

// powerCutAt is a disk whose power goes before its n-th operation.
func powerCutAt(n int64) vfs.Hook {
	return func(op vfs.Op) error {
		if op.N == n {
			panic(powerCut)
		}
		return nil
	}
}

// TestNothingAcknowledgedIsLostAtAPowerCut cuts the power before each operation of the disk in turn.
func TestNothingAcknowledgedIsLostAtAPowerCut(t *testing.T) {
	n := int64(1)
	for over := false; !over; n++ {
		w := newCrashWorld(t)
		w.life(vfs.WithHook(w.sim, powerCutAt(n)), broker.Faults{})
		over = w.stopped
		w.sim.Crash(rand.New(rand.NewPCG(uint64(n), 0)))
		if err := w.check(); err != nil {
			t.Fatalf("power cut before operation %d: %v", n, err)
		}
		if over && len(w.acked) != 8*20 {
			t.Fatalf("%d records acknowledged in a life without a fault", len(w.acked))
		}
	}
	t.Logf("%d operations", n-1)
}

// TestNothingAcknowledgedIsLostAtADiskFault fails each operation of the disk in turn, and cuts the power at the end.
func TestNothingAcknowledgedIsLostAtADiskFault(t *testing.T) {
	n := int64(1)
	for met := true; met; n++ {
		w := newCrashWorld(t)
		nth := vfs.FailNth(n, nil)
		w.life(vfs.WithHook(w.sim, nth.Hook), broker.Faults{})
		met = nth.Met()
		w.sim.Crash(rand.New(rand.NewPCG(uint64(n), 1)))
		if err := w.check(); err != nil {
			t.Fatalf("fault at operation %d: %v", n, err)
		}
	}
	t.Logf("%d operations", n-1)
}

// TestTheseChecksSeeAnEarlyAck: without the rule, some power cut, or failed sync, loses what was acknowledged.
func TestTheseChecksSeeAnEarlyAck(t *testing.T) {
	failSyncs := func(n int64) vfs.Hook { // and never a name's: the topics stay
		return func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && op.N > n && strings.HasSuffix(op.Name, ".log") {
				return vfs.ErrInjected
			}
			return nil
		}
	}
	for _, f := range []struct {
		name  string
		plant broker.Faults
		hook  func(int64) vfs.Hook
	}{
		{"AckBeforeSync", broker.Faults{AckBeforeSync: true}, powerCutAt},
		{"ShareEarlierSync", broker.Faults{ShareEarlierSync: true}, powerCutAt},
		{"TrustFailedSync", broker.Faults{TrustFailedSync: true}, failSyncs},
	} {
		t.Run(f.name, func(t *testing.T) {
			for n := int64(1); n < 1000; n++ {
				w := newCrashWorld(t)
				w.life(vfs.WithHook(w.sim, f.hook(n)), f.plant)
				w.sim.Crash(rand.New(rand.NewPCG(uint64(n), 0)))
				if err := w.check(); err != nil {
					t.Logf("seen at operation %d: %v", n, err)
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}
