package chaos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/experiments/history"
	"github.com/tidemark-log/tidemark/harness/sut"
)

func TestEveryScenarioOfChaosCanBePlayedAndNoOtherIsPlayedInPart(t *testing.T) {
	for _, name := range experiments.ChaosNames() {
		s, err := experiments.LoadScenario(name)
		if err == nil {
			err = Check(s)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range experiments.ScenarioNames() {
		s, err := experiments.LoadScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		err = Check(s)
		if notLive := (*NotLiveError)(nil); !errors.As(err, &notLive) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, run := Run(context.Background(), s, Options{}); run == nil || run.Error() != err.Error() {
			t.Errorf("%s is begun: %v", name, run)
		}
	}
}

func metadataOf(controller, leader int32, isr ...int32) *kmsg.MetadataResponse {
	name := topic
	m := &kmsg.MetadataResponse{ControllerID: controller}
	for _, id := range []int32{1, 2} {
		m.Brokers = append(m.Brokers, kmsg.MetadataResponseBroker{NodeID: id})
	}
	m.Topics = []kmsg.MetadataResponseTopic{{Topic: &name, Partitions: []kmsg.MetadataResponseTopicPartition{{Partition: 0, Leader: leader, Replicas: []int32{2, 1, 3}, ISR: isr}}}}
	return m
}

func TestConditionsAreSeenThroughMetadata(t *testing.T) {
	m := metadataOf(2, 1, 2, 1)
	for text, want := range map[string]bool{
		"in sync": false, "out of sync": true, "led": true, "no leader": false, "ISR of one": false, "topic made": true, "acknowledged": true,
		"ISR 1,2": true, "ISR 2": false, "leader 1": true, "leader 2": false, "controller 2": true, "controller 1": false,
		"registered 2": true, "registered 3": false, "gone 3": true, "gone 1": false, "acked 7": true, "acked 8": false,
	} {
		is := parseCondition(text)
		if is == nil || is(m, 7) != want {
			t.Errorf("%q is not %v", text, want)
		}
	}
	if full := metadataOf(1, 1, 1, 2, 3); !parseCondition("in sync")(full, 0) || parseCondition("out of sync")(full, 0) {
		t.Error("three of three are not in sync")
	}
	for _, text := range []string{"in sync", "out of sync", "led", "no leader"} {
		if parseCondition(text)(&kmsg.MetadataResponse{}, 0) {
			t.Errorf("%q holds of a topic that is not there", text)
		}
	}
	for _, text := range []string{"told 3", "hw 1 = 2", "end 1 > 2", "held Fetch", "elr 1,2", "leader x", "nonsense"} {
		if isCondition(text) {
			t.Errorf("%q is taken for a condition", text)
		}
	}
}

func TestRolesAreSeenThroughMetadata(t *testing.T) {
	m := metadataOf(2, 1, 2, 1)
	for text, want := range map[string][]int32{
		"leader of t/0": {1}, "follower of t/0": {2}, "lagging of t/0": {3}, "controller": {2}, "broker 3": {3}, "broker 4": nil, "brokers": {1, 2, 3}, "leader of t/1": nil,
	} {
		target, err := experiments.ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := inRole(m, target, 3); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestAFaultThatHasEndedIsNotTakenBackAgain: a broker dies for a while, the heal or a restart brings it back, and it dies for longer. The
// end of the first death must not be that of the second.
func TestAFaultThatHasEndedIsNotTakenBackAgain(t *testing.T) {
	for _, k := range []struct {
		name   string
		end    func(c *cluster)
		ending []lasting // by themselves, later
	}{
		{"heal", (*cluster).heal, []lasting{{paused, 2}}},
		{"restart", func(c *cluster) { c.actOn(1, &experiments.Fault{Kind: experiments.FaultRestart}) }, []lasting{{down, 0}, {paused, 2}}},
		{"the end of the run", (*cluster).healAll, nil},
	} {
		t.Run(k.name, func(t *testing.T) {
			// Brokers 1 and 2 count as up: nothing is started.
			c := newCluster(context.Background(), &sut.Cluster{Brokers: make([]*sut.Broker, 2)})
			var ended []lasting
			lasts := func(of lasting, d time.Duration) {
				c.takeBackAfter(d, of, func() { ended = append(ended, of) })
			}
			lasts(lasting{down, 1}, time.Minute)
			lasts(lasting{down, 0}, time.Minute)
			lasts(lasting{paused, 2}, time.Minute)
			k.end(c)
			lasts(lasting{down, 1}, time.Hour)
			c.takeBack(time.Now().Add(30 * time.Minute))
			if !slices.Equal(ended, k.ending) {
				t.Errorf("after half an hour %v has ended, want %v", ended, k.ending)
			}
			c.takeBack(time.Now().Add(2 * time.Hour))
			if want := append(k.ending, lasting{down, 1}); !slices.Equal(ended, want) {
				t.Errorf("at the end %v has ended, want %v", ended, want)
			}
		})
	}
}

// TestTheCheckersKnowWhatWasRead: a record that comes back as it was sent is known, and nothing else is.
func TestTheCheckersKnowWhatWasRead(t *testing.T) {
	for _, c := range []struct {
		name, breaks string
		read         []string // values at offsets 0, 1, …
		acked        int64    // offset that the second was acknowledged at
	}{
		{"all of it", "", []string{"0/0/0", "0/0/1"}, 1},
		{"lost", "S26", []string{"0/0/0"}, 1},
		{"never sent", "S11", []string{"0/0/0", "0/0/9"}, 1},
		{"twice", "S15", []string{"0/0/0", "0/0/1", "0/0/1"}, 1},
		{"out of order", "S14", []string{"0/0/1", "0/0/0"}, 0},
		{"where another was acknowledged", "S12", []string{"0/0/0"}, 0},
		{"at another offset", "S15", []string{"0/0/1", "0/0/0"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &load{partitions: 1, history: history.New(1, history.Promises{RetentionMs: -1, RetentionBytes: -1})}
			n := &lane{l: l, acks: -1}
			l.lanes = []*lane{n}
			for i := range int64(2) {
				b := &history.Batch{Session: 0, Sequence: int32(i), Number: i, Records: 1, Bytes: encode("0/0/"+string(rune('0'+i)), 0, int32(i))}
				l.history[0].Sent(b)
				if i == 1 {
					n.done(b, &kgo.Record{Offset: c.acked}, nil)
				}
			}
			var data []byte
			for at, value := range c.read {
				data = l.encodeRead(data, &kgo.Record{Offset: int64(at), Value: []byte(value)})
			}
			_, v := l.history[0].Recovered(0, int64(len(c.read)), data, false, 0)
			l.broke(v)
			err := l.failed()
			if broken := (*violationError)(nil); c.breaks == "" && err != nil || c.breaks != "" && (!errors.As(err, &broken) || !strings.HasPrefix(broken.text, c.breaks+":")) {
				t.Errorf("%v, want %s", err, c.breaks)
			}
		})
	}
}
