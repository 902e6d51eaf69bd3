package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/brokertest"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// notes are what an Observer saw.
type notes struct{ saw []string }

var _ broker.Observer = (*notes)(nil)

// watching is an Env that notes what it observes.
type watching struct {
	*brokertest.Env
	notes
}

func (w *notes) note(format string, args ...any) {
	w.saw = append(w.saw, fmt.Sprintf(format, args...))
}
func (w *notes) LogOpened(topic string, p int32, at broker.LogBounds) {
	w.note("opened %s-%d %d-%d hw %d", topic, p, at.LogStartOffset, at.LogEndOffset, at.HighWatermark)
}
func (w *notes) LogAppended(topic string, p int32, batches []byte, replica bool) {
	h := record.ReadHeader(batches)
	w.note("appended %s-%d %d-%d replica %v", topic, p, h.BaseOffset, h.LastOffset(), replica)
}
func (w *notes) LogChanged(topic string, p int32, at broker.LogBounds) {
	w.note("changed %s-%d %d-%d flushed %d", topic, p, at.LogStartOffset, at.LogEndOffset, at.FlushedOffset)
}
func (w *notes) LogTruncates(topic string, p int32, to int64) {
	w.note("truncates %s-%d to %d", topic, p, to)
}
func (w *notes) LogRemoves(string, int32)         {}
func (w *notes) LogRemoved(topic string, p int32) { w.note("removed %s-%d", topic, p) }
func (w *notes) HighWatermark(topic string, p int32, to int64, counting []int32) {
	w.note("high watermark %s-%d %d %v", topic, p, to, counting)
}
func (w *notes) BecameLeader(string, int32, int32, []int32) {}
func (w *notes) BecameFollower(string, int32, int32, int32) {}
func (w *notes) ControllerElected(int32)                    {}
func (w *notes) CommandApplied(int16, int32)                {}

// TestAnObserverSeesEveryChangeOfALog: the ghost state of the simulator is no better than what it is told.
func TestAnObserverSeesEveryChangeOfALog(t *testing.T) {
	cfg, err := broker.ParseConfig(nil, []string{"log.dirs=/data", "lab.flush.group=on"})
	if err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewSim(nil)
	w := &watching{Env: brokertest.New(disk, 1)}
	b := broker.New(w, cfg)
	start := func() {
		b.Start(func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		w.Run()
	}
	ask := func(r kmsg.Request, version int16) {
		r.SetVersion(version)
		b.Handle(broker.Request{Body: r}, func(broker.Answer) {})
		w.Run()
	}
	start()
	create := kmsg.NewCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 1
	create.Topics = append(create.Topics, topic)
	ask(&create, 5)
	build := record.NewBuilder(record.None)
	build.Append(1, nil, []byte("v"))
	build.Append(1, nil, []byte("w"))
	produce := kmsg.NewProduceRequest()
	produce.Acks = -1
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = build.Build(nil)
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{part}}}
	ask(&produce, 7)
	del := kmsg.NewDeleteRecordsRequest()
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 1}}}}
	ask(&del, 2)
	deletion := kmsg.NewDeleteTopicsRequest()
	deletion.TopicNames = []string{"t"}
	deletion.TimeoutMillis = 1000
	disk.Kill()
	w2 := &watching{Env: brokertest.New(disk, 2)}
	w2.saw = w.saw
	w, b = w2, broker.New(w2, cfg)
	start()
	ask(&deletion, 5)
	want := `opened t-0 0-0 hw 0
appended t-0 0-1 replica false
high watermark t-0 2 []
changed t-0 0-2 flushed 2
changed t-0 1-2 flushed 2
opened t-0 0-2 hw 2
changed t-0 0-2 flushed 2
removed t-0`
	got := strings.Join(slices.Compact(w.saw), "\n")
	if got != want {
		t.Errorf("saw\n%s\ninstead of\n%s", got, want)
	}
}
