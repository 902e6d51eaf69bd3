package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/storage/logdump"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

func init() { commands = append(commands, logCommand) }

func logCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "log", Short: "Look at the files of a log directory"}
	cmd.AddCommand(logDumpCommand(), logVerifyCommand(), logDiffCommand())
	return cmd
}

func logDumpCommand() *cobra.Command {
	var o logdump.Options
	cmd := &cobra.Command{
		Use:   "dump DIR|FILE",
		Short: "Explain segments, indexes, producer snapshots and checkpoints",
		Long: `Explain the files of a log directory, of a partition's directory, or one file:
segments batch by batch, indexes, producer snapshots, checkpoints. Damage is
shown where it stands, and the exit status is then 1. Nothing is changed.`,
		Example: `  tidemark log dump data/orders-0
  tidemark log dump --records data/orders-0/00000000000000000000.log`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Color = isTerminal(os.Stdout)
			return lookAt(args[0], cmd.OutOrStdout(), o, logdump.Dump)
		},
	}
	cmd.Flags().BoolVar(&o.Records, "records", false, "print each record, too")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "one JSON object a line")
	return cmd
}

func logVerifyCommand() *cobra.Command {
	var o logdump.Options
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every batch, record and index entry",
		Long: `Read everything in a log directory or a partition's directory down to the
records, and print what is wrong: every damaged batch with file, position and
offset, every index entry that does not lead to its offset, every checkpoint
that the logs do not bear out. The exit status is 0 only if nothing is wrong. Nothing is
changed. On a directory that a broker writes to, the last batch may look cut off.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Color = isTerminal(os.Stdout)
			if isTerminal(os.Stderr) {
				o.Progress = progressBar(os.Stderr, "verify")
			}
			return lookAt(args[0], cmd.OutOrStdout(), o, logdump.Verify)
		},
	}
	cmd.Flags().BoolVar(&o.JSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&o.Gaps, "gaps", false, "gaps between offsets are no problem (a compacted topic written by Kafka)")
	return cmd
}

func logDiffCommand() *cobra.Command {
	var o logdump.Options
	cmd := &cobra.Command{
		Use:   "diff DIR DIR…",
		Short: "Hold the copies of a partition on several brokers against each other",
		Long: `Compare a partition's directories on several brokers, batch by batch: below the
committed offset every replica holds the same bytes. Segments may begin elsewhere
in each. Compared is from where the last of them begins; each offset at which they
are not the same is one line, and the exit status is then 1. Brokers that were
stopped in sync end at the same offset, too; under --tails they need not.`,
		Example: `  tidemark log diff /tmp/cluster/broker-*/data/orders-0`,
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Color = isTerminal(os.Stdout)
			if isTerminal(os.Stderr) {
				o.Progress = progressBar(os.Stderr, "diff")
			}
			var copies []logdump.Copy
			for _, dir := range args {
				copies = append(copies, logdump.Copy{Name: dir, Dir: filepath.ToSlash(dir)})
			}
			result, err := logdump.Diff(vfs.NewReal("", nil), copies, cmd.OutOrStdout(), o)
			if err == nil && result.Count > 0 {
				err = fmt.Errorf("differences found: %d", result.Count)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&o.JSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&o.Tails, "tails", false, "the logs may end at different offsets: brokers that run, or lagged when they stopped")
	return cmd
}

type look func(vfs.FS, string, io.Writer, logdump.Options) (logdump.Summary, error)

func lookAt(target string, out io.Writer, o logdump.Options, f look) error {
	w := bufio.NewWriter(out)
	sum, err := f(vfs.NewReal("", nil), filepath.ToSlash(target), w, o)
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	if sum.Problems > 0 {
		return fmt.Errorf("%s: problems found: %d", target, sum.Problems)
	}
	return nil
}

// progressBar shows how far what is done is once that takes more than two seconds.
func progressBar(w io.Writer, what string) func(done, total int64) {
	began := time.Now()
	var bar *progressbar.ProgressBar
	return func(done, total int64) {
		if bar == nil {
			if time.Since(began) < 2*time.Second {
				return
			}
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true),
				progressbar.OptionSetDescription(what), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish())
		}
		_ = bar.Set64(done)
	}
}
