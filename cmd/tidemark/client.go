package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/cmd/tidemark/internal/cli"
	"github.com/tidemark-log/tidemark/internal/words"
)

func init() { commands = append(commands, topicCommand, produceCommand, consumeCommand) }

// targetFlags adds the flags that say which cluster to talk to.
func targetFlags(cmd *cobra.Command, t *cli.Target) {
	f := cmd.PersistentFlags()
	f.StringSliceVar(&t.Bootstrap, "bootstrap", []string{"127.0.0.1:9092"}, "brokers to begin with, host:port")
	f.DurationVar(&t.Timeout, "timeout", 10*time.Second, "how long a request, or reaching the cluster, may take")
}

func topicCommand() *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"}
	targetFlags(cmd, &t)
	cmd.AddCommand(topicCreate(&t), topicList(&t), topicDescribe(&t), topicAlter(&t), topicDelete(&t))
	return cmd
}

func topicCreate(t *cli.Target) *cobra.Command {
	var partitions int32
	var replicas int16
	var config map[string]string
	cmd := &cobra.Command{
		Use: "create TOPIC", Short: "Create a topic", Args: cobra.ExactArgs(1),
		Example: "  tidemark topic create orders --partitions 6 --set retention.ms=3600000",
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.CreateTopic(cmd.Context(), args[0], partitions, replicas, config)
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions (-1: the broker's default)")
	cmd.Flags().Int16Var(&replicas, "replicas", -1, "replicas of each partition (-1: the broker's default)")
	cmd.Flags().StringToStringVar(&config, "set", nil, "topic setting, key=value; may be repeated")
	return cmd
}

func topicList(t *cli.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List topics", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			topics, err := t.Topics(cmd.Context())
			if err != nil {
				return err
			}
			return cli.WriteTopicList(cmd.OutOrStdout(), topics, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func topicDescribe(t *cli.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "describe TOPIC…", Short: "Describe topics: settings, partitions, offsets, sizes", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			topics, err := t.Topics(cmd.Context(), args...)
			if err != nil {
				return err
			}
			return cli.WriteTopics(cmd.OutOrStdout(), topics, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func topicAlter(t *cli.Target) *cobra.Command {
	var a cli.Alteration
	cmd := &cobra.Command{
		Use: "alter TOPIC", Short: "Add partitions to a topic, or change its settings", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.Partitions == 0 && len(a.Set) == 0 && len(a.Delete) == 0 {
				return errors.New("nothing to alter: give --partitions, --set or --unset")
			}
			return t.AlterTopic(cmd.Context(), args[0], a)
		},
	}
	cmd.Flags().IntVar(&a.Partitions, "partitions", 0, "new number of partitions, more than there are")
	cmd.Flags().StringToStringVar(&a.Set, "set", nil, "topic setting, key=value; may be repeated")
	cmd.Flags().StringSliceVar(&a.Delete, "unset", nil, "topic setting to take back to the broker's")
	return cmd
}

func topicDelete(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use: "delete TOPIC…", Short: "Delete topics and all they hold", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return t.DeleteTopics(cmd.Context(), args) },
	}
}

func produceCommand() *cobra.Command {
	var t cli.Target
	p := cli.Produce{}
	var quiet bool
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Produce a record for each line of standard input",
		Example: `  seq 1 1000 | tidemark produce numbers --codec zstd
  echo 'user7:clicked' | tidemark produce events --key-separator :`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Topic = args[0]
			p.KeySeparator = strings.ReplaceAll(p.KeySeparator, `\t`, "\t")
			n, err := t.ProduceLines(cmd.Context(), cmd.InOrStdin(), p)
			if !quiet && (n > 0 || err == nil) {
				fmt.Fprintln(cmd.ErrOrStderr(), acknowledged(n, p.Acks))
			}
			return err
		},
	}
	targetFlags(cmd, &t)
	f := cmd.Flags()
	f.Int32Var(&p.Partition, "partition", -1, "partition (-1: by key, or sticky without one)")
	f.StringVar(&p.KeySeparator, "key-separator", "", `what precedes it on a line is the record's key, for instance ":" or "\t"`)
	f.StringVar(&p.Acks, "acks", "all", "acknowledgement to wait for: 0, 1 or all")
	f.StringVar(&p.Codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	f.Int32Var(&p.BatchBytes, "batch-bytes", 1_000_012, "bound of one batch")
	f.IntVar(&p.LineBytesMax, "line-bytes-max", 64<<20, "bound of one line")
	f.DurationVar(&p.Linger, "linger", 5*time.Millisecond, "how long a batch waits for more records")
	f.BoolVar(&quiet, "quiet", false, "do not say how many records were acknowledged")
	return cmd
}

func acknowledged(n int64, acks string) string {
	if acks == "0" {
		return fmt.Sprintf("%d records sent (acks=0: nobody said that they arrived)", n)
	}
	return fmt.Sprintf("%s acknowledged", words.Count(n, "record"))
}

func consumeCommand() *cobra.Command {
	var t cli.Target
	c := cli.Consume{}
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print the records of a topic",
		Long: `Print the values of a topic's records, one a line, and wait for more until
Ctrl-C, --max or, with --exit, the present end of the topic.`,
		Example: `  tidemark consume orders --from beginning --exit
  tidemark consume orders --from -10 --json
  tidemark consume orders --from 2026-01-31T12:00:00Z --max 100`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Topic = args[0]
			_, err := t.ConsumeTo(cmd.Context(), cmd.OutOrStdout(), c)
			if errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
				return nil
			}
			return err
		},
	}
	targetFlags(cmd, &t)
	f := cmd.Flags()
	f.StringVar(&c.From, "from", "beginning", "beginning, end, an offset, -N (N before the end), a time (RFC 3339), or @milliseconds")
	f.Int32SliceVar(&c.Partitions, "partition", nil, "partitions to read (default: all)")
	f.Int64Var(&c.Max, "max", 0, "stop after so many records (0: do not)")
	f.BoolVarP(&c.ToEnd, "exit", "e", false, "stop at the end the topic has now")
	f.BoolVar(&c.JSON, "json", false, "print one JSON object a line, with offset, time, key and headers")
	f.BoolVar(&c.Keys, "keys", false, "print the key and a tab before each value")
	return cmd
}
