package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is what list and describe tell.
type Topic struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions []Partition       `json:"partitions"`
	Config     map[string]string `json:"config,omitempty"` // what was set for the topic itself
}

// Partition is one partition of a Topic. Offsets and Bytes are -1 where they are not known.
type Partition struct {
	Partition      int32   `json:"partition"`
	Leader         int32   `json:"leader"`
	LeaderEpoch    int32   `json:"leader_epoch"`
	Replicas       []int32 `json:"replicas"`
	ISR            []int32 `json:"isr"`
	LogStartOffset int64   `json:"log_start_offset"`
	HighWatermark  int64   `json:"high_watermark"`
	Bytes          int64   `json:"bytes"`
	Error          string  `json:"error,omitempty"`
}

// CreateTopic creates a topic; partitions or replicas of -1 take the broker's default.
func (t Target) CreateTopic(ctx context.Context, name string, partitions int32, replicas int16, config map[string]string) error {
	values := map[string]*string{}
	for k, v := range config {
		values[k] = &v
	}
	return t.admin(ctx, func(ctx context.Context, c *kadm.Client) error {
		r, err := c.CreateTopic(ctx, partitions, replicas, values, name)
		if err == nil {
			err = r.Err
		}
		return explain("create topic "+name, err, r.ErrMessage)
	})
}

// DeleteTopics deletes topics; it goes on after a failure and reports all.
func (t Target) DeleteTopics(ctx context.Context, names []string) error {
	return t.admin(ctx, func(ctx context.Context, c *kadm.Client) error {
		all, err := c.DeleteTopics(ctx, names...)
		if err != nil {
			return err
		}
		var errs []error
		for _, r := range all.Sorted() {
			errs = append(errs, explain("delete topic "+r.Topic, r.Err, r.ErrMessage))
		}
		return errors.Join(errs...)
	})
}

// Alteration is what AlterTopic changes.
type Alteration struct {
	Partitions int               // the new number; 0: leave it
	Set        map[string]string // topic settings
	Delete     []string          // settings to take back to the broker's default
}

// AlterTopic adds partitions and changes settings.
func (t Target) AlterTopic(ctx context.Context, name string, a Alteration) error {
	return t.admin(ctx, func(ctx context.Context, c *kadm.Client) error {
		if changes := a.configs(); len(changes) > 0 {
			all, err := c.AlterTopicConfigs(ctx, changes, name)
			if err != nil {
				return err
			}
			for _, r := range all {
				if err := explain("settings of topic "+name, r.Err, r.ErrMessage); err != nil {
					return err
				}
			}
		}
		if a.Partitions == 0 {
			return nil
		}
		all, err := c.UpdatePartitions(ctx, a.Partitions, name)
		if err != nil {
			return err
		}
		for _, r := range all.Sorted() {
			if err := explain("partitions of topic "+name, r.Err, r.ErrMessage); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a Alteration) configs() (changes []kadm.AlterConfig) {
	for _, k := range slices.Sorted(maps.Keys(a.Set)) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(a.Set[k])})
	}
	for _, k := range a.Delete {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	return changes
}

// Topics describes the named topics, or all, by name.
func (t Target) Topics(ctx context.Context, names ...string) (topics []Topic, err error) {
	err = t.admin(ctx, func(ctx context.Context, c *kadm.Client) error {
		details, err := c.ListTopics(ctx, names...)
		if err != nil {
			return err
		}
		for _, d := range details.Sorted() {
			if d.Err != nil {
				return explain("topic "+d.Topic, d.Err, "")
			}
			topics = append(topics, describe(d))
		}
		if len(topics) == 0 {
			return nil
		}
		if err := addOffsets(ctx, c, topics); err != nil {
			return err
		}
		addSizes(ctx, c, topics)
		return addConfigs(ctx, c, topics)
	})
	return topics, err
}

func describe(d kadm.TopicDetail) Topic {
	t := Topic{Name: d.Topic, ID: base64.RawURLEncoding.EncodeToString(d.ID[:]), Config: map[string]string{}}
	for _, p := range d.Partitions.Sorted() {
		q := Partition{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR, LogStartOffset: -1, HighWatermark: -1, Bytes: -1}
		if p.Err != nil {
			q.Error = p.Err.Error()
		}
		t.Partitions = append(t.Partitions, q)
	}
	return t
}

func namesOf(topics []Topic) (names []string) {
	for _, t := range topics {
		names = append(names, t.Name)
	}
	return names
}

func addOffsets(ctx context.Context, c *kadm.Client, topics []Topic) error {
	starts, err := c.ListStartOffsets(ctx, namesOf(topics)...)
	if err != nil {
		return err
	}
	ends, err := c.ListEndOffsets(ctx, namesOf(topics)...)
	if err != nil {
		return err
	}
	for _, t := range topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if o, ok := starts.Lookup(t.Name, p.Partition); ok && o.Err == nil {
				p.LogStartOffset = o.Offset
			}
			if o, ok := ends.Lookup(t.Name, p.Partition); ok && o.Err == nil {
				p.HighWatermark = o.Offset
			}
		}
	}
	return nil
}

// addSizes fills in sizes where brokers tell them.
func addSizes(ctx context.Context, c *kadm.Client, topics []Topic) {
	dirs, err := c.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return // an extra: the rest of the description stands without it
	}
	sizes := map[string]map[int32]int64{}
	for _, d := range dirs.Sorted() {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if sizes[p.Topic] == nil {
				sizes[p.Topic] = map[int32]int64{}
			}
			sizes[p.Topic][p.Partition] = max(sizes[p.Topic][p.Partition], p.Size) // the most complete replica
		})
	}
	for _, t := range topics {
		for i := range t.Partitions {
			if size, ok := sizes[t.Name][t.Partitions[i].Partition]; ok {
				t.Partitions[i].Bytes = size
			}
		}
	}
}

func addConfigs(ctx context.Context, c *kadm.Client, topics []Topic) error {
	all, err := c.DescribeTopicConfigs(ctx, namesOf(topics)...)
	if err != nil {
		return err
	}
	for _, t := range topics {
		r, err := all.On(t.Name, nil)
		if err != nil {
			return explain("settings of topic "+t.Name, err, "")
		}
		for _, config := range r.Configs {
			if config.Source == kmsg.ConfigSourceDynamicTopicConfig {
				t.Config[config.Key] = config.MaybeValue()
			}
		}
	}
	return nil
}

// WriteTopicList writes one line a topic.
func WriteTopicList(w io.Writer, topics []Topic, asJSON bool) error {
	if asJSON {
		return writeJSON(w, append([]Topic{}, topics...))
	}
	var rows [][]string
	for _, t := range topics {
		records, bytes := int64(0), int64(0)
		for _, p := range t.Partitions {
			records += max(0, p.HighWatermark-p.LogStartOffset)
			bytes += max(0, p.Bytes)
		}
		rows = append(rows, []string{t.Name, fmt.Sprint(len(t.Partitions)), fmt.Sprint(records), fmt.Sprint(bytes), settingsText(t.Config)})
	}
	return table(w, []string{"TOPIC", "PARTITIONS", "OFFSETS", "BYTES", "SETTINGS"}, rows)
}

// WriteTopics writes all that is known of each topic.
func WriteTopics(w io.Writer, topics []Topic, asJSON bool) error {
	if asJSON {
		return writeJSON(w, append([]Topic{}, topics...))
	}
	for i, t := range topics {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "topic %s  id %s  settings: %s\n", t.Name, t.ID, settingsText(t.Config))
		var rows [][]string
		for _, p := range t.Partitions {
			rows = append(rows, []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Leader), fmt.Sprint(p.LeaderEpoch), brokers(p.Replicas), brokers(p.ISR),
				fmt.Sprint(p.LogStartOffset), fmt.Sprint(p.HighWatermark), fmt.Sprint(p.Bytes), p.Error})
		}
		if err := table(w, []string{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "LOG START", "HIGH WATERMARK", "BYTES", ""}, rows); err != nil {
			return err
		}
	}
	return nil
}

func brokers(ids []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func settingsText(config map[string]string) string {
	if len(config) == 0 {
		return "the broker's"
	}
	var text []string
	for _, k := range slices.Sorted(maps.Keys(config)) {
		text = append(text, k+"="+config[k])
	}
	return strings.Join(text, " ")
}
